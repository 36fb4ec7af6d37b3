//! `snavio entities`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;
use snavio_model::percent::in_url;

use crate::Ended;
use crate::connection::AsAnybody;
use crate::output::Output;

/// Show how far an entity is whose messages are ordered, forget it, or let it go on behind a message that failed.
///
/// As a service with its credentials, or with the operator's or a person's token.
///
/// Example: snavio entities show build-17 --destination acme/ci:build
#[derive(Args)]
pub(crate) struct Entities {
    #[command(flatten)]
    node: AsAnybody,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct Which {
    /// The entity, as its messages name it.
    entity: String,
    /// The route or subscription, tenant/service:name; or tenant/service#scope.
    #[arg(long)]
    destination: String,
    /// The tenant whose messages they are, if it is not the destination's own.
    #[arg(long)]
    of: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Show its last number, what is missing, what waits, and whether it is closed or parked.
    ///
    /// Example: snavio entities show build-17 --destination acme/ci:build
    Show {
        #[command(flatten)]
        which: Which,
    },
    /// Forget it: its next message is the first. What waits is handed out in order.
    ///
    /// Example: snavio entities reset build-17 --destination acme/ci:build --why "numbered anew"
    Reset {
        #[command(flatten)]
        which: Which,
        /// Why, for the record.
        #[arg(long)]
        why: String,
        /// Though deliveries of it are there: messages that are numbered anew are handed out amid them, by their numbers.
        #[arg(long)]
        force: bool,
    },
    /// Let its later messages go on, behind the number that it is parked at. That one stays a dead letter.
    ///
    /// Example: snavio entities skip build-17 --destination acme/ci:build --number 4 --why "of no use any more"
    Skip {
        #[command(flatten)]
        which: Which,
        /// The number that it is parked at.
        #[arg(long)]
        number: i64,
        /// Why, for the record.
        #[arg(long)]
        why: String,
    },
}

impl Entities {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api().await?;
        let answer = match self.command {
            Command::Show { which } => api.call(Method::GET, &which.path(""), None).await?,
            Command::Reset { which, why, force } => {
                let body = json!({ "why": why, "force": force });
                api.call(Method::POST, &which.path("/reset"), Some(&body)).await?
            }
            Command::Skip { which, number, why } => {
                let body = json!({ "number": number, "why": why });
                api.call(Method::POST, &which.path("/skip"), Some(&body)).await?
            }
        };
        output.object(&answer);
        Ok(())
    }
}

impl Which {
    fn path(&self, deed: &str) -> String {
        let of = self.of.as_ref().map(|it| format!("&of={}", in_url(it))).unwrap_or_default();
        let destination = in_url(&self.destination);
        // Some names are none of a path's.
        match self.entity.as_str() {
            entity @ ("" | "." | "..") => {
                format!("/v1/entities/-{deed}?destination={destination}{of}&entity={}", in_url(entity))
            }
            entity => format!("/v1/entities/{}{deed}?destination={destination}{of}", in_url(entity)),
        }
    }
}
