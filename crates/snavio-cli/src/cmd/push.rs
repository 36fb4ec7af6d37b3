//! `snavio push`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::Failure;
use crate::CommandResult;
use crate::connection::{OperatorConnection, path};
use crate::output::Output;

/// Show the health of HTTP receivers, rotate push secrets and enable disabled routes.
///
/// A route is named by its destination, for example acme/bot:pay. A subscription is too, for example
/// acme/ledger:acme/shop:order.paid.
#[derive(Args)]
#[command(after_help = "Example: snavio push status acme/ledger:acme/shop:order.paid
Example: snavio push rotate acme/bot:pay --why 'the secret was in a log'
Example: snavio push enable acme/bot:pay --why 'the hook is back'")]
pub(crate) struct Push {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the receiver of a route, its health and the deliveries that wait for it.
    #[command(after_help = "Example: snavio push status acme/bot:pay
Example: snavio push status acme/ledger:acme/shop:order.paid
Example: snavio push status acme/bot:pay --output json")]
    Status {
        #[command(flatten)]
        node: OperatorConnection,
        /// The route or subscription: tenant/service:name, or tenant/service:publisher-tenant/publisher:type.
        destination: String,
    },
    /// Make a new secret for the pushes of a route.
    ///
    /// The new secret is shown once. Until the overlap ends, the gateway signs requests with both secrets.
    #[command(after_help = "Example: snavio push rotate acme/bot:pay
Example: snavio push rotate acme/bot:pay --why 'the secret was in a log'
Example: snavio push rotate acme/ledger:acme/shop:order.paid --output json")]
    Rotate {
        #[command(flatten)]
        node: OperatorConnection,
        /// The route or subscription: tenant/service:name, or tenant/service:publisher-tenant/publisher:type.
        destination: String,
        /// A note for the changelog: the reason for the change.
        #[arg(long, default_value = "", hide_default_value = true)]
        why: String,
    },
    /// Enable a disabled route, so that the gateway pushes the waiting deliveries.
    ///
    /// A route is disabled if its receiver answers 410 (Gone), or by hand.
    #[command(after_help = "Example: snavio push enable acme/bot:pay
Example: snavio push enable acme/bot:pay --why 'the hook is back'
Example: snavio push enable acme/ledger:acme/shop:order.paid")]
    Enable {
        #[command(flatten)]
        node: OperatorConnection,
        /// The route or subscription: tenant/service:name, or tenant/service:publisher-tenant/publisher:type.
        destination: String,
        /// A note for the changelog: the reason for the change.
        #[arg(long, default_value = "", hide_default_value = true)]
        why: String,
    },
}

impl Push {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        match self.command {
            Command::Status { node, destination } => {
                let api = node.api()?;
                let route = api.call(Method::GET, &path(&api_segments(&destination)?, &[]), None).await?;
                let tenant = destination.split('/').next().unwrap_or_default();
                let queue = path(
                    &["v1", "queues", route["queue"].as_str().unwrap_or_default()],
                    &[("tenant", tenant)],
                );
                let queue = api.call(Method::GET, &queue, None).await?;
                output.print_object(&push_status(&destination, &route, &queue));
                Ok(())
            }
            Command::Rotate { node, destination, why } => {
                let segments = [&api_segments(&destination)?[..], &["push-secret", "rotate"]].concat();
                let path = path(&segments, &[]);
                let made = node.api()?.call(Method::POST, &path, Some(&json!({ "why": why }))).await?;
                output.print_object(&made);
                Ok(())
            }
            Command::Enable { node, destination, why } => {
                let (api, segments) = (node.api()?, api_segments(&destination)?);
                let mut route = api.call(Method::GET, &path(&segments, &[]), None).await?;
                if let Some(members) = route.as_object_mut() {
                    members.remove("disabled");
                }
                let enabled = api.call(Method::PUT, &path(&segments, &[("why", &why)]), Some(&route)).await?;
                output.print_object(&enabled);
                Ok(())
            }
        }
    }
}

/// Joins the facts about a push from its route and its queue.
fn push_status(destination: &str, route: &Value, queue: &Value) -> Value {
    json!({
        "destination": destination,
        "kind": route["processing"]["kind"],
        "url": route["processing"]["url"],
        "form": route["processing"]["form"].as_str().unwrap_or("native"),
        "disabled": route["disabled"],
        "problem": queue["target"]["problem"],
        "breaker": queue["target"]["breaker"],
        "failures": queue["target"]["failures"],
        "probes_at": queue["target"]["probes_at"],
        "crowded_until": queue["target"]["crowded_until"],
        "calls": queue["target"]["calls"],
        "depth": queue["depth"],
        "in_flight": queue["in_flight"],
        "delayed": queue["delayed"],
        "oldest_age_seconds": queue["oldest_age_seconds"],
    })
}

/// The segments of the API path of a route or subscription.
fn api_segments(destination: &str) -> Result<Vec<&str>, Failure> {
    let parts: Vec<_> = destination.split(':').map(|part| part.split('/').collect::<Vec<_>>()).collect();
    let kind = match parts.iter().map(Vec::len).collect::<Vec<_>>()[..] {
        [2, 1] => "routes",
        [2, 2, 1] => "subscriptions",
        _ => return Err(invalid_destination(destination)),
    };
    let segments: Vec<_> = ["v1", kind].into_iter().chain(parts.into_iter().flatten()).collect();
    if segments.contains(&"") { Err(invalid_destination(destination)) } else { Ok(segments) }
}

fn invalid_destination(destination: &str) -> Failure {
    Failure::misuse(format!(
        "{destination:?} is not a destination; use tenant/service:name for a route, \
         or tenant/service:publisher-tenant/publisher:type for a subscription"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DLV-1
    #[test]
    fn destinations_are_routes_and_subscriptions() {
        for (destination, found) in [
            ("acme/bot:pay", Some("v1/routes/acme/bot/pay")),
            ("acme/ledger:acme/shop:order.paid", Some("v1/subscriptions/acme/ledger/acme/shop/order.paid")),
            ("acme/bot", None),
            ("acme:bot:pay", None),
            ("acme/bot:", None),
            ("", None),
        ] {
            let path = api_segments(destination).map(|segments| segments.join("/"));
            assert_eq!(path.ok().as_deref(), found, "{destination}");
        }
    }
}
