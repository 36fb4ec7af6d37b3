//! The registration of an adapter.

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
    /// Unique within the service's tenant.
    pub name: AdapterName,
    /// The service that publishes the events.
    pub service: ServiceName,
    /// The provider's name in derived ids: `telegram`, `gcal`, `cli`.
    pub source: String,
    /// The type of the events, or its first part if `event_type_suffix` is set.
    pub event_type: CommandName,
    /// The place of the second part of the type, joined by a point: `github.push` if the header
    /// `X-GitHub-Event` is `push`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type_suffix: Option<Origin>,
    /// The places of the external id's parts. All are required; colons join them.
    pub external_id: Vec<Origin>,
    /// The source of the event's id.
    #[serde(default)]
    pub id: IdRule,
    /// Goes before the external id if that is the event's id. Ids belong to the tenant: two adapters of one
    /// tenant that receive the same events of a provider need different prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_prefix: Option<String>,
    /// The content of the event's data.
    #[serde(default)]
    pub data: DataRule,
    /// More members by name. They form the data if `data` is `members`, otherwise the metadata. The gateway
    /// omits a member that the request lacks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<String, Origin>,
    /// Members of the body that differ when the provider sends a webhook again; the gateway omits them from
    /// the data. Only if the external id is the event's id: a derived id covers the whole body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<Pointer>,
    /// The place of the event's time: RFC 3339, or whole seconds since 1970. Without a readable value the
    /// event has the time of receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Origin>,
    /// The check that the provider sent a request.
    pub verification: Verification,
    /// The provider's secrets, encrypted. The newest is first; older ones stay while they are being replaced.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub secrets: Vec<Sealed>,
}

/// The advice for an adapter, if its provider does not sign whole events and its service requires signed
/// events.
pub const UNSIGNED_ADVICE: &str =
    "take the value from the signed body, or register the adapter for a service without signed_events";

/// The values of [`Adapter::evidence`]: the provider signed the whole event, only the body, or nothing.
pub(crate) const EVIDENCE: [&str; 3] = ["adapter", "adapter-body", "adapter-secret"];

/// The place of a value in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Origin {
    /// A JSON pointer into the body.
    Pointer(Pointer),
    /// The name of a header, in any case.
    Header(String),
}

/// The source of an event's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum IdRule {
    /// Derived from source, external id and data: a changed webhook is another event.
    #[default]
    Derived,
    /// The external id itself: a changed webhook with the same id is a conflict.
    External,
}

/// The content of an event's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DataRule {
    /// The whole body, without the members in `left_out`.
    #[default]
    Body,
    /// An object of the configured members, for webhooks with all content in headers.
    Members,
}

impl Adapter {
    /// The first invalid setting and its rule, if any.
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
            return Some("data is members, but members is empty: name at least one".to_owned());
        }
        if !self.left_out.is_empty() && (self.id != IdRule::External || self.data != DataRule::Body) {
            let reason = "a derived id covers the whole body";
            return Some(format!("left_out needs id external and data body, because {reason}"));
        }
        if let Some(wrong) = self.prefix_problem() {
            return Some(wrong.to_owned());
        }
        self.secrets_problem().or_else(|| self.bounds_problem()).or_else(|| self.verification.problem())
    }

    /// As [`Adapter::problem`], for the secrets alone.
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
            .then_some("id_prefix needs id external: a derived id already covers the source")
    }

    /// All places in a request that the adapter reads.
    pub(super) fn origins(&self) -> impl Iterator<Item = &Origin> {
        let all = self.external_id.iter().chain(self.members.values());
        all.chain(&self.event_type_suffix).chain(&self.timestamp)
    }

    /// Whether the adapter may publish events of this type.
    pub fn makes(&self, event_type: &CommandName) -> bool {
        let own = self.event_type.as_str();
        match event_type.as_str().strip_prefix(own) {
            Some(rest) if self.event_type_suffix.is_some() => rest.starts_with('.'),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }

    /// The first part of an event's id, type and data that the provider does not sign, if any. Anyone who has
    /// seen one request could forge another event from it. The verification of such a provider is not a
    /// signature of the service (MSG-4).
    pub fn unsigned(&self) -> Option<String> {
        if let Verification::SharedSecret { .. } = self.verification {
            return Some("its provider sends a secret and signs nothing".to_owned());
        }
        let members = self.members.values().filter(|_| self.data == DataRule::Members);
        let origins = (self.external_id.iter().map(|origin| ("external_id", origin)))
            .chain(self.event_type_suffix.iter().map(|origin| ("event_type_suffix", origin)))
            .chain(members.map(|origin| ("data", origin)));
        let mut unsigned = origins.filter(|(_, origin)| !self.verification.covers(origin));
        unsigned.next().map(|(part, origin)| {
            format!("{part} comes from {origin}, which its provider's signature does not cover")
        })
    }

    /// The first word of the evidence that the store keeps with a message: it says whether the provider signs
    /// the whole event, only the body, or nothing.
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
                "members: {name:?} is not a valid member name (1 to 64 bytes, not cloudevents)"
            ));
        }
        if let Some(problem) = self.left_out.iter().find_map(pointer_problem) {
            return Some(problem);
        }
        self.origins().find_map(|origin| match origin {
            Origin::Pointer(pointer) => pointer_problem(pointer),
            Origin::Header(name) => header_problem(name),
        })
    }
}

fn pointer_problem(pointer: &Pointer) -> Option<String> {
    let is_long = pointer.to_string().len() > bounds::POINTER_BYTES_MAX;
    is_long.then(|| format!("a pointer has at most {} bytes", bounds::POINTER_BYTES_MAX))
}

/// The rule that the name of a header breaks, if any.
pub(super) fn header_problem(name: &str) -> Option<String> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    (!fits).then(|| format!("{name:?} is not a valid header name: 1 to 64 of A-Z a-z 0-9 - _"))
}
