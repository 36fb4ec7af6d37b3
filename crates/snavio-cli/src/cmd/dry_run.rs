//! `snavio dry-run`.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::{CommandName, ServiceName};
use snavio_sdk::Api;

use super::{Failure, apply, read_text};
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::{Output, print_line};

/// Say what would happen to a message, stage by stage, without sending it.
///
/// Example: snavio dry-run --source acme/billing -f message.json
#[derive(Args)]
pub(crate) struct DryRun {
    #[command(flatten)]
    node: AsOperator,
    /// The service that would send it.
    #[arg(long)]
    source: ServiceName,
    /// The message, as it would be sent; it need not be signed.
    #[arg(long, short, conflicts_with_all = ["target", "name"], required_unless_present = "target")]
    file: Option<PathBuf>,
    /// Instead of a message: the service that a probe is for,
    #[arg(long, requires = "name")]
    target: Option<ServiceName>,
    /// and the command.
    #[arg(long, requires = "target")]
    name: Option<CommandName>,
    /// A registry file that is to be taken for applied.
    #[arg(long)]
    assume: Option<PathBuf>,
}

impl DryRun {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let mut wanted = json!({ "source": self.source });
        if let Some(file) = &self.file {
            let (name, text) = (file.display(), read_text(file)?);
            wanted["message"] = serde_json::from_str(&text)
                .map_err(|error| Failure::of(format!("{name} is not JSON"), &error))?;
        } else {
            wanted["target"] = json!(self.target);
            wanted["name"] = json!(self.name);
        }
        if let Some(file) = &self.assume {
            wanted["assume"] = apply::read(file)?;
        }
        foresee(&self.node.api()?, &wanted, output).await
    }
}

/// Asks, shows each step, and fails where the message would be refused.
pub(crate) async fn foresee(api: &Api, wanted: &Value, output: Output) -> Ended {
    let foreseen = api.call(Method::POST, "/v1/dry-run", Some(wanted)).await?;
    let steps = foreseen["steps"].as_array().cloned().unwrap_or_default();
    output.rows(&foreseen, &steps, &["stage", "check", "verdict", "detail"]);
    if foreseen["accepted"] != true {
        let reason = foreseen["reason"].as_str().unwrap_or_default();
        return Err(Failure::new(format!("it would be refused: {reason}")));
    }
    if output == Output::Table {
        print_line("it would be accepted");
    }
    Ok(())
}
