//! Finds the known name that is most similar to an unknown one, for refusals (QUA-5). The unknown name is a
//! caller's text of any length, so the work for it is bounded.

use crate::bounds;

/// Suggestions below this similarity do not help.
pub(crate) const SIMILARITY_MIN: f64 = 0.7;

/// The known name that is most similar to the unknown one, if any is similar enough. Only the first
/// [`bounds::NAMES_COMPARED_MAX`] known names are compared.
pub fn nearest<T: AsRef<str>>(unknown: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    if unknown.len() > bounds::NAME_COMPARED_BYTES_MAX {
        return None;
    }
    let known = known.into_iter().take(bounds::NAMES_COMPARED_MAX);
    let candidates = known.map(|name| (strsim::jaro_winkler(unknown, name.as_ref()), name));
    let best = candidates.max_by(|(left, _), (right, _)| left.total_cmp(right));
    best.filter(|(similarity, _)| *similarity > SIMILARITY_MIN).map(|(_, name)| name)
}

/// The end of a refusal that suggests the nearest known name; empty if there is none.
pub fn suggestion<T: AsRef<str>>(unknown: &str, known: impl IntoIterator<Item = T>) -> String {
    nearest(unknown, known).map(|name| format!("; did you mean {}?", name.as_ref())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// QUA-5
    #[test]
    fn nearest_name_is_suggested() {
        assert_eq!(nearest("billin", ["bot", "billing", "bill"]), Some("billing"));
        assert_eq!(nearest("zzz", ["bot", "billing"]), None);
        assert_eq!(suggestion("bott", ["bot"]), "; did you mean bot?");
        assert_eq!(suggestion("zzz", ["bot"]), "");
    }

    /// QUA-5
    #[test]
    fn long_and_numerous_names_are_not_compared() {
        let compared = Cell::new(0);
        let known = || {
            let name = "x".repeat(bounds::NAME_COMPARED_BYTES_MAX);
            (0..10 * bounds::NAMES_COMPARED_MAX)
                .map(move |_| name.clone())
                .inspect(|_| compared.set(compared.get() + 1))
        };
        let longest = "x".repeat(bounds::NAME_COMPARED_BYTES_MAX);
        assert_eq!(nearest(&format!("{longest}x"), known()), None);
        assert_eq!(compared.get(), 0);
        assert_eq!(nearest("y", known()), None);
        assert_eq!(compared.get(), bounds::NAMES_COMPARED_MAX);
        assert_eq!(nearest(&longest, [&longest]), Some(&longest));
    }
}
