//! Failures of filters that name what is not there.

use snavio_server::nearest;

use super::Failure;

/// The failure of an unknown name, with the known one that is nearest.
pub(super) fn unknown<'a>(what: &str, wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Failure {
    let hint = nearest(wrong, known).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    Failure::new(format!("there is no {what} {wrong}{hint}"))
}
