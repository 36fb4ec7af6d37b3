//! `snavio get`.

use clap::{Args, ValueEnum};
use serde_json::Value;
use snavio_sdk::{Api, ApiError};

use super::pages;
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::Output;

/// Show what is registered.
///
/// Example: snavio get routes
#[derive(Args)]
pub(crate) struct Get {
    #[command(flatten)]
    node: AsOperator,
    /// What to show.
    #[arg(value_enum)]
    what: What,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Tenants,
    Services,
    Routes,
    /// What services publish.
    EventTypes,
    /// Who gets whose events.
    Subscriptions,
    /// What makes events of others' webhooks.
    Adapters,
    Grants,
    Keys,
    Clients,
    /// Trusted issuers of workload identities.
    Issuers,
    /// Which services an issuer's workloads are.
    Workloads,
    /// The changelog.
    Changes,
}

impl Get {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api()?;
        let (kind, columns): (&str, &[&str]) = match self.what {
            What::Tenants => ("tenant", &["name", "contact", "suspended"]),
            What::Services => ("service", &["name", "description"]),
            What::Routes => ("route", &["target", "name", "queue", "dead_letter_queue", "claim", "profile"]),
            What::EventTypes => ("event_type", &["owner", "name", "version"]),
            What::Subscriptions => {
                ("subscription", &["target", "events_of", "name", "queue", "dead_letter_queue", "claim"])
            }
            What::Adapters => ("adapter", &["name", "service", "event_type", "verification"]),
            What::Grants => ("grant", &["source", "target", "name"]),
            What::Keys => ("key", &["service", "version"]),
            What::Clients => ("client", &["id", "service"]),
            What::Issuers => ("issuer", &["issuer", "audience", "keys"]),
            What::Workloads => ("workload", &["issuer", "subject", "service"]),
            What::Changes => {
                let all = pages::whole(&api, "registry/changes", &[], ("since", 0.into())).await?;
                output.list(&all, &["version", "at", "who", "kind", "name", "why"]);
                return Ok(());
            }
        };
        let items = entries(&api, kind).await?;
        output.rows(&Value::Array(items.clone()), &items, columns);
        Ok(())
    }
}

/// All entries of a kind.
pub(super) async fn entries(api: &Api, kind: &str) -> Result<Vec<Value>, ApiError> {
    let mut all = pages::whole(api, "registry", &[("kind", kind)], ("after", "".into())).await?;
    match all["items"].take() {
        Value::Array(entries) => Ok(entries),
        _ => Ok(Vec::new()),
    }
}
