//! `snavio push`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::Failure;
use crate::Ended;
use crate::connection::{AsOperator, path};
use crate::output::Output;

/// Look after pushes: how a receiver is, a new secret, and pushing again after it said that it is gone.
///
/// A route or subscription is named by its destination: acme/bot:pay, or acme/ledger:acme/shop:order.paid.
///
/// Example: snavio push status acme/ledger:acme/shop:order.paid
#[derive(Args)]
pub(crate) struct Push {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show where a route pushes to, what waits, and whether its receiver is there.
    ///
    /// Example: snavio push status acme/bot:pay
    Status {
        #[command(flatten)]
        node: AsOperator,
        /// The route or subscription: tenant/service:name, or tenant/service:publisher:type.
        destination: String,
    },
    /// Make a new secret for a route's pushes, and show it this once. Requests are signed with both until the overlap ends.
    ///
    /// Example: snavio push rotate acme/bot:pay --why "was in a log"
    Rotate {
        #[command(flatten)]
        node: AsOperator,
        /// The route or subscription: tenant/service:name, or tenant/service:publisher:type.
        destination: String,
        /// Why, for the changelog.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Push again by a route that was disabled, because its receiver answered 410 or by hand. What waited is sent.
    ///
    /// Example: snavio push enable acme/bot:pay --why "the hook is back"
    Enable {
        #[command(flatten)]
        node: AsOperator,
        /// The route or subscription: tenant/service:name, or tenant/service:publisher:type.
        destination: String,
        /// Why, for the changelog.
        #[arg(long, default_value = "")]
        why: String,
    },
}

impl Push {
    pub(crate) async fn run(self, output: Output) -> Ended {
        match self.command {
            Command::Status { node, destination } => {
                let api = node.api()?;
                let route = api.call(Method::GET, &path(&place(&destination)?, &[]), None).await?;
                let tenant = destination.split('/').next().unwrap_or_default();
                let queue = path(
                    &["v1", "queues", route["queue"].as_str().unwrap_or_default()],
                    &[("tenant", tenant)],
                );
                let queue = api.call(Method::GET, &queue, None).await?;
                output.object(&status(&destination, &route, &queue));
                Ok(())
            }
            Command::Rotate { node, destination, why } => {
                let place = [&place(&destination)?[..], &["push-secret", "rotate"]].concat();
                let path = path(&place, &[]);
                let made = node.api()?.call(Method::POST, &path, Some(&json!({ "why": why }))).await?;
                output.object(&made);
                Ok(())
            }
            Command::Enable { node, destination, why } => {
                let (api, place) = (node.api()?, place(&destination)?);
                let mut route = api.call(Method::GET, &path(&place, &[]), None).await?;
                if let Some(members) = route.as_object_mut() {
                    members.remove("disabled");
                }
                let enabled = api.call(Method::PUT, &path(&place, &[("why", &why)]), Some(&route)).await?;
                output.object(&enabled);
                Ok(())
            }
        }
    }
}

/// What people want to know of a push, in one document.
fn status(destination: &str, route: &Value, queue: &Value) -> Value {
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

/// Where the API has a route or subscription.
fn place(destination: &str) -> Result<Vec<&str>, Failure> {
    let unfit = "a destination is tenant/service:name, or tenant/service:publisher-tenant/publisher:type";
    let parts: Vec<_> = destination.split(':').map(|it| it.split('/').collect::<Vec<_>>()).collect();
    let kind = match parts.iter().map(Vec::len).collect::<Vec<_>>()[..] {
        [2, 1] => "routes",
        [2, 2, 1] => "subscriptions",
        _ => return Err(Failure::misuse(unfit)),
    };
    let place: Vec<_> = ["v1", kind].into_iter().chain(parts.into_iter().flatten()).collect();
    if place.contains(&"") { Err(Failure::misuse(unfit)) } else { Ok(place) }
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
            let place = place(destination).map(|it| it.join("/"));
            assert_eq!(place.ok().as_deref(), found, "{destination}");
        }
    }
}
