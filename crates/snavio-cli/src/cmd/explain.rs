//! `snavio explain`.

use clap::Args;
use reqwest::Method;
use serde_json::Value;
use snavio_model::percent::in_url;

use super::claims::in_path;
use crate::Ended;
use crate::connection::AsAnybody;
use crate::output::{Output, cell, on_a_line, print_line, print_lines};

/// Show every decision that was taken on a message, accepted or refused, with what each was based on.
///
/// Example: snavio explain 0193a1c2-7d1e-7c3a-9f51-2b6f6f0a9d11 --tenant acme
#[derive(Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    node: AsAnybody,
    /// The message's id.
    id: String,
    /// The tenant that sent it, when you are there for all.
    #[arg(long)]
    tenant: Option<String>,
}

impl Explain {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let tenant = self.tenant.map(|it| format!("?tenant={}", in_url(&it))).unwrap_or_default();
        let path = format!("/v1/messages/{}/explain{tenant}", in_path(&self.id)?);
        let explained = self.node.api().await?.call(Method::GET, &path, None).await?;
        let steps = explained["steps"].as_array().cloned().unwrap_or_default();
        let is_part = |of: &str| output == Output::Table && explained[of] == true;
        match (output, steps.is_empty()) {
            (Output::Table, true) => print_line("nothing is on record under this id"),
            (Output::Table, false) => steps.iter().for_each(print_step),
            (Output::Json, _) => output.object(&explained),
        }
        if is_part("searched_in_part") {
            print_line(
                "only the newest telemetry was looked through: what was refused longer ago is not shown",
            );
        }
        if is_part("messages_searched_in_part") {
            print_line(
                "no claim is kept under this id, and only the newest 10,000 messages were looked through: one that was taken \
                 longer ago is in the database's table message, where it is searched for by its column id",
            );
        }
        Ok(())
    }
}

/// A decision on a line, and below it what it was based on.
fn print_step(step: &Value) {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    print_line(&format!("{}  {}: {}", text("at"), text("stage"), on_a_line(text("decision"))));
    for (name, value) in step["basis"].as_object().into_iter().flatten().filter(|(_, it)| !it.is_null()) {
        print_lines(&format!("{name}: {}", cell(value)));
    }
}
