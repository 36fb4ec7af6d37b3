//! `snavio dry-run`.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::{CommandName, ServiceName};
use snavio_sdk::Api;

use super::{Failure, apply, read_text};
use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::{Output, print_line};

/// Check whether the gateway would accept a message, without sending it.
///
/// The command prints the verdict of each stage. It exits with 1 if the gateway would refuse the message.
#[derive(Args)]
#[command(after_help = "Example: snavio dry-run --source acme/billing -f message.json
Example: snavio dry-run --source acme/billing --target acme/bot --name notify
Example: snavio dry-run --source acme/billing -f message.json --assume registry.toml")]
pub(crate) struct DryRun {
    #[command(flatten)]
    node: OperatorConnection,
    /// The service that would send the message: tenant/service.
    #[arg(long)]
    source: ServiceName,
    /// A file with the message in JSON, signed or unsigned.
    #[arg(long, short, conflicts_with_all = ["target", "name"], required_unless_present = "target")]
    file: Option<PathBuf>,
    /// The target of a probe message, instead of --file.
    #[arg(long, requires = "name")]
    target: Option<ServiceName>,
    /// The command of the probe message.
    #[arg(long, requires = "target")]
    name: Option<CommandName>,
    /// A registry file: judge as if it were applied.
    #[arg(long)]
    assume: Option<PathBuf>,
}

impl DryRun {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let mut wanted = json!({ "source": self.source });
        if let Some(file) = &self.file {
            let (name, text) = (file.display(), read_text(file)?);
            wanted["message"] = serde_json::from_str(&text)
                .map_err(|error| Failure::caused_by(format!("{name} is not JSON"), &error))?;
        } else {
            wanted["target"] = json!(self.target);
            wanted["name"] = json!(self.name);
        }
        if let Some(file) = &self.assume {
            wanted["assume"] = apply::read(file)?;
        }
        dry_run(&self.node.api()?, &wanted, output).await
    }
}

/// Requests a dry run and prints its steps. It returns a failure if the message would be refused.
pub(crate) async fn dry_run(api: &Api, wanted: &Value, output: Output) -> CommandResult {
    let answer = api.call(Method::POST, "/v1/dry-run", Some(wanted)).await?;
    let steps = answer["steps"].as_array().cloned().unwrap_or_default();
    output.print_rows(&answer, &steps, &["stage", "check", "verdict", "detail"]);
    if answer["accepted"] != true {
        let reason = answer["reason"].as_str().unwrap_or_default();
        return Err(Failure::new(format!("the message would be refused: {reason}")));
    }
    if output == Output::Table {
        print_line("the message would be accepted");
    }
    Ok(())
}
