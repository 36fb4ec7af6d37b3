//! `snavio grants`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::get::entries;
use crate::Ended;
use crate::connection::{AsAnybody, path};
use crate::output::Output;

/// Ask for grants, and give, approve, decline and take them back.
///
/// A producer asks; the target's owner says yes or no. With -c a service asks for itself, without it whoever's token
/// this is acts: a tenant's admin for its own tenant.
///
/// Example: snavio grants requests
#[derive(Args)]
pub(crate) struct Grants {
    #[command(flatten)]
    node: AsAnybody,
    #[command(subcommand)]
    command: Command,
}

/// Who may send what to whom.
#[derive(Args)]
struct Triple {
    /// Who sends: tenant/service.
    source: String,
    /// To whom: tenant/service.
    target: String,
    /// Which command, or '*' for all.
    name: String,
    /// Why, for the changelog.
    #[arg(long, default_value = "")]
    why: String,
}

#[derive(Subcommand)]
enum Command {
    /// Ask the target's owner for a grant.
    ///
    /// Example: snavio grants ask acme/shop zeta/bank pay --purpose "orders" -c credentials/acme/shop.json
    Ask {
        #[command(flatten)]
        grant: Triple,
        /// For what, for the target's owner to read.
        #[arg(long, default_value = "")]
        purpose: String,
    },
    /// List the requests that wait for your tenant, and those it made.
    ///
    /// Example: snavio grants requests
    Requests,
    /// Give a grant that was asked for.
    ///
    /// Example: snavio grants approve acme/shop zeta/bank pay --expires-at 2027-01-01T00:00:00Z
    Approve {
        #[command(flatten)]
        grant: Triple,
        /// When the grant ends, in RFC 3339.
        #[arg(long)]
        expires_at: Option<String>,
    },
    /// Say no to a request, or withdraw your own.
    ///
    /// Example: snavio grants decline acme/shop zeta/bank pay --why "use the new bank"
    Decline {
        #[command(flatten)]
        grant: Triple,
    },
    /// Give a grant to a target of your tenant.
    ///
    /// Example: snavio grants give acme/shop acme/bot notify
    Give {
        #[command(flatten)]
        grant: Triple,
        /// When the grant ends, in RFC 3339.
        #[arg(long)]
        expires_at: Option<String>,
    },
    /// Take a grant back.
    ///
    /// Example: snavio grants take-back acme/shop acme/bot notify --why "shop is closed"
    TakeBack {
        #[command(flatten)]
        grant: Triple,
    },
}

impl Triple {
    /// As a body, with another member if there is one.
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
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api().await?;
        let requests = ["v1", "grant-requests"];
        let (method, path, body) = match &self.command {
            Command::Requests => {
                let items = entries(&api, "grant_request").await?;
                let columns = ["source", "target", "name", "purpose", "asked_by"];
                output.rows(&Value::Array(items.clone()), &items, &columns);
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
                let Triple { source, target, name, why } = grant;
                let parameters =
                    [("source", source.as_str()), ("target", target), ("name", name), ("why", why)];
                (Method::DELETE, path(&["v1", "grants"], &parameters), None)
            }
        };
        let mut answer = api.call(method, &path, body.as_ref()).await?;
        if output == Output::Table {
            output.warnings(&answer);
            answer.as_object_mut().and_then(|members| members.remove("warnings"));
        }
        output.object(&answer);
        Ok(())
    }
}
