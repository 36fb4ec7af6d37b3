//! `snavio holds`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use super::pages;
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::Output;

/// Set, list and lift legal holds: what is under one is neither deleted nor erased.
///
/// With the operator's token, or a person's whose role is accounting-ops.
///
/// Example: snavio holds list
#[derive(Args)]
pub(crate) struct Holds {
    #[command(flatten)]
    node: AsOperator,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hold one id, one destination, or everything of a tenant.
    ///
    /// Example: snavio holds set --tenant acme --event 7c0f… --why "lawsuit 2026/117"
    Set {
        /// Whose.
        #[arg(long)]
        tenant: String,
        /// Only this id: what the tenant sent under it, and what its destinations were sent under it.
        #[arg(long, conflicts_with = "destination")]
        event: Option<String>,
        /// Only this destination, for example acme/ledger:post.
        #[arg(long)]
        destination: Option<String>,
        /// Why, for the record.
        #[arg(long)]
        why: String,
    },
    /// List them, oldest first.
    ///
    /// Example: snavio holds list --tenant acme --lifted
    List {
        /// Only those on what is this tenant's.
        #[arg(long)]
        tenant: Option<String>,
        /// Those that were lifted too.
        #[arg(long)]
        lifted: bool,
        /// Go on after this id.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
    /// Lift one.
    ///
    /// Example: snavio holds lift 268435458 --why "the lawsuit is over"
    Lift {
        /// Its id.
        id: i64,
        /// Why, for the record.
        #[arg(long)]
        why: String,
    },
}

impl Holds {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api()?;
        match self.command {
            Command::Set { tenant, event, destination, why } => {
                let mut body = json!({ "tenant": tenant, "why": why });
                if let Some(event) = event {
                    body["eventId"] = event.into();
                }
                if let Some(destination) = destination {
                    body["destination"] = destination.into();
                }
                output.object(&api.call(Method::POST, "/v1/holds", Some(&body)).await?);
            }
            Command::List { tenant, lifted, after } => {
                let filters = [("tenant", tenant.as_deref()), ("lifted", lifted.then_some("true"))];
                let all = pages::after(&api, "holds", &filters, after).await?;
                let columns = ["holdId", "tenant", "eventId", "destination", "who", "why", "at", "liftedAt"];
                output.list(&all, &columns);
            }
            Command::Lift { id, why } => {
                let body = json!({ "why": why });
                output.object(&api.call(Method::POST, &format!("/v1/holds/{id}/lift"), Some(&body)).await?);
            }
        }
        Ok(())
    }
}
