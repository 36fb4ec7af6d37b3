//! `snavio register-target`.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::{CommandName, QueueName, ServiceName};

use super::dry_run::foresee;
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::{Output, print_line};

/// Register a route after it was proved: a probe goes through every stage, and nothing is delivered.
///
/// Example: snavio register-target acme/discord-bot send-message --queue bot-inbox --dead-letter-queue bot-dead
#[derive(Args)]
pub(crate) struct RegisterTarget {
    #[command(flatten)]
    node: AsOperator,
    /// The service that takes the command, as tenant/service.
    target: ServiceName,
    /// The command.
    name: CommandName,
    /// The queue it goes to.
    #[arg(long)]
    queue: QueueName,
    /// Where its dead letters gather.
    #[arg(long)]
    dead_letter_queue: QueueName,
    /// How repeats are treated: none, or strict.
    #[arg(long, default_value = "none", value_parser = ["none", "strict"])]
    claim: String,
    /// How quickly a revoked grant must act: critical, moderate or low.
    #[arg(long, default_value = "moderate", value_parser = ["critical", "moderate", "low"])]
    profile: String,
    /// When an ephemeral route ends, as RFC 3339.
    #[arg(long)]
    expires_at: Option<String>,
    /// A source to probe with, which must have its grant; without one, the target itself, as if it had one.
    #[arg(long)]
    from: Option<ServiceName>,
    /// Only prove it.
    #[arg(long)]
    dry_run: bool,
    /// Why, for the changelog.
    #[arg(long, default_value = "")]
    why: String,
}

impl RegisterTarget {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api()?;
        let route = self.route();
        let mut assume = json!({ "routes": [route] });
        if self.from.is_none() {
            assume["grants"] = json!([{ "source": self.target, "target": self.target, "name": self.name }]);
        }
        let source = self.from.as_ref().unwrap_or(&self.target);
        let wanted = json!({ "source": source, "target": self.target, "name": self.name, "assume": assume });
        foresee(&api, &wanted, output).await?;
        if self.dry_run {
            return Ok(());
        }
        let file = json!({ "routes": [route], "why": self.why });
        let answer = api.call(Method::POST, "/v1/registry/apply", Some(&file)).await?;
        if output == Output::Table {
            let is_new = answer["changes"].as_array().is_some_and(|changes| !changes.is_empty());
            let done = if is_new { "registered" } else { "registered before, nothing to change" };
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
