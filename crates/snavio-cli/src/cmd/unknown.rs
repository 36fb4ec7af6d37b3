//! The failure of a filter with an unknown name.

use snavio_model::nearest::suggestion;

use super::Failure;

/// Suggests the known name that is nearest to the unknown one.
pub(super) fn unknown_name<'a>(
    kind: &str,
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Failure {
    Failure::new(format!("there is no {kind} {unknown}{}", suggestion(unknown, known)))
}
