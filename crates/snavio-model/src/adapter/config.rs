//! What an adapter is told to do, as it is registered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::id::check_source;
use super::verification::Verification;
use crate::bounds;
use crate::cloudevents::kept;
use crate::json::Pointer;
use crate::name::{AdapterName, CommandName, ServiceName};
use crate::registry::Sealed;

/// Turns the webhooks of one provider into events of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Adapter {
    /// Its name within the service's tenant.
    pub name: AdapterName,
    /// The service it speaks for.
    pub service: ServiceName,
    /// Who sends, as ids that are made from content name it: `telegram`, `gcal`, `cli`.
    pub source: String,
    /// The type of its events.
    pub event_type: CommandName,
    /// What the type goes on with, behind a point: `github.push`, where the header `X-GitHub-Event` says `push`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type_suffix: Option<Origin>,
    /// Where the external id is: all parts are needed, and joined by colons.
    pub external_id: Vec<Origin>,
    /// What the id of the event is.
    #[serde(default)]
    pub id: IdRule,
    /// What is put before the external id where that is the id. Ids are those of a tenant: two adapters of one tenant that see
    /// the same events of a provider need one each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_prefix: Option<String>,
    /// What the data of the event is.
    #[serde(default)]
    pub data: DataRule,
    /// Further members by their names, of the data where it is made of them, else of the metadata. One that a request
    /// does not have is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<String, Origin>,
    /// Members of the body that differ from one sending to the next, and are left out of the data. Only where the
    /// external id is the id: one that is made from content is made from all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<Pointer>,
    /// When it happened: RFC 3339, or whole seconds since 1970. It is the time of receipt where neither is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Origin>,
    /// How the caller is known.
    pub verification: Verification,
    /// What it is known by, encrypted: the newest first, older ones while they are replaced.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secrets: Vec<Sealed>,
}

/// What to do about an adapter whose provider does not sign all of an event, where that must be.
pub const UNSIGNED_ADVICE: &str =
    "take it from the body that is signed, or let the adapter speak for a service without signed_events";

/// The words of [`Adapter::evidence`].
pub(crate) const EVIDENCE: [&str; 3] = ["adapter", "adapter-body", "adapter-secret"];

/// Where a value of a request is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Origin {
    /// In the body.
    Pointer(Pointer),
    /// In a header, its name in any case.
    Header(String),
}

/// What the id of an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum IdRule {
    /// Made from source, external id and data: a changed webhook is another event.
    #[default]
    Derived,
    /// The external id: a changed webhook under one id is a conflict.
    External,
}

/// What the data of an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DataRule {
    /// The body.
    #[default]
    Body,
    /// An object of the members: for webhooks that say everything in headers.
    Members,
}

impl Adapter {
    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        let parts = self.external_id.len();
        if let Err(invalid) = check_source(&self.source) {
            return Some(format!("source: {invalid}"));
        }
        if !(1..=bounds::EXTERNAL_ID_PARTS_MAX).contains(&parts) {
            return Some(format!(
                "external_id has {parts} parts, not 1 to {}",
                bounds::EXTERNAL_ID_PARTS_MAX
            ));
        }
        if self.data == DataRule::Members && self.members.is_empty() {
            return Some("data is made of members, and there are none".to_owned());
        }
        if !self.left_out.is_empty() && (self.id != IdRule::External || self.data != DataRule::Body) {
            let why = "an id that is made from content is made from all of it";
            return Some(format!("left_out is for the id external and the data body: {why}"));
        }
        if let Some(wrong) = self.prefix_problem() {
            return Some(wrong.to_owned());
        }
        self.secrets_problem().or_else(|| self.bounds_problem()).or_else(|| self.verification.problem())
    }

    /// What is wrong with its secrets alone, if anything.
    pub(crate) fn secrets_problem(&self) -> Option<String> {
        let fits = (1..=bounds::ADAPTER_SECRETS_MAX).contains(&self.secrets.len());
        (!fits).then(|| format!("an adapter has 1 to {} secrets", bounds::ADAPTER_SECRETS_MAX))
    }

    fn prefix_problem(&self) -> Option<&'static str> {
        let prefix = self.id_prefix.as_deref()?;
        let fits = (1..=bounds::ID_PREFIX_CHARS_MAX).contains(&prefix.len())
            && prefix.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
        if !fits {
            return Some("id_prefix must be 1 to 32 printable ASCII characters without spaces");
        }
        (self.id != IdRule::External)
            .then_some("id_prefix is for the id external: an id from content is begun by source")
    }

    /// Whatever it looks up in a request.
    pub(super) fn origins(&self) -> impl Iterator<Item = &Origin> {
        let all = self.external_id.iter().chain(self.members.values());
        all.chain(&self.event_type_suffix).chain(&self.timestamp)
    }

    /// Whether its events may be of a type of its service.
    pub fn makes(&self, event_type: &CommandName) -> bool {
        let own = self.event_type.as_str();
        match event_type.as_str().strip_prefix(own) {
            Some(rest) if self.event_type_suffix.is_some() => rest.starts_with('.'),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }

    /// What of an event's id, type and data its provider has not signed, if anything: whoever has seen one request could
    /// make another event of it. Such a provider's word is no signature of the service (MSG-4).
    pub fn unsigned(&self) -> Option<String> {
        if let Verification::SharedSecret { .. } = self.verification {
            return Some("its provider shows a secret, and signs nothing".to_owned());
        }
        let members = self.members.values().filter(|_| self.data == DataRule::Members);
        let found = (self.external_id.iter().map(|it| ("external_id", it)))
            .chain(self.event_type_suffix.iter().map(|it| ("event_type_suffix", it)))
            .chain(members.map(|it| ("data", it)));
        let mut unsigned = found.filter(|(_, origin)| !self.verification.covers(origin));
        unsigned.next().map(|(what, origin)| {
            format!("{what} comes from {origin}, which its provider's signature does not cover")
        })
    }

    /// What begins the evidence that is kept with a message, by what its provider has signed: all that the event is, the
    /// body only, or nothing.
    pub fn evidence(&self) -> &'static str {
        match (&self.verification, self.unsigned()) {
            (_, None) => EVIDENCE[0],
            (Verification::SharedSecret { .. }, Some(_)) => EVIDENCE[2],
            (_, Some(_)) => EVIDENCE[1],
        }
    }

    fn bounds_problem(&self) -> Option<String> {
        if self.members.len().max(self.left_out.len()) > bounds::ADAPTER_MEMBERS_MAX {
            return Some(format!("members and left_out have at most {} each", bounds::ADAPTER_MEMBERS_MAX));
        }
        let is_unfit = |name: &&String| name.is_empty() || name.len() > 64 || *name == kept::MEMBER;
        if let Some(name) = self.members.keys().find(is_unfit) {
            return Some(format!(
                "members: {name:?} is no name for a member (1 to 64 bytes, not cloudevents)"
            ));
        }
        let is_long = |pointer: &Pointer| pointer.to_string().len() > bounds::POINTER_BYTES_MAX;
        let long = || format!("a pointer has at most {} bytes", bounds::POINTER_BYTES_MAX);
        if self.left_out.iter().any(is_long) {
            return Some(long());
        }
        self.origins().find_map(|origin| match origin {
            Origin::Pointer(pointer) => is_long(pointer).then(long),
            Origin::Header(name) => header_problem(name),
        })
    }
}

/// What is wrong with the name of a header, if anything.
pub(super) fn header_problem(name: &str) -> Option<String> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    (!fits).then(|| format!("{name:?} is no name of a header: 1 to 64 of A-Z a-z 0-9 - _"))
}
