//! `snavio get`.

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, ApiError};

use crate::Ended;
use crate::connection::{AsOperator, path};
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
                let items = changes(&api).await?;
                let columns = ["version", "at", "who", "kind", "name", "why"];
                output.rows(&json!({ "items": items }), &items, &columns);
                return Ok(());
            }
        };
        let items = entries(&api, kind).await?;
        output.rows(&Value::Array(items.clone()), &items, columns);
        Ok(())
    }
}

/// The whole changelog, page by page.
async fn changes(api: &Api) -> Result<Vec<Value>, ApiError> {
    let mut all = Vec::new();
    let mut since = json!(0);
    loop {
        let path = format!("/v1/registry/changes?limit=1000&since={since}");
        let mut page = api.call(Method::GET, &path, None).await?;
        if let Value::Array(items) = page["items"].take() {
            all.extend(items);
        }
        // A page may hold nothing for this caller and still not be the last one.
        let next = page["next"].take();
        if next == since {
            return Ok(all);
        }
        since = next;
    }
}

/// All entries of a kind, page by page.
pub(super) async fn entries(api: &Api, kind: &str) -> Result<Vec<Value>, ApiError> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let path = path(&["v1", "registry"], &[("kind", kind), ("limit", "1000"), ("after", &after)]);
        let mut page = api.call(Method::GET, &path, None).await?;
        if let Value::Array(entries) = page["entries"].take() {
            all.extend(entries);
        }
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return Ok(all),
        }
    }
}
