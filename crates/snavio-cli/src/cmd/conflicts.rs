//! `snavio conflicts`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::Ended;
use crate::connection::AsOperator;
use crate::output::{Output, print_line};

/// List, show, triage and resolve ids that were used for two contents.
///
/// With the operator's token, or a person's whose role is accounting-ops.
///
/// Example: snavio conflicts list --state OPEN
#[derive(Args)]
pub(crate) struct Conflicts {
    #[command(flatten)]
    node: AsOperator,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List them, oldest first.
    ///
    /// Example: snavio conflicts list --tenant acme --state OPEN
    List {
        /// Only those of this tenant's targets.
        #[arg(long)]
        tenant: Option<String>,
        /// Only those in this state.
        #[arg(long, value_parser = [
            "OPEN", "TRIAGED", "RESOLVED_ACCEPT_ORIGINAL", "RESOLVED_ACCEPT_NEW", "RESOLVED_INVALID_PRODUCER",
        ])]
        state: Option<String>,
        /// Go on after this id.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
    /// Show one, with both messages and where they differ.
    ///
    /// Example: snavio conflicts show 268435458
    Show {
        /// Its id.
        id: i64,
    },
    /// Say that you look at it.
    ///
    /// Example: snavio conflicts triage 268435458 --note "asked the shop"
    Triage {
        /// Its id.
        id: i64,
        /// What you found, for the record.
        #[arg(long)]
        note: String,
    },
    /// Resolve it, for good.
    ///
    /// Example: snavio conflicts resolve 268435458 --accept new --compensating-event 7c0f… --note "amount was wrong"
    Resolve {
        /// Its id.
        id: i64,
        /// Which of the two is right.
        #[arg(long)]
        accept: Accept,
        /// Why, for the record.
        #[arg(long)]
        note: String,
        /// The id of the event that makes up for the original, sent before: required with `--accept new`.
        #[arg(long)]
        compensating_event: Option<String>,
    },
}

/// Which content is right.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Accept {
    /// What came first.
    Original,
    /// What came second.
    New,
    /// Neither: the producer is at fault.
    None,
}

impl Conflicts {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api()?;
        let change = async |id: i64, body: Value| {
            api.call(Method::POST, &format!("/v1/conflicts/{id}/state"), Some(&body)).await
        };
        match self.command {
            Command::List { tenant, state, after } => {
                let tenant = tenant.map(|tenant| format!("&tenant={tenant}")).unwrap_or_default();
                let state = state.map(|state| format!("&state={state}")).unwrap_or_default();
                let path = format!("/v1/conflicts?after={after}{tenant}{state}");
                let page = api.call(Method::GET, &path, None).await?;
                let items = page["items"].as_array().cloned().unwrap_or_default();
                let columns =
                    ["conflictId", "conflictState", "eventId", "source", "destination", "count", "flaggedAt"];
                output.rows(&page, &items, &columns);
            }
            Command::Show { id } => {
                let mut whole = api.call(Method::GET, &format!("/v1/conflicts/{id}"), None).await?;
                let differences = whole["differences"].as_array().cloned().unwrap_or_default();
                if output == Output::Json {
                    output.object(&whole);
                    return Ok(());
                }
                for part in ["differences", "original", "conflicting"] {
                    whole[part].take();
                }
                output.object(&whole);
                print_line("where the two differ:");
                output.rows(&whole, &differences, &["pointer", "original", "conflicting"]);
            }
            Command::Triage { id, note } => {
                output.object(&change(id, json!({ "state": "TRIAGED", "note": note })).await?);
            }
            Command::Resolve { id, accept, note, compensating_event } => {
                let state = match accept {
                    Accept::Original => "RESOLVED_ACCEPT_ORIGINAL",
                    Accept::New => "RESOLVED_ACCEPT_NEW",
                    Accept::None => "RESOLVED_INVALID_PRODUCER",
                };
                let mut body = json!({ "state": state, "note": note });
                if let Some(id) = compensating_event {
                    body["compensatingEventId"] = id.into();
                }
                output.object(&change(id, body).await?);
            }
        }
        Ok(())
    }
}
