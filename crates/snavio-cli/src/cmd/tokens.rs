//! `snavio tokens`.

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::time::Timestamp;

use super::get::fetch_entries;
use crate::CommandResult;
use crate::connection::{OperatorConnection, path};
use crate::output::Output;

/// Issue, list and revoke personal tokens.
///
/// A personal token proves who a person is and gives them a role, for one tenant or for all. The table of
/// roles is in docs/guides/identity.md. Every command that accepts the operator's token accepts a personal
/// token: set SNAVIO_TOKEN.
#[derive(Args)]
#[command(after_help = "\
Example: snavio tokens issue --person anna@acme.example --role tenant-admin --tenant acme
Example: snavio tokens list
Example: snavio tokens revoke 3f29c1d07b66a1e4 --why 'anna left'")]
pub(crate) struct Tokens {
    #[command(flatten)]
    node: OperatorConnection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Issue a token to a person and show it, only this once.
    #[command(after_help = "Example: snavio tokens issue --person otto@example.com --role auditor --days 30
Example: snavio tokens issue --person anna@acme.example --role tenant-admin --tenant acme
Example: snavio tokens issue --person kim@acme.example --role accounting-ops --tenant acme")]
    Issue {
        /// The name of the person, under which the changelog and the audit log record actions.
        #[arg(long)]
        person: String,
        /// The role, which sets the permissions of the person.
        #[arg(long, value_enum)]
        role: RoleName,
        /// The tenant of the person; an operator has none, and an auditor without one sees all tenants.
        #[arg(long)]
        tenant: Option<String>,
        /// The number of days until the token expires, at most 365.
        #[arg(long, default_value_t = 90)]
        days: u32,
        /// A note for the changelog: the reason for the change.
        #[arg(long, default_value = "", hide_default_value = true)]
        why: String,
    },
    /// List the tokens, without their secrets.
    #[command(after_help = "Example: snavio tokens list
Example: snavio tokens list --output json
Example: snavio tokens list --url https://snavio.example.com")]
    List,
    /// Revoke tokens.
    #[command(after_help = "Example: snavio tokens revoke 3f29c1d07b66a1e4
Example: snavio tokens revoke 3f29c1d07b66a1e4 --why 'anna left'
Example: snavio tokens revoke 3f29c1d07b66a1e4 90ab12cd34ef5678 --why 'laptop stolen'")]
    Revoke {
        /// The ids of the tokens.
        #[arg(required = true)]
        ids: Vec<String>,
        /// A note for the changelog: the reason for the change.
        #[arg(long, default_value = "", hide_default_value = true)]
        why: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    /// Runs the platform: may do everything, for every tenant.
    Operator,
    /// Manages everything that a tenant owns.
    TenantAdmin,
    /// Reads everything that a tenant owns.
    TenantViewer,
    /// Reads everything that a tenant owns, and repairs failed messages and conflicts.
    AccountingOps,
    /// Reads everything in its scope, including the changelog, and changes nothing.
    Auditor,
}

impl Tokens {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api()?;
        match self.command {
            Command::Issue { person, role, tenant, days, why } => {
                let role = role.to_possible_value().map(|role| role.get_name().to_owned());
                let body = json!({ "person": person, "role": role, "tenant": tenant, "days": days });
                let path = path(&["v1", "tokens"], &[("why", &why)]);
                output.print_object(&api.call(Method::POST, &path, Some(&body)).await?);
            }
            Command::List => {
                let mut items = fetch_entries(&api, "personal_token").await?;
                items.iter_mut().for_each(format_times);
                let columns = ["id", "person", "role", "tenant", "expires_at"];
                output.print_rows(&Value::Array(items.clone()), &items, &columns);
            }
            Command::Revoke { ids, why } => {
                let mut removed = Vec::new();
                for id in &ids {
                    let path = path(&["v1", "tokens", id], &[("why", &why)]);
                    removed.push(api.call(Method::DELETE, &path, None).await?["removed"][0].take());
                }
                output.print_object(&json!({ "removed": removed }));
            }
        }
        Ok(())
    }
}

/// Replaces times in milliseconds by RFC 3339 texts.
fn format_times(token: &mut Value) {
    for member in ["created_at", "expires_at"] {
        if let Some(at) = token[member].as_i64() {
            token[member] = Timestamp(at).to_string().into();
        }
    }
}
