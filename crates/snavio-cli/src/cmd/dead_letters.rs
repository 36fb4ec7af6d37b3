//! `snavio dead-letters`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use super::pages;
use crate::CommandResult;
use crate::connection::{AnyConnection, path};
use crate::output::Output;

/// List, show and redrive dead letters: deliveries that could not be processed.
#[derive(Args)]
#[command(after_help = "Example: snavio dead-letters list -c credentials/acme/bot.json
Example: snavio dead-letters show 268435458 --tenant acme
Example: snavio dead-letters redrive 268435458 --tenant acme --why 'the bot is fixed'")]
pub(crate) struct DeadLetters {
    #[command(flatten)]
    node: AnyConnection,
    /// The tenant that owns the dead letters; needed with a platform-wide token.
    #[arg(long, global = true)]
    tenant: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List dead letters, oldest first.
    #[command(after_help = "Example: snavio dead-letters list -c credentials/acme/bot.json
Example: snavio dead-letters list --tenant acme --queue exceptions
Example: snavio dead-letters list --tenant acme --after 268435458")]
    List {
        /// Only dead letters in this dead-letter queue.
        #[arg(long)]
        queue: Option<String>,
        /// Only dead letters after this dead-letter id.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
    /// Show a dead letter with its message.
    #[command(after_help = "Example: snavio dead-letters show 268435458 --tenant acme
Example: snavio dead-letters show 268435458 -c credentials/acme/bot.json
Example: snavio dead-letters show 268435458 --tenant acme --output json")]
    Show {
        /// The id of the dead letter.
        id: i64,
    },
    /// Put dead letters back into their queues, under the same delivery ids.
    #[command(after_help = "\
Example: snavio dead-letters redrive 268435458 -c credentials/acme/bot.json --why 'the bot is fixed'
Example: snavio dead-letters redrive 268435458 268435460 --tenant acme --why 'the bot is fixed'
Example: snavio dead-letters redrive 268435458 --tenant acme --beyond-horizon --why 'sent only once'")]
    Redrive {
        /// The ids of the dead letters.
        #[arg(required = true)]
        ids: Vec<i64>,
        /// A note for the audit log: the reason for the action.
        #[arg(long, default_value = "", hide_default_value = true)]
        why: String,
        /// Also redrive dead letters with an expired claim; requires --why.
        ///
        /// After a claim has expired, the gateway may have accepted and processed its id again. A redrive can
        /// then repeat the effect.
        #[arg(long)]
        beyond_horizon: bool,
    },
}

impl DeadLetters {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api().await?;
        let tenant = self.tenant.as_deref();
        let letter_path = |segments: &[&str]| {
            path(&[&["v1", "dead-letters"], segments].concat(), &[("tenant", tenant.unwrap_or_default())])
        };
        match self.command {
            Command::List { queue, after } => {
                let filters = [("tenant", tenant), ("queue", queue.as_deref())];
                let all = pages::fetch_after(&api, "dead-letters", &filters, after).await?;
                output.print_list(
                    &all,
                    &["id", "reason", "conflict_id", "route", "attempts", "dead_at", "message_id"],
                );
            }
            Command::Show { id } => {
                output.print_object(&api.call(Method::GET, &letter_path(&[&id.to_string()]), None).await?);
            }
            Command::Redrive { ids, why, beyond_horizon } => {
                let body = json!({ "why": why, "beyond_horizon": beyond_horizon });
                for id in &ids {
                    api.call(Method::POST, &letter_path(&[&id.to_string(), "redrive"]), Some(&body)).await?;
                }
                output.print_object(&json!({ "redriven": ids.len() }));
            }
        }
        Ok(())
    }
}
