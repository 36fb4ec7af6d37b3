//! `snavio bans`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;
use snavio_model::name::ServiceName;

use super::pages;
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::Output;

/// Shut a source out, and let it in again. A ban acts on every node within seconds.
///
/// Example: snavio bans set acme/billing --reason "floods the ledger" --until 2027-01-01T00:00:00Z
#[derive(Args)]
pub(crate) struct Bans {
    #[command(flatten)]
    node: AsOperator,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List all bans.
    ///
    /// Example: snavio bans list
    List,
    /// Ban a source, or change for how long.
    ///
    /// Example: snavio bans set acme/billing --reason "floods the ledger"
    Set {
        /// The service, as tenant/service.
        source: ServiceName,
        /// For what reason.
        #[arg(long, default_value = "")]
        reason: String,
        /// When it ends, as RFC 3339; without it, when it is lifted.
        #[arg(long)]
        until: Option<String>,
    },
    /// Lift a ban.
    ///
    /// Example: snavio bans lift acme/billing
    Lift {
        /// The service, as tenant/service.
        source: ServiceName,
    },
}

impl Bans {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api()?;
        match self.command {
            Command::List => {
                let all = pages::whole(&api, "bans", &[], ("after", "".into())).await?;
                output.list(&all, &["source", "reason", "until"]);
            }
            Command::Set { source, reason, until } => {
                let body = match until {
                    Some(until) => json!({ "reason": reason, "until": until }),
                    None => json!({ "reason": reason }),
                };
                output.object(&api.call(Method::PUT, &format!("/v1/bans/{source}"), Some(&body)).await?);
            }
            Command::Lift { source } => {
                output.object(&api.call(Method::DELETE, &format!("/v1/bans/{source}"), None).await?);
            }
        }
        Ok(())
    }
}
