//! The known name that is nearest to an unknown one.

/// Names that are less alike are not offered.
const LEAST_LIKENESS: f64 = 0.7;

/// The known name that is nearest to a wrong one, if any is near.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |name: &'a str| (strsim::jaro_winkler(wrong, name), name);
    let best = known.into_iter().map(likeness).max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(likeness, _)| *likeness > LEAST_LIKENESS).map(|(_, name)| name)
}
