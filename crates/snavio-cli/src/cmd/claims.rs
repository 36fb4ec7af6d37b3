//! `snavio claims`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::percent::in_url;
use snavio_sdk::Api;

use super::{Failure, pages};
use crate::CommandResult;
use crate::connection::AnyConnection;
use crate::output::{Output, print_bytes, print_line};

/// Ids in one import request.
const IMPORT_BATCH: usize = 1000;
/// Refusals that the failure of `reprocess` names.
const REFUSALS_SHOWN_MAX: usize = 5;

/// Show and settle the claims of message ids, reprocess failed messages, import ids.
///
/// A claim is the record of a message id at one destination, with the outcome of its work.
#[derive(Args)]
#[command(after_help = "Example: snavio claims show invoice-4711 --tenant acme
Example: snavio claims list --tenant acme --status failed
Example: snavio claims reprocess invoice-4711 --tenant acme --why 'account 8400 exists now'")]
pub(crate) struct Claims {
    #[command(flatten)]
    node: AnyConnection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the claims that are not completed, oldest first.
    #[command(after_help = "Example: snavio claims list
Example: snavio claims list --tenant acme --status in_doubt
Example: snavio claims list -c credentials/acme/bot.json --status failed")]
    List {
        /// Only claims at destinations of this tenant.
        #[arg(long)]
        tenant: Option<String>,
        /// Only claims with this status: processing, failed or in_doubt (outcome unknown).
        #[arg(long)]
        status: Option<String>,
        /// Only claims of messages after this message number.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
    /// Show the claims of an id with their outcomes.
    #[command(after_help = "Example: snavio claims show invoice-4711 --tenant acme
Example: snavio claims show invoice-4711 --destination acme/ledger:post-entry
Example: snavio claims show invoice-4711 -c credentials/acme/shop.json")]
    Show {
        /// The id of the message.
        id: String,
        #[command(flatten)]
        selector: ClaimSelector,
    },
    /// Print the stored response of an id, byte for byte, also from the archive.
    #[command(after_help = "Example: snavio claims answer invoice-4711 --tenant acme
Example: snavio claims answer invoice-4711 --tenant acme > answer.json
Example: snavio claims answer invoice-4711 --destination acme/ledger:post-entry")]
    Answer {
        /// The id of the message.
        id: String,
        #[command(flatten)]
        selector: ClaimSelector,
    },
    /// Print the message with an id, also from the archive.
    #[command(after_help = "Example: snavio claims message invoice-4711 --tenant acme
Example: snavio claims message invoice-4711 --tenant acme | jq .
Example: snavio claims message invoice-4711 --destination acme/ledger:post-entry")]
    Message {
        /// The id of the message.
        id: String,
        #[command(flatten)]
        selector: ClaimSelector,
    },
    /// Reprocess messages under the same ids, after a final failure or an unknown outcome.
    #[command(after_help = "\
Example: snavio claims reprocess invoice-4711 --tenant acme --why 'account 8400 exists now'
Example: snavio claims reprocess invoice-1 invoice-2 --tenant acme --why 'account 8400 exists now'
Example: snavio claims reprocess --status failed --tenant acme --why 'the ledger is repaired'")]
    Reprocess {
        /// The ids of the messages; without ids, --status selects the messages.
        ids: Vec<String>,
        #[command(flatten)]
        selector: ClaimSelector,
        /// Instead of ids: all messages that failed for good, or all with an unknown outcome (in_doubt).
        #[arg(long, value_parser = ["failed", "in_doubt"], conflicts_with_all = ["ids", "sender", "destination"],
            required_unless_present = "ids")]
        status: Option<String>,
        /// A note for the audit log: the reason for the action.
        #[arg(long)]
        why: String,
    },
    /// Mark a claim as completed although its work failed or its outcome is unknown.
    ///
    /// Use it if you know that the work was done after all. The gateway then does not try it again.
    #[command(after_help = "\
Example: snavio claims settle invoice-4711 --tenant acme --why 'found in the ledger'
Example: snavio claims settle invoice-4711 --reference JE-2026-118 --why 'found in the ledger'
Example: snavio claims settle invoice-4711 --destination acme/ledger:pay --why 'posted by hand'")]
    Settle {
        /// The id of the message.
        id: String,
        #[command(flatten)]
        selector: ClaimSelector,
        /// The posting reference of the work in the target's system.
        #[arg(long)]
        reference: Option<String>,
        /// A note for the audit log: how you know that the work was done.
        #[arg(long)]
        why: String,
    },
    /// Import ids from a `seen_events` table in SQLite, so that the gateway treats them as duplicates.
    #[command(after_help = "\
Example: snavio claims import --from in.db --source acme/hook --destination acme/bot:note --why move
Example: snavio claims import --from in.db --source acme/shop --destination acme/in:order --why move
Example: snavio claims import --from x.db --source ops/a --destination ops/x:ops/a:paid --why move")]
    Import {
        /// The database file with the table `seen_events`.
        #[arg(long)]
        from: PathBuf,
        /// The service that sent the messages: tenant/service.
        #[arg(long)]
        source: String,
        /// The route or subscription that received the messages; its claim policy must be seen or strict.
        #[arg(long)]
        destination: String,
        /// A note for the audit log: the reason for the action.
        #[arg(long)]
        why: String,
    },
}

/// Selects claims of an id; without any option, all claims that the caller may see.
#[derive(Args, Default)]
struct ClaimSelector {
    /// Only claims that this tenant sent or received.
    #[arg(long)]
    tenant: Option<String>,
    /// Only claims of messages from this tenant, if several tenants used the id.
    #[arg(long)]
    sender: Option<String>,
    /// Only the claim at this destination, for example acme/ledger:post-entry.
    #[arg(long)]
    destination: Option<String>,
}

impl Claims {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api().await?;
        match self.command {
            Command::List { tenant, status, after } => {
                let filters = [("tenant", tenant.as_deref()), ("status", status.as_deref())];
                let all = pages::fetch_after(&api, "claims", &filters, after).await?;
                let columns = ["message", "status", "eventId", "destination", "attempts", "dueAt", "error"];
                output.print_list(&all, &columns);
            }
            Command::Show { id, selector } => {
                let path = claim_path(&id, "", &selector)?;
                let mut found = api.call(Method::GET, &path, None).await?;
                if output == Output::Json {
                    output.print_object(&found);
                    return Ok(());
                }
                let claims = found.as_object_mut().and_then(|members| members.remove("claims"));
                output.print_object(&found);
                for claim in claims.iter().filter_map(Value::as_array).flatten() {
                    print_line("");
                    output.print_object(claim);
                }
            }
            Command::Answer { id, selector } => {
                let path = claim_path(&id, "/answer", &selector)?;
                print_bytes(&api.exchange(Method::GET, &path, None, "").await?.1);
            }
            Command::Message { id, selector } => {
                let path = claim_path(&id, "/message", &selector)?;
                print_bytes(&api.exchange(Method::GET, &path, None, "").await?.1);
            }
            Command::Reprocess { ids, selector, status, why } => {
                let (mut count, mut refused) = (0, Vec::new());
                for id in &ids {
                    match reprocess(&api, id, &selector, &why).await {
                        Ok(()) => count += 1,
                        Err(failure) if ids.len() == 1 => return Err(failure),
                        Err(failure) => refused.push(format!("{id}: {failure}")),
                    }
                }
                let mut after = 0;
                let tenant = selector.tenant.as_ref();
                let tenant = tenant.map(|tenant| format!("&tenant={}", in_url(tenant))).unwrap_or_default();
                while let Some(status) = &status {
                    let path = format!("/v1/claims?after={after}&status={status}{tenant}");
                    let page = api.call(Method::GET, &path, None).await?;
                    let items = page["items"].as_array().cloned().unwrap_or_default();
                    if items.is_empty() {
                        break;
                    }
                    after = page["next"].as_i64().unwrap_or(i64::MAX);
                    // The gateway itself retries the claims that are not final.
                    for claim in items.iter().filter(|claim| claim["final"] != false) {
                        let text = |member: &str| claim[member].as_str().unwrap_or_default().to_owned();
                        let (sender, destination) = (Some(text("tenant")), Some(text("destination")));
                        let selector = ClaimSelector { tenant: None, sender, destination };
                        // A refusal, for example under a legal hold, does not keep the others from being
                        // processed.
                        match reprocess(&api, &text("eventId"), &selector, &why).await {
                            Ok(()) => count += 1,
                            Err(failure) => refused.push(format!("{}: {failure}", text("eventId"))),
                        }
                    }
                }
                output.print_object(&json!({ "reprocessed": count, "refused": refused.len() }));
                if !refused.is_empty() {
                    let shown = refused.iter().take(REFUSALS_SHOWN_MAX).map(String::as_str);
                    let shown = shown.collect::<Vec<_>>().join("; ");
                    return Err(Failure::new(format!("{} were refused: {shown}", refused.len())));
                }
            }
            Command::Settle { id, selector, reference, why } => {
                let path = claim_path(&id, "/settle", &selector)?;
                let body = json!({ "reference": reference, "why": why });
                output.print_object(&api.call(Method::POST, &path, Some(&body)).await?);
            }
            Command::Import { from, source, destination, why } => {
                let (mut imported, mut left_out) = (0, 0);
                for items in read_seen_events(&from)?.chunks(IMPORT_BATCH) {
                    let body =
                        json!({ "source": source, "destination": destination, "items": items, "why": why });
                    let done = api.call(Method::POST, "/v1/claims/import", Some(&body)).await?;
                    imported += done["imported"].as_u64().unwrap_or_default();
                    left_out += done["left_out"].as_u64().unwrap_or_default();
                }
                output.print_object(&json!({ "imported": imported, "left_out": left_out }));
            }
        }
        Ok(())
    }
}

async fn reprocess(api: &Api, id: &str, selector: &ClaimSelector, why: &str) -> Result<(), Failure> {
    let path = claim_path(id, "/reprocess", selector)?;
    api.call(Method::POST, &path, Some(&json!({ "why": why }))).await?;
    Ok(())
}

/// The path of a claim in the API, followed by an action.
fn claim_path(id: &str, action: &str, selector: &ClaimSelector) -> Result<String, Failure> {
    let ClaimSelector { tenant, sender, destination } = selector;
    let parameters = [("tenant", tenant), ("sender", sender), ("destination", destination)];
    let parameters = parameters
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", in_url(value.as_ref()?))));
    let parameters = parameters.collect::<Vec<_>>().join("&");
    Ok(format!("/v1/claims/{}{action}?{parameters}", path_segment(id)?))
}

/// Reads a `seen_events` table. A time without an offset is in UTC.
fn read_seen_events(file: &Path) -> Result<Vec<Value>, Failure> {
    let rows = snavio_sdk::sqlite::seen::read_all(file).map_err(|error| {
        Failure::caused_by(format!("cannot read the table seen_events of {}", file.display()), &error)
    })?;
    Ok(rows.into_iter().map(|(id, seen_at)| import_item(&id, &seen_at)).collect())
}

fn import_item(id: &str, seen_at: &str) -> Value {
    let seen_at = seen_at.replacen(' ', "T", 1);
    let has_offset =
        seen_at.ends_with('Z') || seen_at.get(10..).is_some_and(|time| time.contains(['+', '-']));
    let seen_at = if has_offset { seen_at } else { format!("{seen_at}Z") };
    json!({ "id": id, "first_seen_at": seen_at })
}

/// Escapes an id as a segment of a path. URL parsers resolve `.` and `..`, even escaped ones, as relative
/// steps, so such an id cannot be a segment.
pub(super) fn path_segment(id: &str) -> Result<String, Failure> {
    match id {
        "." | ".." => Err(Failure::new(format!(
            "cannot ask for the id {id}: in a URL it is a step of the path, not an id"
        ))),
        _ => Ok(in_url(id)),
    }
}
