//! The changelog as evidence (REG-5): each change as it is written, what of it is shown to whoever verifies, and the
//! digest that its seal keeps.
//!
//! A digest is of the text that a store keeps, not of what this version reads in it: a change that an older or newer
//! version wrote has the digest it was sealed with. Secrets are in it by a digest of their own, so that the log can
//! be verified by somebody who sees none of them, not even encrypted.

use serde::{Deserialize, Serialize};

use super::chain::{Digest, Encoder};
use super::{Change, EntryKey, Kind};
use crate::json::{Fault, Pointer, Reader};
use crate::time::Timestamp;

/// Members of entries that are never shown.
pub const SECRET_MEMBERS: [&str; 4] = ["secret", "secret_hash", "previous_secret", "secrets"];

/// A change as the changelog keeps it: its entries are text, whatever version wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedChange {
    /// The registry's version once it was made.
    pub version: i64,
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub who: String,
    /// For what reason.
    pub why: String,
    /// The word for the entry's kind.
    pub kind: String,
    /// The entry's name.
    pub name: String,
    /// What it was, as JSON.
    pub before: Option<String>,
    /// What it became, as JSON.
    pub after: Option<String>,
}

impl LoggedChange {
    /// A change, to be written.
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

    /// What it says, if this version can read it.
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

    /// What of it is shown to whoever verifies.
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

/// A change as it is verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evidence {
    /// The registry's version once it was made.
    pub version: i64,
    /// When, in milliseconds since 1970.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub at: Timestamp,
    /// By whom.
    pub who: String,
    /// For what reason.
    pub why: String,
    /// The word for the entry's kind.
    pub kind: String,
    /// The entry's name.
    pub name: String,
    /// What it was; nothing if it was added.
    pub before: Option<EntryEvidence>,
    /// What it became; nothing if it was removed.
    pub after: Option<EntryEvidence>,
}

/// An entry as it is verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EntryEvidence {
    /// Its JSON in canonical form, without what is secret. Empty if what is written is no JSON.
    pub text: String,
    /// The digest of what is secret in it, or of all of it if it is no JSON.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub secret_digest: Option<Digest>,
}

impl EntryEvidence {
    /// Of an entry as it is written.
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
    let mut any = false;
    for (name, value) in SECRET_MEMBERS.iter().filter_map(|name| members.get_key_value(*name)) {
        encoder = encoder.text(name).text(&value.to_string());
        any = true;
    }
    any.then(|| encoder.digest())
}

impl Evidence {
    /// What its seal keeps of it.
    pub fn digest(&self) -> Digest {
        self.digest_as(self.version)
    }

    /// What a seal would keep of it under another version.
    pub(super) fn digest_as(&self, version: i64) -> Digest {
        let encoder = Encoder::new("snavio.change.v1").number(version).number(self.at.0);
        let encoder =
            [&self.who, &self.why, &self.kind, &self.name].into_iter().fold(encoder, |to, it| to.text(it));
        [&self.before, &self.after].into_iter().fold(encoder, entry).digest()
    }
}

fn entry(encoder: Encoder, entry: &Option<EntryEvidence>) -> Encoder {
    let Some(entry) = entry else { return encoder.number(0) };
    let encoder = encoder.number(1).text(&entry.text);
    match &entry.secret_digest {
        Some(digest) => encoder.number(1).bytes(&digest.0),
        None => encoder.number(0),
    }
}
