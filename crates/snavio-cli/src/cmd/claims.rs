//! `snavio claims`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::percent::in_url;

use super::{Failure, pages};
use crate::Ended;
use crate::connection::AsAnybody;
use crate::output::{Output, print_bytes, print_line};

/// Ids that are sent with one request.
const IMPORTED_AT_ONCE: usize = 1000;
/// Refusals that are told one by one.
const REFUSED_TOLD_MAX: usize = 5;

/// Look up what became of an id and what it said, what was answered, list what failed or is in doubt, have it processed again or settle it, take over ids.
///
/// As a service with its credentials, or with the operator's or a person's token.
///
/// Example: snavio claims show 0193a1c2-7d1e-7c3a-9f51-2b6f6f0a9d11 --tenant acme
#[derive(Args)]
pub(crate) struct Claims {
    #[command(flatten)]
    node: AsAnybody,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List those that are not complete, oldest first.
    ///
    /// Example: snavio claims list --tenant acme --status in_doubt
    List {
        /// Only those of this tenant's destinations.
        #[arg(long)]
        tenant: Option<String>,
        /// Only claims in this status: processing, failed or in_doubt.
        #[arg(long)]
        status: Option<String>,
        /// Go on after this message.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
    /// Show what became of an id.
    ///
    /// Example: snavio claims show invoice-4711 --tenant acme
    Show {
        /// The message's id.
        id: String,
        #[command(flatten)]
        which: Which,
    },
    /// Print what was answered to an id, byte for byte, wherever it is kept.
    ///
    /// Example: snavio claims answer invoice-4711 --tenant acme > answer.json
    Answer {
        /// The message's id.
        id: String,
        #[command(flatten)]
        which: Which,
    },
    /// Print the message that was taken under an id, wherever it is kept.
    ///
    /// Example: snavio claims message invoice-4711 --tenant acme | jq .
    Message {
        /// The message's id.
        id: String,
        #[command(flatten)]
        which: Which,
    },
    /// Put what failed for good, or is in doubt, back to be processed again, under its old id.
    ///
    /// Example: snavio claims reprocess invoice-4711 --tenant acme --why "account 8400 exists now"
    Reprocess {
        /// The messages' ids; without any, all that `--status` names.
        ids: Vec<String>,
        #[command(flatten)]
        which: Which,
        /// Instead of ids: all that failed for good, or all that are in doubt.
        #[arg(long, value_parser = ["failed", "in_doubt"], conflicts_with_all = ["ids", "sender", "destination"],
            required_unless_present = "ids")]
        status: Option<String>,
        /// Why, for the record.
        #[arg(long)]
        why: String,
    },
    /// Put it on record that what failed for good, or is in doubt, was done after all: it is not tried again.
    ///
    /// Example: snavio claims settle invoice-4711 --tenant acme --reference JE-2026-118 --why "found in the ledger"
    Settle {
        /// The message's id.
        id: String,
        #[command(flatten)]
        which: Which,
        /// The posting reference under which it was found.
        #[arg(long)]
        reference: Option<String>,
        /// How that is known, for the record.
        #[arg(long)]
        why: String,
    },
    /// Take over ids from a `seen_events` table in SQLite: from then on they are duplicates here.
    ///
    /// Example: snavio claims import --from kira.db --source acme/adapter --destination acme/inbox:acme/adapter:update --why "moving in"
    Import {
        /// The database file with the table `seen_events`.
        #[arg(long)]
        from: PathBuf,
        /// The service that sent them.
        #[arg(long)]
        source: String,
        /// The route or subscription they went to; its policy is seen or strict.
        #[arg(long)]
        destination: String,
        /// Why, for the record.
        #[arg(long)]
        why: String,
    },
}

/// Which claims of an id; all that you may see when none of these is given.
#[derive(Args, Default)]
struct Which {
    /// Only claims that this tenant sent, or was sent.
    #[arg(long)]
    tenant: Option<String>,
    /// Only claims of the id as this tenant sent it, where several did.
    #[arg(long)]
    sender: Option<String>,
    /// Only the claim at this destination, for example acme/ledger:post-entry.
    #[arg(long)]
    destination: Option<String>,
}

impl Claims {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api().await?;
        match self.command {
            Command::List { tenant, status, after } => {
                let filters = [("tenant", tenant.as_deref()), ("status", status.as_deref())];
                let all = pages::after(&api, "claims", &filters, after).await?;
                let columns = ["message", "status", "eventId", "destination", "attempts", "dueAt", "error"];
                output.list(&all, &columns);
            }
            Command::Show { id, which } => {
                let path = of_one(&id, "", &which)?;
                let mut found = api.call(Method::GET, &path, None).await?;
                if output == Output::Json {
                    output.object(&found);
                    return Ok(());
                }
                let claims = found.as_object_mut().and_then(|it| it.remove("claims"));
                output.object(&found);
                for claim in claims.iter().filter_map(Value::as_array).flatten() {
                    print_line("");
                    output.object(claim);
                }
            }
            Command::Answer { id, which } => {
                let path = of_one(&id, "/answer", &which)?;
                print_bytes(&api.exchange(Method::GET, &path, None, "").await?.1);
            }
            Command::Message { id, which } => {
                let path = of_one(&id, "/message", &which)?;
                print_bytes(&api.exchange(Method::GET, &path, None, "").await?.1);
            }
            Command::Reprocess { ids, which, status, why } => {
                let put_back = async |id: &str, which: &Which| {
                    let path = of_one(id, "/reprocess", which)?;
                    Ok::<_, Failure>(api.call(Method::POST, &path, Some(&json!({ "why": why }))).await?)
                };
                let (mut count, mut refused) = (0, Vec::new());
                for id in &ids {
                    match put_back(id, &which).await {
                        Ok(_) => count += 1,
                        Err(failure) if ids.len() == 1 => return Err(failure),
                        Err(failure) => refused.push(format!("{id}: {failure}")),
                    }
                }
                let mut after = 0;
                let of_tenant =
                    which.tenant.as_ref().map(|it| format!("&tenant={}", in_url(it))).unwrap_or_default();
                while let Some(status) = &status {
                    let path = format!("/v1/claims?after={after}&status={status}{of_tenant}");
                    let page = api.call(Method::GET, &path, None).await?;
                    let items = page["items"].as_array().cloned().unwrap_or_default();
                    if items.is_empty() {
                        break;
                    }
                    after = page["next"].as_i64().unwrap_or(i64::MAX);
                    // What is tried again by itself needs nobody.
                    for claim in items.iter().filter(|it| it["final"] != false) {
                        let text = |member: &str| claim[member].as_str().unwrap_or_default().to_owned();
                        let (sender, destination) = (Some(text("tenant")), Some(text("destination")));
                        let which = Which { tenant: None, sender, destination };
                        // One that is refused, because a hold is on it, keeps nobody behind it waiting.
                        match put_back(&text("eventId"), &which).await {
                            Ok(_) => count += 1,
                            Err(failure) => refused.push(format!("{}: {failure}", text("eventId"))),
                        }
                    }
                }
                output.object(&json!({ "reprocessed": count, "refused": refused.len() }));
                if !refused.is_empty() {
                    let some = refused.iter().take(REFUSED_TOLD_MAX).map(String::as_str).collect::<Vec<_>>();
                    return Err(Failure::new(format!("{} were refused: {}", refused.len(), some.join("; "))));
                }
            }
            Command::Settle { id, which, reference, why } => {
                let path = of_one(&id, "/settle", &which)?;
                let body = json!({ "reference": reference, "why": why });
                output.object(&api.call(Method::POST, &path, Some(&body)).await?);
            }
            Command::Import { from, source, destination, why } => {
                let (mut imported, mut left_out) = (0, 0);
                for items in seen_events(&from)?.chunks(IMPORTED_AT_ONCE) {
                    let body =
                        json!({ "source": source, "destination": destination, "items": items, "why": why });
                    let done = api.call(Method::POST, "/v1/claims/import", Some(&body)).await?;
                    imported += done["imported"].as_u64().unwrap_or_default();
                    left_out += done["left_out"].as_u64().unwrap_or_default();
                }
                output.object(&json!({ "imported": imported, "left_out": left_out }));
            }
        }
        Ok(())
    }
}

/// The path of one claim, or of what is done to it.
fn of_one(id: &str, deed: &str, which: &Which) -> Result<String, Failure> {
    let Which { tenant, sender, destination } = which;
    let named = [("tenant", tenant), ("sender", sender), ("destination", destination)];
    let named =
        named.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", in_url(value.as_ref()?))));
    Ok(format!("/v1/claims/{}{deed}?{}", in_path(id)?, named.collect::<Vec<_>>().join("&")))
}

/// What a `seen_events` table holds. Its times are in UTC, whether or not they say so.
fn seen_events(file: &Path) -> Result<Vec<Value>, Failure> {
    let read = snavio_sdk::sqlite::seen::read_all(file);
    let failed =
        |error| Failure::of(format!("cannot read the table seen_events of {}", file.display()), &error);
    let item = |(id, seen): (String, String)| {
        let seen = seen.replacen(' ', "T", 1);
        let has_offset = seen.ends_with('Z') || seen.get(10..).is_some_and(|it| it.contains(['+', '-']));
        let seen = if has_offset { seen } else { format!("{seen}Z") };
        json!({ "id": id, "first_seen_at": seen })
    };
    Ok(read.map_err(failed)?.into_iter().map(item).collect())
}

/// An id as a part of a path. Whoever reads a URL takes `.` and `..` for steps in it, however they are written.
pub(super) fn in_path(id: &str) -> Result<String, Failure> {
    match id {
        "." | ".." => {
            Err(Failure::new(format!("the id {id} cannot be asked for: in a URL it is a step of the path")))
        }
        _ => Ok(in_url(id)),
    }
}
