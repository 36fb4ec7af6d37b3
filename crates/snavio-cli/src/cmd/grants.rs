//! `snavio grants`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::get::fetch_entries;
use crate::CommandResult;
use crate::connection::{AnyConnection, path};
use crate::output::Output;

/// Request, approve, decline, give and revoke grants.
///
/// A grant permits a source to send a command to a target. The producer requests it, and the owner of the
/// target approves or declines. With -c a service acts for itself. Without -c the owner of the token acts,
/// for example the admin of a tenant for that tenant.
#[derive(Args)]
#[command(after_help = "Example: snavio grants give acme/shop acme/bot notify
Example: snavio grants ask acme/shop zeta/bank pay --purpose orders
Example: snavio grants requests")]
pub(crate) struct Grants {
    #[command(flatten)]
    node: AnyConnection,
    #[command(subcommand)]
    command: Command,
}

/// The source, target and command of a grant.
#[derive(Args)]
struct GrantArguments {
    /// The service that sends: tenant/service.
    source: String,
    /// The service that receives: tenant/service.
    target: String,
    /// The name of the command, or '*' for all.
    name: String,
    /// A note for the changelog: the reason for the change.
    #[arg(long, default_value = "", hide_default_value = true)]
    why: String,
}

#[derive(Subcommand)]
enum Command {
    /// Request a grant from the owner of the target.
    #[command(after_help = "Example: snavio grants ask acme/shop zeta/bank pay
Example: snavio grants ask acme/shop zeta/bank pay --purpose 'pay for orders'
Example: snavio grants ask acme/shop zeta/bank pay -c credentials/acme/shop.json")]
    Ask {
        #[command(flatten)]
        grant: GrantArguments,
        /// The purpose of the grant, for the owner of the target.
        #[arg(long, default_value = "", hide_default_value = true)]
        purpose: String,
    },
    /// List the grant requests to your tenant and from your tenant.
    #[command(after_help = "Example: snavio grants requests
Example: snavio grants requests -c credentials/acme/shop.json
Example: snavio grants requests --output json")]
    Requests,
    /// Approve a grant request.
    #[command(after_help = "Example: snavio grants approve acme/shop zeta/bank pay
Example: snavio grants approve acme/shop zeta/bank pay --expires-at 2027-01-01T00:00:00Z
Example: snavio grants approve acme/shop zeta/bank pay --why 'contract 117'")]
    Approve {
        #[command(flatten)]
        grant: GrantArguments,
        /// The time at which the grant expires, in RFC 3339; without it the grant does not expire.
        #[arg(long)]
        expires_at: Option<String>,
    },
    /// Decline a grant request, or withdraw your own.
    #[command(after_help = "Example: snavio grants decline acme/shop zeta/bank pay
Example: snavio grants decline acme/shop zeta/bank pay --why 'use the new bank'
Example: snavio grants decline acme/shop zeta/bank pay -c credentials/acme/shop.json")]
    Decline {
        #[command(flatten)]
        grant: GrantArguments,
    },
    /// Give a grant for a target of your tenant.
    #[command(after_help = "Example: snavio grants give acme/shop acme/bot notify
Example: snavio grants give acme/shop acme/bot '*' --why 'trial' --expires-at 2027-01-01T00:00:00Z
Example: snavio grants give zeta/bank acme/ledger post-entry")]
    Give {
        #[command(flatten)]
        grant: GrantArguments,
        /// The time at which the grant expires, in RFC 3339; without it the grant does not expire.
        #[arg(long)]
        expires_at: Option<String>,
    },
    /// Revoke a grant.
    #[command(after_help = "Example: snavio grants take-back acme/shop acme/bot notify
Example: snavio grants take-back acme/shop acme/bot notify --why 'shop is closed'
Example: snavio grants take-back acme/shop acme/bot '*'")]
    TakeBack {
        #[command(flatten)]
        grant: GrantArguments,
    },
}

impl GrantArguments {
    /// The request body, with one more member if it has a value.
    fn body(&self, member: &str, value: Option<&str>) -> Value {
        let mut body = json!({ "source": self.source, "target": self.target, "name": self.name });
        if let Some(value) = value {
            body[member] = value.into();
        }
        body
    }

    fn path(&self, segments: &[&str]) -> String {
        path(segments, &[("why", &self.why)])
    }
}

impl Grants {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api().await?;
        let requests = ["v1", "grant-requests"];
        let (method, path, body) = match &self.command {
            Command::Requests => {
                let items = fetch_entries(&api, "grant_request").await?;
                let columns = ["source", "target", "name", "purpose", "asked_by"];
                output.print_rows(&Value::Array(items.clone()), &items, &columns);
                return Ok(());
            }
            Command::Ask { grant, purpose } => {
                (Method::POST, grant.path(&requests), Some(grant.body("purpose", Some(purpose))))
            }
            Command::Approve { grant, expires_at } => {
                let path = grant.path(&["v1", "grant-requests", "approve"]);
                (Method::POST, path, Some(grant.body("expires_at", expires_at.as_deref())))
            }
            Command::Decline { grant } => {
                let path = grant.path(&["v1", "grant-requests", "decline"]);
                (Method::POST, path, Some(grant.body("", None)))
            }
            Command::Give { grant, expires_at } => {
                let body = grant.body("expires_at", expires_at.as_deref());
                (Method::PUT, grant.path(&["v1", "grants"]), Some(body))
            }
            Command::TakeBack { grant } => {
                let GrantArguments { source, target, name, why } = grant;
                let parameters =
                    [("source", source.as_str()), ("target", target), ("name", name), ("why", why)];
                (Method::DELETE, path(&["v1", "grants"], &parameters), None)
            }
        };
        let mut answer = api.call(method, &path, body.as_ref()).await?;
        if output == Output::Table {
            output.print_warnings(&answer);
            answer.as_object_mut().and_then(|members| members.remove("warnings"));
        }
        output.print_object(&answer);
        Ok(())
    }
}
