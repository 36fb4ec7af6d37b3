//! Refusals of filters with unknown names (CLM-11). They say the nearest name that the caller may see, and
//! never the value that came: that may be a secret in the wrong place.

use std::sync::Arc;

use snavio_model::bounds;
use snavio_model::name::ServiceName;
use snavio_model::nearest::{nearest, suggestion};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{EntryKey, Kind, Registry};
use snavio_model::telemetry::TYPES;

use crate::principal::Principal;

/// The refusal of an unknown name; `known` are names that the caller may see.
pub(super) fn unknown<T: AsRef<str>>(what: &str, wrong: &str, known: impl IntoIterator<Item = T>) -> Refusal {
    Refusal::new(Reason::NotFound, format!("there is no such {what}{}", suggestion(wrong, known)))
}

/// The refusal of a word that is none of a few.
pub(super) fn unknown_word(what: &str, wrong: &str, words: &[&str]) -> Refusal {
    let spellings = [wrong.to_ascii_lowercase(), wrong.to_ascii_uppercase()];
    match spellings.iter().find_map(|wrong| nearest(wrong, words.iter().copied())) {
        Some(word) => {
            Refusal::new(Reason::NotFound, format!("there is no such {what}; did you mean {word}?"))
        }
        None => Refusal::new(
            Reason::NotFound,
            format!("there is no such {what}: it is one of {}", words.join(", ")),
        ),
    }
}

/// A kind of registry entry.
pub(super) fn kind(word: &str) -> Result<Kind, Refusal> {
    let words = Kind::ALL.map(Kind::as_str);
    Kind::stored(word).ok_or_else(|| unknown_word("kind of entry", word, &words))
}

/// A type of telemetry record.
pub(super) fn record_type(word: &str) -> Result<(), Refusal> {
    if TYPES.contains(&word) { Ok(()) } else { Err(unknown("type of record", word, TYPES)) }
}

/// The names of the entries of a kind that the caller may see, as many as are compared.
pub(super) fn names(registry: &Registry, principal: &Principal, kind: Kind) -> Vec<String> {
    let (standing, first) = (principal.standing(), EntryKey { kind, name: String::new() });
    let entries = registry.entries_after(Some(&first)).take_while(|entry| entry.key().kind == kind);
    let seen = entries.filter(|entry| standing.sees(entry)).map(|entry| entry.key().name);
    seen.take(bounds::NAMES_COMPARED_MAX).collect()
}

/// The destinations of the tenants that the caller reads.
pub(super) fn destinations(registry: &Registry, principal: &Principal) -> impl Iterator<Item = Arc<str>> {
    let standing = principal.standing();
    let own = registry.routes().filter(move |route| standing.reads(route.route.target.tenant()));
    own.map(|route| Arc::clone(&route.destination))
}

/// The refusal of an unknown service.
pub(super) fn unknown_service(registry: &Registry, principal: &Principal, wrong: &ServiceName) -> Refusal {
    unknown("service", wrong.as_str(), names(registry, principal, Kind::Service))
}
