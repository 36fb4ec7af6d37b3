//! `snavio get`.

use clap::{Args, ValueEnum};
use serde_json::Value;
use snavio_sdk::{Api, ApiError};

use super::pages;
use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::Output;

/// List the entries of one kind in the registry.
#[derive(Args)]
#[command(after_help = "Example: snavio get routes
Example: snavio get grants --output json
Example: snavio get changes")]
pub(crate) struct Get {
    #[command(flatten)]
    node: OperatorConnection,
    /// The kind of entries to list.
    #[arg(value_enum)]
    kind: EntryKind,
}

#[derive(Clone, Copy, ValueEnum)]
enum EntryKind {
    /// The owners of services.
    Tenants,
    /// The sources and targets of messages.
    Services,
    /// The commands that each target accepts, and their queues.
    Routes,
    /// The types of events that services publish.
    EventTypes,
    /// The targets that receive the events of each type.
    Subscriptions,
    /// The adapters that turn the webhooks of providers into events.
    Adapters,
    /// The permissions to send.
    Grants,
    /// The versions of the services' signing keys, without the secrets.
    Keys,
    /// The OAuth clients of the services, without the secrets.
    Clients,
    /// The issuers whose identity tokens workloads may use.
    Issuers,
    /// The service that each workload of an issuer acts as.
    Workloads,
    /// The changelog of the registry.
    Changes,
}

impl Get {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api()?;
        let (kind, columns): (&str, &[&str]) = match self.kind {
            EntryKind::Tenants => ("tenant", &["name", "contact", "suspended"]),
            EntryKind::Services => ("service", &["name", "description"]),
            EntryKind::Routes => {
                ("route", &["target", "name", "queue", "dead_letter_queue", "claim", "profile"])
            }
            EntryKind::EventTypes => ("event_type", &["owner", "name", "version"]),
            EntryKind::Subscriptions => {
                ("subscription", &["target", "events_of", "name", "queue", "dead_letter_queue", "claim"])
            }
            EntryKind::Adapters => ("adapter", &["name", "service", "event_type", "verification"]),
            EntryKind::Grants => ("grant", &["source", "target", "name"]),
            EntryKind::Keys => ("key", &["service", "version"]),
            EntryKind::Clients => ("client", &["id", "service"]),
            EntryKind::Issuers => ("issuer", &["issuer", "audience", "keys"]),
            EntryKind::Workloads => ("workload", &["issuer", "subject", "service"]),
            EntryKind::Changes => {
                let all = pages::fetch_all(&api, "registry/changes", &[], ("since", 0.into())).await?;
                output.print_list(&all, &["version", "at", "who", "kind", "name", "why"]);
                return Ok(());
            }
        };
        let items = fetch_entries(&api, kind).await?;
        output.print_rows(&Value::Array(items.clone()), &items, columns);
        Ok(())
    }
}

/// Reads all entries of a kind.
pub(super) async fn fetch_entries(api: &Api, kind: &str) -> Result<Vec<Value>, ApiError> {
    let mut all = pages::fetch_all(api, "registry", &[("kind", kind)], ("after", "".into())).await?;
    match all["items"].take() {
        Value::Array(entries) => Ok(entries),
        _ => Ok(Vec::new()),
    }
}
