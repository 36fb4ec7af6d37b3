//! The entries of an object: one JSON document per line, all of one kind, which the manifest names. Writer and reader
//! take the same lines for good.

use std::collections::BTreeSet;

use super::Fault;
use super::manifest::Object;
use crate::adapter::Adapter;
use crate::bounds;
use crate::name::ServiceName;
use crate::registry::{Entry, EntryKey, Kind, PushSecret, Registry, Route, problems_alone};

/// Writes an entry as a line.
pub fn write_entry(entry: &Entry, lines: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    match entry {
        Entry::Tenant(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Service(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Key(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Client(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Route(it) => serde_json::to_writer(&mut *lines, it),
        Entry::EventType(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Grant(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Subscription(it) => serde_json::to_writer(&mut *lines, it),
        Entry::PushSecret(it) => serde_json::to_writer(&mut *lines, it),
        Entry::PersonalToken(it) => serde_json::to_writer(&mut *lines, it),
        Entry::GrantRequest(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Issuer(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Workload(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Ban(it) => serde_json::to_writer(&mut *lines, it),
        Entry::Adapter(it) => serde_json::to_writer(&mut *lines, it),
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

/// The entries of an object whose lines were unpacked. Whether they hold together is [`Scope::problem`]'s to say.
pub fn read_entries(object: &Object, lines: &[u8]) -> Result<Vec<Entry>, Fault> {
    let malformed = |what: String| Err(Fault::malformed(format!("{}: {what}", object.key)));
    if lines.len() as u64 != object.text_bytes {
        return malformed(format!("{} bytes of entries instead of {}", lines.len(), object.text_bytes));
    }
    let mut entries = Vec::new();
    for (number, line) in lines.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let Some(line) = line.strip_suffix(b"\n").filter(|it| it.len() < bounds::SNAPSHOT_ENTRY_BYTES_MAX)
        else {
            return malformed(format!("line {} has no end, or is too long", number + 1));
        };
        match read_entry(object.kind, line) {
            Ok(entry) => entries.push(entry),
            // The cause may quote a secret's hash: the place must do.
            Err(error) => return malformed(format!("line {} at {}", number + 1, error.column())),
        }
    }
    if entries.len() as u64 != object.entries {
        return malformed(format!("{} entries instead of {}", entries.len(), object.entries));
    }
    Ok(entries)
}

/// What an entry must hold together with: the entries before it, without those of tenants that were left out.
pub struct Scope<'a> {
    /// The entries.
    pub registry: &'a Registry,
    /// Whose entries do not count.
    pub left_out: &'a BTreeSet<String>,
}

impl Scope<'_> {
    /// What is wrong with an entry, if anything. The reader asks this of every entry, and so does the writer.
    pub fn problem(&self, entry: &Entry) -> Option<String> {
        let missing = match entry {
            Entry::Tenant(_) | Entry::Issuer(_) => None,
            Entry::Service(it) => self.lacks_tenant(it.name.tenant()),
            Entry::Route(it) => self.lacks(&it.target),
            Entry::EventType(it) => self.lacks(&it.owner),
            // One to another tenant's events needs nothing of that tenant to be there.
            Entry::Subscription(it) => self.lacks(&it.target).or_else(|| self.lacks_type(it)),
            Entry::Grant(it) => self.lacks(&it.target).or_else(|| self.lacks(&it.source)),
            Entry::PushSecret(it) => self.lacks_route(it),
            Entry::Key(it) => self.lacks(&it.service),
            Entry::Client(it) => self.lacks(&it.service),
            Entry::PersonalToken(it) => it.tenant.as_ref().and_then(|it| self.lacks_tenant(it.as_str())),
            Entry::GrantRequest(it) if it.is_abroad() => self.lacks(&it.source),
            Entry::GrantRequest(it) => self.lacks(&it.target).or_else(|| self.lacks(&it.source)),
            Entry::Workload(it) => self.lacks_issuer(&it.issuer).or_else(|| self.lacks(&it.service)),
            Entry::Ban(it) => self.lacks(&it.source),
            Entry::Adapter(it) => self.lacks(&it.service).or_else(|| self.lacks_type_of(it)),
        };
        missing.or_else(|| problems_alone(entry).into_iter().next())
    }

    fn lacks(&self, service: &ServiceName) -> Option<String> {
        let there =
            self.registry.service(service.as_str()).is_some() && !self.left_out.contains(service.tenant());
        (!there).then(|| format!("service {service} is not there"))
    }

    fn lacks_type(&self, subscription: &Route) -> Option<String> {
        let Some(publisher) = &subscription.events_of else {
            return Some("it does not say whose events it is for".to_owned());
        };
        let key = EntryKey::event_type(publisher, &subscription.name);
        let there = subscription.foreign_publisher().is_some() || self.registry.get(&key).is_some();
        (!there).then(|| format!("{key} is not there"))
    }

    /// A suffix may make any type of its events.
    fn lacks_type_of(&self, adapter: &Adapter) -> Option<String> {
        let key = EntryKey::event_type(&adapter.service, &adapter.event_type);
        let there = adapter.event_type_suffix.is_some() || self.registry.get(&key).is_some();
        (!there).then(|| format!("{key} is not there"))
    }

    fn lacks_route(&self, secret: &PushSecret) -> Option<String> {
        let there = self.registry.destination(&secret.destination).is_some()
            && !self.left_out.contains(secret.owner());
        (!there).then(|| format!("{} is not there", secret.route_key()))
    }

    fn lacks_issuer(&self, issuer: &str) -> Option<String> {
        self.registry.issuer(issuer).is_none().then(|| format!("issuer {issuer} is not there"))
    }

    fn lacks_tenant(&self, tenant: &str) -> Option<String> {
        let there = self.registry.tenant(tenant).is_some() && !self.left_out.contains(tenant);
        (!there).then(|| format!("tenant {tenant} is not there"))
    }
}
