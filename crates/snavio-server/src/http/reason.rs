//! Why somebody does something, as it goes on the record.

use snavio_model::bounds;
use snavio_model::refusal::{Reason, Refusal};

/// Takes a reason that the record can hold. Control characters say nothing to whoever reads it, and not every
/// store can keep them.
pub(super) fn check(why: &str) -> Result<(), Refusal> {
    if why.chars().count() > bounds::REASON_CHARS_MAX {
        return Err(Refusal::new(Reason::InvalidRequest, "the reason is too long"));
    }
    if why.chars().any(char::is_control) {
        return Err(Refusal::new(Reason::InvalidRequest, "the reason holds control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-5
    #[test]
    fn a_reason_is_a_line_of_text() {
        for (why, taken) in [
            ("", true),
            ("naïve ☃", true),
            (&"é".repeat(bounds::REASON_CHARS_MAX), true),
            (&"x".repeat(bounds::REASON_CHARS_MAX + 1), false),
            ("a\0b", false),
            ("a\nb", false),
            ("\u{1b}[2J", false),
            ("\u{85}", false),
        ] {
            assert_eq!(check(why).is_ok(), taken, "{why:?}");
        }
    }
}
