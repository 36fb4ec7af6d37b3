//! `snavio tokens`.

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::time::Timestamp;

use super::get::entries;
use crate::Ended;
use crate::connection::{AsOperator, path};
use crate::output::Output;

/// Issue, list and revoke people's tokens.
///
/// A token says who somebody is and what they may do, for one tenant or for all; docs/guides/identity.md has the
/// table. Set SNAVIO_TOKEN to it, and every command that takes the operator's token takes this one.
///
/// Example: snavio tokens issue --person anna@acme.example --role tenant-admin --tenant acme
#[derive(Args)]
pub(crate) struct Tokens {
    #[command(flatten)]
    node: AsOperator,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Issue a token, which is shown once.
    ///
    /// Example: snavio tokens issue --person otto@example.com --role auditor --days 30
    Issue {
        /// Whose it is: the name under which deeds go on the record.
        #[arg(long)]
        person: String,
        /// What the person may do.
        #[arg(long, value_enum)]
        role: RoleName,
        /// For which tenant; an operator has none, an auditor without one sees everything.
        #[arg(long)]
        tenant: Option<String>,
        /// Days until it ends, at most 365.
        #[arg(long, default_value_t = 90)]
        days: u32,
        /// Why, for the changelog.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// List the tokens there are, without what is secret.
    ///
    /// Example: snavio tokens list
    List,
    /// Revoke tokens: they are good for nothing any more.
    ///
    /// Example: snavio tokens revoke 3f29c1d07b66a1e4 --why "anna left"
    Revoke {
        /// Their ids.
        #[arg(required = true)]
        ids: Vec<String>,
        /// Why, for the changelog.
        #[arg(long, default_value = "")]
        why: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    /// Runs the platform: everything, for every tenant.
    Operator,
    /// Manages what a tenant owns.
    TenantAdmin,
    /// Sees what a tenant owns.
    TenantViewer,
    /// Sees what a tenant owns, and mends what went wrong with its messages.
    AccountingOps,
    /// Sees everything of its scope, the changelog included, and changes nothing.
    Auditor,
}

impl Tokens {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api()?;
        match self.command {
            Command::Issue { person, role, tenant, days, why } => {
                let role = role.to_possible_value().map(|it| it.get_name().to_owned());
                let body = json!({ "person": person, "role": role, "tenant": tenant, "days": days });
                let path = path(&["v1", "tokens"], &[("why", &why)]);
                output.object(&api.call(Method::POST, &path, Some(&body)).await?);
            }
            Command::List => {
                let mut items = entries(&api, "personal_token").await?;
                items.iter_mut().for_each(with_times);
                let columns = ["id", "person", "role", "tenant", "expires_at"];
                output.rows(&Value::Array(items.clone()), &items, &columns);
            }
            Command::Revoke { ids, why } => {
                let mut removed = Vec::new();
                for id in &ids {
                    let path = path(&["v1", "tokens", id], &[("why", &why)]);
                    removed.push(api.call(Method::DELETE, &path, None).await?["removed"][0].take());
                }
                output.object(&json!({ "removed": removed }));
            }
        }
        Ok(())
    }
}

/// Times in words.
fn with_times(token: &mut Value) {
    for member in ["created_at", "expires_at"] {
        if let Some(at) = token[member].as_i64() {
            token[member] = Timestamp(at).to_string().into();
        }
    }
}
