//! `snavio conflicts`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::pages;
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::{Output, indented, print_line, print_lines};

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
        /// Only conflicts in this state: OPEN, TRIAGED, RESOLVED_ACCEPT_ORIGINAL, RESOLVED_ACCEPT_NEW or
        /// RESOLVED_INVALID_PRODUCER.
        #[arg(long)]
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
                let filters = [("tenant", tenant.as_deref()), ("state", state.as_deref())];
                let all = pages::after(&api, "conflicts", &filters, after).await?;
                let columns =
                    ["conflictId", "conflictState", "eventId", "source", "destination", "count", "flaggedAt"];
                output.list(&all, &columns);
            }
            Command::Show { id } => {
                // As it came: numbers keep their digits.
                let path = format!("/v1/conflicts/{id}");
                let (_, whole) = api.exchange(Method::GET, &path, None, "").await?;
                match output {
                    Output::Json => print_line(&String::from_utf8_lossy(&whole)),
                    Output::Table => print_conflict(serde_json::from_slice(&whole)?),
                }
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

/// A conflict with both messages as they came.
#[derive(Deserialize)]
struct Whole {
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

/// The record, both messages under each other, and then only where they differ (CLM-14).
fn print_conflict(whole: Whole) {
    Output::Table.object(&json!(whole.rest));
    for (name, message) in [("original", &whole.original), ("conflicting", &whole.conflicting)] {
        print_line(&format!("\n{name}:"));
        match message {
            Some(message) => print_lines(&indented(message.get())),
            None => print_lines(
                "(not shown: it cannot be read now, or was meant for a tenant that you do not see)",
            ),
        }
    }
    print_line("\nwhere the two differ:");
    let text = |it: &Option<Box<RawValue>>| it.as_ref().map(|it| it.get().to_owned());
    let row = |it: &Difference| json!({ "pointer": it.pointer, "original": text(&it.original), "conflicting": text(&it.conflicting) });
    let rows: Vec<_> = whole.differences.iter().map(row).collect();
    Output::Table.rows(&Value::Null, &rows, &["pointer", "original", "conflicting"]);
}
