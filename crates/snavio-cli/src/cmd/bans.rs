//! `snavio bans`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;
use snavio_model::name::ServiceName;

use super::pages;
use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::Output;

/// Ban a source, lift a ban, and list the bans.
///
/// The gateway refuses all messages of a banned source. A ban takes effect on every node within seconds.
#[derive(Args)]
#[command(after_help = "Example: snavio bans set acme/billing --reason 'floods the ledger'
Example: snavio bans list
Example: snavio bans lift acme/billing")]
pub(crate) struct Bans {
    #[command(flatten)]
    node: OperatorConnection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List all bans.
    #[command(after_help = "Example: snavio bans list
Example: snavio bans list --output json
Example: snavio bans list --url https://snavio.example.com")]
    List,
    /// Ban a source, or change a ban.
    #[command(after_help = "Example: snavio bans set acme/billing
Example: snavio bans set acme/billing --reason 'floods the ledger'
Example: snavio bans set acme/billing --until 2027-01-01T00:00:00Z")]
    Set {
        /// The service: tenant/service.
        source: ServiceName,
        /// The reason for the ban.
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        /// The time at which the ban ends, in RFC 3339; without it the ban lasts until an operator lifts it.
        #[arg(long)]
        until: Option<String>,
    },
    /// Lift a ban.
    #[command(after_help = "Example: snavio bans lift acme/billing
Example: snavio bans lift acme/billing --output json
Example: snavio bans lift acme/billing --url https://snavio.example.com")]
    Lift {
        /// The service: tenant/service.
        source: ServiceName,
    },
}

impl Bans {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api()?;
        match self.command {
            Command::List => {
                let all = pages::fetch_all(&api, "bans", &[], ("after", "".into())).await?;
                output.print_list(&all, &["source", "reason", "until"]);
            }
            Command::Set { source, reason, until } => {
                let body = match until {
                    Some(until) => json!({ "reason": reason, "until": until }),
                    None => json!({ "reason": reason }),
                };
                output
                    .print_object(&api.call(Method::PUT, &format!("/v1/bans/{source}"), Some(&body)).await?);
            }
            Command::Lift { source } => {
                output.print_object(&api.call(Method::DELETE, &format!("/v1/bans/{source}"), None).await?);
            }
        }
        Ok(())
    }
}
