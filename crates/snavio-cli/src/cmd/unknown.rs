//! Failures of filters with unknown names.

use snavio_model::nearest::suggestion;

use super::Failure;

/// The failure of an unknown name, with the known one that is nearest.
pub(super) fn unknown<'a>(what: &str, wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Failure {
    Failure::new(format!("there is no {what} {wrong}{}", suggestion(wrong, known)))
}
