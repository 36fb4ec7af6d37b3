//! `snavio dead-letters`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use super::pages;
use crate::Ended;
use crate::connection::{AsAnybody, path};
use crate::output::Output;

/// List, show and redrive deliveries that could not be processed.
///
/// As a service with its credentials, or with the operator's or a person's token.
///
/// Example: snavio dead-letters list -c credentials/acme/discord-bot.json
#[derive(Args)]
pub(crate) struct DeadLetters {
    #[command(flatten)]
    node: AsAnybody,
    /// Whose they are, when you are there for all tenants.
    #[arg(long, global = true)]
    tenant: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List them, oldest first.
    ///
    /// Example: snavio dead-letters list --tenant acme --queue exceptions
    List {
        /// Only those of this dead-letter queue.
        #[arg(long)]
        queue: Option<String>,
        /// Go on after this id.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
    /// Show one, with its message.
    ///
    /// Example: snavio dead-letters show -c credentials/acme/discord-bot.json 268435458
    Show {
        /// Its id.
        id: i64,
    },
    /// Put some back into the queue they came from, under their old delivery ids.
    ///
    /// Example: snavio dead-letters redrive -c credentials/acme/discord-bot.json 268435458 --why "bot is mended"
    Redrive {
        /// Their ids.
        #[arg(required = true)]
        ids: Vec<i64>,
        /// Why, for the record.
        #[arg(long, default_value = "")]
        why: String,
        /// Also those whose claim is over, and whose id may have been taken up again since; needs a reason.
        #[arg(long)]
        beyond_horizon: bool,
    },
}

impl DeadLetters {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api().await?;
        let tenant = self.tenant.as_deref();
        let one = |segments: &[&str]| {
            path(&[&["v1", "dead-letters"], segments].concat(), &[("tenant", tenant.unwrap_or_default())])
        };
        match self.command {
            Command::List { queue, after } => {
                let filters = [("tenant", tenant), ("queue", queue.as_deref())];
                let all = pages::after(&api, "dead-letters", &filters, after).await?;
                output.list(
                    &all,
                    &["id", "reason", "conflict_id", "route", "attempts", "dead_at", "message_id"],
                );
            }
            Command::Show { id } => {
                output.object(&api.call(Method::GET, &one(&[&id.to_string()]), None).await?);
            }
            Command::Redrive { ids, why, beyond_horizon } => {
                let body = json!({ "why": why, "beyond_horizon": beyond_horizon });
                for id in &ids {
                    api.call(Method::POST, &one(&[&id.to_string(), "redrive"]), Some(&body)).await?;
                }
                output.object(&json!({ "redriven": ids.len() }));
            }
        }
        Ok(())
    }
}
