//! The entries of an object: one JSON document per line, all of the one kind that the manifest names. Writer
//! and reader apply the same rules.

use std::collections::BTreeSet;

use super::Fault;
use super::manifest::Object;
use crate::adapter::Adapter;
use crate::bounds;
use crate::name::ServiceName;
use crate::registry::{Entry, EntryKey, Kind, PushSecret, Registry, Route, problems_alone};

/// Appends an entry as a line.
pub fn write_entry(entry: &Entry, lines: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    match entry {
        Entry::Tenant(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Service(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Key(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Client(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Route(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::EventType(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Grant(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Subscription(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::PushSecret(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::PersonalToken(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::GrantRequest(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Issuer(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Workload(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Ban(entry) => serde_json::to_writer(&mut *lines, entry),
        Entry::Adapter(entry) => serde_json::to_writer(&mut *lines, entry),
    }?;
    lines.push(b'\n');
    Ok(())
}

fn read_entry(kind: Kind, line: &[u8]) -> Result<Entry, serde_json::Error> {
    use serde_json::from_slice;
    Ok(match kind {
        Kind::Tenant => Entry::Tenant(from_slice(line)?),
        Kind::Service => Entry::Service(from_slice(line)?),
        Kind::Key => Entry::Key(from_slice(line)?),
        Kind::Client => Entry::Client(from_slice(line)?),
        Kind::Route => Entry::Route(from_slice(line)?),
        Kind::EventType => Entry::EventType(from_slice(line)?),
        Kind::Grant => Entry::Grant(from_slice(line)?),
        Kind::Subscription => Entry::Subscription(from_slice(line)?),
        Kind::PushSecret => Entry::PushSecret(from_slice(line)?),
        Kind::PersonalToken => Entry::PersonalToken(from_slice(line)?),
        Kind::GrantRequest => Entry::GrantRequest(from_slice(line)?),
        Kind::Issuer => Entry::Issuer(from_slice(line)?),
        Kind::Workload => Entry::Workload(from_slice(line)?),
        Kind::Ban => Entry::Ban(from_slice(line)?),
        Kind::Adapter => Entry::Adapter(from_slice(line)?),
    })
}

/// Reads the entries of an unpacked object. [`Scope::problem`] checks each entry against the earlier ones.
pub fn read_entries(object: &Object, lines: &[u8]) -> Result<Vec<Entry>, Fault> {
    let malformed = |detail: String| Err(Fault::malformed(format!("{}: {detail}", object.key)));
    if lines.len() as u64 != object.text_bytes {
        return malformed(format!("the entries have {} bytes instead of {}", lines.len(), object.text_bytes));
    }
    let mut entries = Vec::new();
    for (number, line) in lines.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let Some(line) =
            line.strip_suffix(b"\n").filter(|line| line.len() < bounds::SNAPSHOT_ENTRY_BYTES_MAX)
        else {
            return malformed(format!(
                "line {} has no line feed, or more than {} bytes",
                number + 1,
                bounds::SNAPSHOT_ENTRY_BYTES_MAX
            ));
        };
        match read_entry(object.kind, line) {
            Ok(entry) => entries.push(entry),
            // The parser's message may quote a secret's hash, so the error states only the position.
            Err(error) => {
                return malformed(format!("line {} is malformed at column {}", number + 1, error.column()));
            }
        }
    }
    if entries.len() as u64 != object.entries {
        return malformed(format!("the object has {} entries instead of {}", entries.len(), object.entries));
    }
    Ok(entries)
}

/// The context of an entry: the entries before it, except those of omitted tenants.
pub struct Scope<'a> {
    pub registry: &'a Registry,
    /// Tenants that the snapshot omits.
    pub left_out: &'a BTreeSet<String>,
}

impl Scope<'_> {
    /// The first problem of an entry, if any. Reader and writer both check every entry.
    pub fn problem(&self, entry: &Entry) -> Option<String> {
        let missing = match entry {
            Entry::Tenant(_) | Entry::Issuer(_) => None,
            Entry::Service(entry) => self.lacks_tenant(entry.name.tenant()),
            Entry::Route(entry) => self.lacks(&entry.target),
            Entry::EventType(entry) => self.lacks(&entry.owner),
            // A subscription to another tenant's events does not need that tenant in the snapshot.
            Entry::Subscription(entry) => self.lacks(&entry.target).or_else(|| self.lacks_type(entry)),
            Entry::Grant(entry) => self.lacks(&entry.target).or_else(|| self.lacks(&entry.source)),
            Entry::PushSecret(entry) => self.lacks_route(entry),
            Entry::Key(entry) => self.lacks(&entry.service),
            Entry::Client(entry) => self.lacks(&entry.service),
            Entry::PersonalToken(token) => {
                token.tenant.as_ref().and_then(|tenant| self.lacks_tenant(tenant.as_str()))
            }
            Entry::GrantRequest(entry) if entry.is_abroad() => self.lacks(&entry.source),
            Entry::GrantRequest(entry) => self.lacks(&entry.target).or_else(|| self.lacks(&entry.source)),
            Entry::Workload(entry) => self.lacks_issuer(&entry.issuer).or_else(|| self.lacks(&entry.service)),
            Entry::Ban(entry) => self.lacks(&entry.source),
            Entry::Adapter(entry) => self.lacks(&entry.service).or_else(|| self.lacks_type_of(entry)),
        };
        missing.or_else(|| problems_alone(entry).into_iter().next())
    }

    fn lacks(&self, service: &ServiceName) -> Option<String> {
        let exists =
            self.registry.service(service.as_str()).is_some() && !self.left_out.contains(service.tenant());
        (!exists).then(|| format!("service {service} does not exist"))
    }

    fn lacks_type(&self, subscription: &Route) -> Option<String> {
        let Some(publisher) = &subscription.events_of else {
            return Some("the subscription does not name a publisher".to_owned());
        };
        let key = EntryKey::event_type(publisher, &subscription.name);
        let exists = subscription.foreign_publisher().is_some() || self.registry.get(&key).is_some();
        (!exists).then(|| format!("{key} does not exist"))
    }

    /// With a suffix an adapter may publish any type, so none is required.
    fn lacks_type_of(&self, adapter: &Adapter) -> Option<String> {
        let key = EntryKey::event_type(&adapter.service, &adapter.event_type);
        let exists = adapter.event_type_suffix.is_some() || self.registry.get(&key).is_some();
        (!exists).then(|| format!("{key} does not exist"))
    }

    fn lacks_route(&self, secret: &PushSecret) -> Option<String> {
        let exists = self.registry.destination(&secret.destination).is_some()
            && !self.left_out.contains(secret.owner());
        (!exists).then(|| format!("{} does not exist", secret.route_key()))
    }

    fn lacks_issuer(&self, issuer: &str) -> Option<String> {
        self.registry.issuer(issuer).is_none().then(|| format!("issuer {issuer} does not exist"))
    }

    fn lacks_tenant(&self, tenant: &str) -> Option<String> {
        let exists = self.registry.tenant(tenant).is_some() && !self.left_out.contains(tenant);
        (!exists).then(|| format!("tenant {tenant} does not exist"))
    }
}
