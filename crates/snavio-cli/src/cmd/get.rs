//! `snavio get`.

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::Value;

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
    Grants,
    Keys,
    Clients,
    /// The changelog.
    Changes,
    /// The node's own state.
    Status,
}

impl Get {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api()?;
        let (kind, columns): (&str, &[&str]) = match self.what {
            What::Tenants => ("tenant", &["name", "contact", "suspended"]),
            What::Services => ("service", &["name", "description"]),
            What::Routes => ("route", &["target", "name", "queue", "dead_letter_queue", "claim", "profile"]),
            What::Grants => ("grant", &["source", "target", "name"]),
            What::Keys => ("key", &["service", "version"]),
            What::Clients => ("client", &["id", "service"]),
            What::Status => {
                output.object(&api.call(Method::GET, "/v1/status", None).await?);
                return Ok(());
            }
            What::Changes => {
                let page = api.call(Method::GET, "/v1/registry/changes?limit=1000", None).await?;
                let items = page["items"].as_array().cloned().unwrap_or_default();
                output.rows(&page, &items, &["version", "at", "who", "kind", "name", "why"]);
                return Ok(());
            }
        };
        let registry = api.call(Method::GET, "/v1/registry", None).await?;
        let entries = registry["entries"].as_array().cloned().unwrap_or_default();
        let items: Vec<Value> = entries.into_iter().filter(|entry| entry["kind"] == kind).collect();
        output.rows(&Value::Array(items.clone()), &items, columns);
        Ok(())
    }
}
