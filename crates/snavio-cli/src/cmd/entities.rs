//! `snavio entities`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;
use snavio_model::percent::in_url;

use crate::CommandResult;
use crate::connection::AnyConnection;
use crate::output::Output;

/// Show, reset and unblock entities, whose messages the gateway delivers in order.
#[derive(Args)]
#[command(after_help = "Example: snavio entities show build-17 --destination acme/ci:build
Example: snavio entities reset build-17 --destination acme/ci:build --why 'numbers start again'
Example: snavio entities skip build-17 --destination acme/ci:build --number 4 --why 'is obsolete'")]
pub(crate) struct Entities {
    #[command(flatten)]
    node: AnyConnection,
    #[command(subcommand)]
    command: Command,
}

/// Names one entity at one destination.
#[derive(Args)]
struct EntitySelector {
    /// The name of the entity, as in its messages.
    entity: String,
    /// The route or subscription: tenant/service:name; or its scope: tenant/service#scope.
    #[arg(long)]
    destination: String,
    /// The tenant that sends the messages, if it is not the tenant of the destination.
    #[arg(long)]
    of: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Show the last number of an entity, its gaps, and its waiting and parked messages.
    #[command(after_help = "Example: snavio entities show build-17 --destination acme/ci:build
Example: snavio entities show order-7 --destination acme/ledger:acme/shop:order.paid
Example: snavio entities show build-17 --destination acme/ci#builds --of zeta")]
    Show {
        #[command(flatten)]
        selector: EntitySelector,
    },
    /// Forget the numbers of an entity, so that its next message is the first.
    ///
    /// Waiting messages are delivered in order.
    #[command(after_help = "\
Example: snavio entities reset build-17 --destination acme/ci:build --why 'numbers start again'
Example: snavio entities reset build-17 --destination acme/ci:build --why 'numbers restart' --force
Example: snavio entities reset build-17 --destination acme/ci#builds --of zeta --why 'new project'")]
    Reset {
        #[command(flatten)]
        selector: EntitySelector,
        /// A note for the audit log: the reason for the action.
        #[arg(long)]
        why: String,
        /// Reset although deliveries of the entity exist.
        ///
        /// Deliveries go out by number, so messages with new numbers may be delivered before the older
        /// messages.
        #[arg(long)]
        force: bool,
    },
    /// Skip a failed message, so that the messages parked behind it are delivered.
    ///
    /// The skipped message stays a dead letter.
    #[command(after_help = "\
Example: snavio entities skip build-17 --destination acme/ci:build --number 4 --why 'is obsolete'
Example: snavio entities skip order-7 --destination acme/crm:acme/shop:paid --number 2 --why 'lost'
Example: snavio entities skip build-17 --destination acme/ci#main --of zeta --number 4 --why 'lost'")]
    Skip {
        #[command(flatten)]
        selector: EntitySelector,
        /// The number of the failed message.
        #[arg(long)]
        number: i64,
        /// A note for the audit log: the reason for the action.
        #[arg(long)]
        why: String,
    },
}

impl Entities {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api().await?;
        let answer = match self.command {
            Command::Show { selector } => api.call(Method::GET, &selector.path(""), None).await?,
            Command::Reset { selector, why, force } => {
                let body = json!({ "why": why, "force": force });
                api.call(Method::POST, &selector.path("/reset"), Some(&body)).await?
            }
            Command::Skip { selector, number, why } => {
                let body = json!({ "number": number, "why": why });
                api.call(Method::POST, &selector.path("/skip"), Some(&body)).await?
            }
        };
        output.print_object(&answer);
        Ok(())
    }
}

impl EntitySelector {
    fn path(&self, action: &str) -> String {
        let of = self.of.as_ref().map(|tenant| format!("&of={}", in_url(tenant))).unwrap_or_default();
        let destination = in_url(&self.destination);
        match self.entity.as_str() {
            // These names cannot be a segment of a path: they go into a parameter.
            entity @ ("" | "." | "..") => {
                format!("/v1/entities/-{action}?destination={destination}{of}&entity={}", in_url(entity))
            }
            entity => format!("/v1/entities/{}{action}?destination={destination}{of}", in_url(entity)),
        }
    }
}
