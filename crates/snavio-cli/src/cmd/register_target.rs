//! `snavio register-target`.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::{CommandName, QueueName, ServiceName};

use super::dry_run::dry_run;
use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::{Output, print_line};

/// Register a route after a dry run of a command through it.
///
/// The dry run passes every stage and delivers nothing. If the gateway would refuse the command, the route is
/// not registered.
#[derive(Args)]
#[command(after_help = "\
Example: snavio register-target acme/bot notify --queue inbox --dead-letter-queue dead
Example: snavio register-target acme/bot notify --queue inbox --dead-letter-queue dead --dry-run
Example: snavio register-target acme/ledger pay --queue pay --dead-letter-queue dead --claim strict")]
pub(crate) struct RegisterTarget {
    #[command(flatten)]
    node: OperatorConnection,
    /// The target that the command is for: tenant/service.
    target: ServiceName,
    /// The name of the command.
    name: CommandName,
    /// The queue for the deliveries.
    #[arg(long)]
    queue: QueueName,
    /// The queue for the dead letters of the route.
    #[arg(long)]
    dead_letter_queue: QueueName,
    /// The claim policy: with strict the gateway detects duplicates, with none it does not.
    #[arg(long, default_value = "none", value_parser = ["none", "strict"])]
    claim: String,
    /// The sensitivity profile: the more critical, the sooner a revoked grant takes effect.
    #[arg(long, default_value = "moderate", value_parser = ["critical", "moderate", "low"])]
    profile: String,
    /// The time at which the route expires, in RFC 3339; without it the route does not expire.
    #[arg(long)]
    expires_at: Option<String>,
    /// The source of the dry run, which must have a grant; without it, the target itself with an assumed
    /// grant.
    #[arg(long)]
    from: Option<ServiceName>,
    /// Make only the dry run and register nothing.
    #[arg(long)]
    dry_run: bool,
    /// A note for the changelog: the reason for the change.
    #[arg(long, default_value = "", hide_default_value = true)]
    why: String,
}

impl RegisterTarget {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api()?;
        let route = self.route();
        let mut assume = json!({ "routes": [route] });
        if self.from.is_none() {
            assume["grants"] = json!([{ "source": self.target, "target": self.target, "name": self.name }]);
        }
        let source = self.from.as_ref().unwrap_or(&self.target);
        let wanted = json!({ "source": source, "target": self.target, "name": self.name, "assume": assume });
        dry_run(&api, &wanted, output).await?;
        if self.dry_run {
            return Ok(());
        }
        let file = json!({ "routes": [route], "why": self.why });
        let answer = api.call(Method::POST, "/v1/registry/apply", Some(&file)).await?;
        if output == Output::Table {
            let is_new = answer["changes"].as_array().is_some_and(|changes| !changes.is_empty());
            let done = if is_new { "registered" } else { "already registered, nothing to change" };
            print_line(&format!("{done}, version {}", answer["version"]));
        }
        Ok(())
    }

    fn route(&self) -> Value {
        let mut route = json!({
            "target": self.target,
            "name": self.name,
            "queue": self.queue,
            "dead_letter_queue": self.dead_letter_queue,
            "claim": { "policy": self.claim },
            "profile": self.profile,
        });
        if let Some(end) = &self.expires_at {
            route["expires_at"] = json!(end);
        }
        route
    }
}
