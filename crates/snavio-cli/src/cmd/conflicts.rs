//! `snavio conflicts`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use snavio_sdk::{Api, ApiError};

use super::pages;
use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::{Output, indent_json, print_line, print_lines};

/// List, show, triage and resolve conflicts: one message id with two contents.
///
/// This needs the operator's token or the token of a person with the role accounting-ops.
#[derive(Args)]
#[command(after_help = "Example: snavio conflicts list --state OPEN
Example: snavio conflicts show 268435458
Example: snavio conflicts resolve 268435458 --accept original --note 'the retry had a wrong amount'")]
pub(crate) struct Conflicts {
    #[command(flatten)]
    node: OperatorConnection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the conflicts, oldest first.
    #[command(after_help = "Example: snavio conflicts list
Example: snavio conflicts list --tenant acme --state OPEN
Example: snavio conflicts list --after 268435458 --output json")]
    List {
        /// Only conflicts at targets of this tenant.
        #[arg(long)]
        tenant: Option<String>,
        /// Only conflicts in this state: OPEN, TRIAGED, RESOLVED_ACCEPT_ORIGINAL, RESOLVED_ACCEPT_NEW or
        /// RESOLVED_INVALID_PRODUCER.
        #[arg(long)]
        state: Option<String>,
        /// Only conflicts after this conflict id.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
    /// Show a conflict with both messages and their differences.
    #[command(after_help = "Example: snavio conflicts show 268435458
Example: snavio conflicts show 268435458 --output json
Example: snavio conflicts show 268435458 --url https://snavio.example.com")]
    Show {
        /// The id of the conflict.
        id: i64,
    },
    /// Mark a conflict as under examination.
    #[command(after_help = "Example: snavio conflicts triage 268435458 --note 'asked the shop'
Example: snavio conflicts triage 268435458 --note 'the amount differs' --output json
Example: snavio conflicts triage 268435458 --note 'ticket 4711'")]
    Triage {
        /// The id of the conflict.
        id: i64,
        /// A note for the audit log: the findings.
        #[arg(long)]
        note: String,
    },
    /// Resolve a conflict, for good.
    #[command(after_help = "\
Example: snavio conflicts resolve 268435458 --accept original --note 'the retry had a wrong amount'
Example: snavio conflicts resolve 268435458 --accept new --compensating-event fix-7 --note 'typo'
Example: snavio conflicts resolve 268435458 --accept none --note 'the shop reused an id'")]
    Resolve {
        /// The id of the conflict.
        id: i64,
        /// The content that is right.
        #[arg(long)]
        accept: AcceptedContent,
        /// A note for the audit log: the reason for the decision.
        #[arg(long)]
        note: String,
        /// The id of the event that reverses the original, sent before; required with `--accept new`.
        #[arg(long)]
        compensating_event: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum AcceptedContent {
    /// The content that came first.
    Original,
    /// The content that came second.
    New,
    /// Neither: the producer is at fault.
    None,
}

impl Conflicts {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api()?;
        match self.command {
            Command::List { tenant, state, after } => {
                let filters = [("tenant", tenant.as_deref()), ("state", state.as_deref())];
                let all = pages::fetch_after(&api, "conflicts", &filters, after).await?;
                let columns =
                    ["conflictId", "conflictState", "eventId", "source", "destination", "count", "flaggedAt"];
                output.print_list(&all, &columns);
            }
            Command::Show { id } => {
                // The raw bytes, so that numbers keep their digits.
                let path = format!("/v1/conflicts/{id}");
                let (_, bytes) = api.exchange(Method::GET, &path, None, "").await?;
                match output {
                    Output::Json => print_line(&String::from_utf8_lossy(&bytes)),
                    Output::Table => print_conflict(serde_json::from_slice(&bytes)?),
                }
            }
            Command::Triage { id, note } => {
                let body = json!({ "state": "TRIAGED", "note": note });
                output.print_object(&change_state(&api, id, &body).await?);
            }
            Command::Resolve { id, accept, note, compensating_event } => {
                let state = match accept {
                    AcceptedContent::Original => "RESOLVED_ACCEPT_ORIGINAL",
                    AcceptedContent::New => "RESOLVED_ACCEPT_NEW",
                    AcceptedContent::None => "RESOLVED_INVALID_PRODUCER",
                };
                let mut body = json!({ "state": state, "note": note });
                if let Some(id) = compensating_event {
                    body["compensatingEventId"] = id.into();
                }
                output.print_object(&change_state(&api, id, &body).await?);
            }
        }
        Ok(())
    }
}

async fn change_state(api: &Api, id: i64, body: &Value) -> Result<Value, ApiError> {
    api.call(Method::POST, &format!("/v1/conflicts/{id}/state"), Some(body)).await
}

/// A conflict with the raw text of both messages.
#[derive(Deserialize)]
struct ConflictDocument {
    original: Option<Box<RawValue>>,
    conflicting: Option<Box<RawValue>>,
    differences: Vec<Difference>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Difference {
    pointer: String,
    original: Option<Box<RawValue>>,
    conflicting: Option<Box<RawValue>>,
}

/// Prints the record, then both messages below each other, then their differences (CLM-14).
fn print_conflict(conflict: ConflictDocument) {
    Output::Table.print_object(&json!(conflict.rest));
    for (name, message) in [("original", &conflict.original), ("conflicting", &conflict.conflicting)] {
        print_line(&format!("\n{name}:"));
        match message {
            Some(message) => print_lines(&indent_json(message.get())),
            None => print_lines(
                "(not shown: the node cannot read it now, or it was for a tenant that you may not see)",
            ),
        }
    }
    print_line("\nwhere the two differ:");
    let rows: Vec<_> = conflict.differences.iter().map(difference_row).collect();
    Output::Table.print_rows(&Value::Null, &rows, &["pointer", "original", "conflicting"]);
}

fn difference_row(difference: &Difference) -> Value {
    let Difference { pointer, original, conflicting } = difference;
    json!({ "pointer": pointer, "original": raw_text(original), "conflicting": raw_text(conflicting) })
}

fn raw_text(value: &Option<Box<RawValue>>) -> Option<&str> {
    value.as_ref().map(|value| value.get())
}
