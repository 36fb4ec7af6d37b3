//! The changelog as evidence (REG-5): each change as written, the parts of it that a verifier sees, and the
//! digest in its seal.
//!
//! A digest covers the text in the store, not the parsed entry: so a change by an older or newer version
//! keeps its digest. Secrets enter the digest as a digest of their own. A verifier thus needs no secret, not
//! even an encrypted one.

use serde::{Deserialize, Serialize};

use super::chain::{Digest, Encoder};
use super::{Change, EntryKey, Kind};
use crate::json::{Fault, Pointer, Reader};
use crate::time::Timestamp;

/// Members of entries that are never shown.
pub const SECRET_MEMBERS: [&str; 4] = ["secret", "secret_hash", "previous_secret", "secrets"];

/// A change as the store keeps it: its entries are texts, whatever version wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedChange {
    /// The version of the registry after the change.
    pub version: i64,
    pub at: Timestamp,
    /// The author.
    pub who: String,
    /// The note of the author.
    pub why: String,
    /// The word for the entry's kind.
    pub kind: String,
    /// The name of the entry within its kind.
    pub name: String,
    /// The entry before the change, as JSON.
    pub before: Option<String>,
    /// The entry after the change, as JSON.
    pub after: Option<String>,
}

impl LoggedChange {
    /// Serializes a change for the store.
    pub fn of(change: &Change) -> serde_json::Result<Self> {
        let text = |entry: &Option<_>| entry.as_ref().map(serde_json::to_string).transpose();
        Ok(Self {
            version: change.version,
            at: change.at,
            who: change.who.clone(),
            why: change.why.clone(),
            kind: change.key.kind.as_str().to_owned(),
            name: change.key.name.clone(),
            before: text(&change.before)?,
            after: text(&change.after)?,
        })
    }

    /// Parses the change; `None` if this version cannot read it.
    pub fn read(&self) -> Option<Change> {
        let entry = |text: &Option<String>| text.as_deref().map(serde_json::from_str).transpose().ok();
        Some(Change {
            version: self.version,
            at: self.at,
            who: self.who.clone(),
            why: self.why.clone(),
            key: EntryKey { kind: Kind::stored(&self.kind)?, name: self.name.clone() },
            before: entry(&self.before)?,
            after: entry(&self.after)?,
        })
    }

    /// The parts of the change that a verifier sees.
    pub fn evidence(&self) -> Evidence {
        Evidence {
            version: self.version,
            at: self.at,
            who: self.who.clone(),
            why: self.why.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            before: self.before.as_deref().map(EntryEvidence::of),
            after: self.after.as_deref().map(EntryEvidence::of),
        }
    }
}

/// A change as a verifier sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evidence {
    /// The version of the registry after the change.
    pub version: i64,
    /// Time of the change, in milliseconds since 1970.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub at: Timestamp,
    /// The author.
    pub who: String,
    /// The note of the author.
    pub why: String,
    /// The word for the entry's kind.
    pub kind: String,
    /// The name of the entry within its kind.
    pub name: String,
    /// The entry before the change; `None` if it was added.
    pub before: Option<EntryEvidence>,
    /// The entry after the change; `None` if it was removed.
    pub after: Option<EntryEvidence>,
}

/// An entry as a verifier sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EntryEvidence {
    /// The canonical JSON of the entry without its secrets. Empty if the stored text is not JSON.
    pub text: String,
    /// The digest of the secrets, or of the whole text if it is not JSON.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub secret_digest: Option<Digest>,
}

impl EntryEvidence {
    /// The evidence of an entry's stored text.
    pub fn of(written: &str) -> Self {
        Self::of_json(written).unwrap_or_else(|_| Self {
            text: String::new(),
            secret_digest: Some(Encoder::new("snavio.unreadable.v1").text(written).digest()),
        })
    }

    fn of_json(written: &str) -> Result<Self, Fault> {
        let secrets = SECRET_MEMBERS.map(|name| format!("/{name}"));
        let secrets = secrets.iter().filter_map(|pointer| Pointer::new(pointer).ok());
        let mut canonical = Vec::with_capacity(written.len());
        let mut reader = Reader::new(written.as_bytes())?;
        reader.canonical_without(&secrets.collect::<Vec<_>>(), &mut canonical)?;
        reader.finish()?;
        let text = String::from_utf8_lossy(&canonical).into_owned();
        Ok(Self { text, secret_digest: secret_digest(written) })
    }
}

/// The digest of the secret members of an entry, if it has any.
fn secret_digest(written: &str) -> Option<Digest> {
    let members: serde_json::Map<_, _> = serde_json::from_str(written).ok()?;
    let mut encoder = Encoder::new("snavio.secret.v1");
    let mut has_secrets = false;
    for (name, value) in SECRET_MEMBERS.iter().filter_map(|name| members.get_key_value(*name)) {
        encoder = encoder.text(name).text(&value.to_string());
        has_secrets = true;
    }
    has_secrets.then(|| encoder.digest())
}

impl Evidence {
    /// The digest that its seal keeps.
    pub fn digest(&self) -> Digest {
        self.digest_as(self.version)
    }

    /// The digest that a seal would keep if the change had another version.
    pub(super) fn digest_as(&self, version: i64) -> Digest {
        let encoder = Encoder::new("snavio.change.v1").number(version).number(self.at.0);
        let texts = [&self.who, &self.why, &self.kind, &self.name];
        let encoder = texts.into_iter().fold(encoder, |encoder, text| encoder.text(text));
        [&self.before, &self.after].into_iter().fold(encoder, encode_entry).digest()
    }
}

fn encode_entry(encoder: Encoder, entry: &Option<EntryEvidence>) -> Encoder {
    let Some(entry) = entry else { return encoder.number(0) };
    let encoder = encoder.number(1).text(&entry.text);
    match &entry.secret_digest {
        Some(digest) => encoder.number(1).bytes(&digest.0),
        None => encoder.number(0),
    }
}
