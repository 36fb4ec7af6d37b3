//! `snavio holds`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use super::pages;
use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::Output;

/// Set, list and lift legal holds, which prevent deletion and erasure of records.
///
/// This needs the operator's token or the token of a person with the role accounting-ops.
#[derive(Args)]
#[command(
    after_help = "Example: snavio holds set --tenant acme --event invoice-4711 --why 'lawsuit 2026/117'
Example: snavio holds list --tenant acme
Example: snavio holds lift 268435458 --why 'the lawsuit has ended'"
)]
pub(crate) struct Holds {
    #[command(flatten)]
    node: OperatorConnection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set a legal hold on one id, one destination or all records of a tenant.
    #[command(after_help = "\
Example: snavio holds set --tenant acme --event invoice-4711 --why 'lawsuit 2026/117'
Example: snavio holds set --tenant acme --destination acme/ledger:post --why 'tax audit 2026'
Example: snavio holds set --tenant acme --why 'lawsuit 2026/117'")]
    Set {
        /// The tenant whose records to hold.
        #[arg(long)]
        tenant: String,
        /// Only the records of this message id: messages that the tenant sent, and messages to its
        /// destinations.
        #[arg(long, conflicts_with = "destination")]
        event: Option<String>,
        /// Only the records of this destination, for example acme/ledger:post.
        #[arg(long)]
        destination: Option<String>,
        /// A note for the audit log: the reason for the hold.
        #[arg(long)]
        why: String,
    },
    /// List the legal holds, oldest first.
    #[command(after_help = "Example: snavio holds list
Example: snavio holds list --tenant acme
Example: snavio holds list --tenant acme --lifted")]
    List {
        /// Only holds on records of this tenant.
        #[arg(long)]
        tenant: Option<String>,
        /// Also list lifted holds.
        #[arg(long)]
        lifted: bool,
        /// Only holds after this hold id.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
    /// Lift a legal hold.
    #[command(after_help = "Example: snavio holds lift 268435458 --why 'the lawsuit has ended'
Example: snavio holds lift 268435458 --why 'the tax audit has ended' --output json
Example: snavio holds lift 268435458 --why 'set by mistake'")]
    Lift {
        /// The id of the hold.
        id: i64,
        /// A note for the audit log: the reason for the action.
        #[arg(long)]
        why: String,
    },
}

impl Holds {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
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
                output.print_object(&api.call(Method::POST, "/v1/holds", Some(&body)).await?);
            }
            Command::List { tenant, lifted, after } => {
                let filters = [("tenant", tenant.as_deref()), ("lifted", lifted.then_some("true"))];
                let all = pages::fetch_after(&api, "holds", &filters, after).await?;
                let columns = ["holdId", "tenant", "eventId", "destination", "who", "why", "at", "liftedAt"];
                output.print_list(&all, &columns);
            }
            Command::Lift { id, why } => {
                let body = json!({ "why": why });
                output.print_object(
                    &api.call(Method::POST, &format!("/v1/holds/{id}/lift"), Some(&body)).await?,
                );
            }
        }
        Ok(())
    }
}
