//! `snavio explain`.

use clap::Args;
use reqwest::Method;

use super::claims::in_path;
use crate::Ended;
use crate::connection::AsAnybody;
use crate::output::{Output, print_line};

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
        let tenant = self.tenant.map(|it| format!("?tenant={it}")).unwrap_or_default();
        let path = format!("/v1/messages/{}/explain{tenant}", in_path(&self.id)?);
        let explained = self.node.api().await?.call(Method::GET, &path, None).await?;
        let steps = explained["steps"].as_array().cloned().unwrap_or_default();
        let is_part = |of: &str| output == Output::Table && explained[of] == true;
        match (output, steps.is_empty()) {
            (Output::Table, true) => print_line("nothing is on record under this id"),
            _ => output.rows(&explained, &steps, &["at", "stage", "decision", "basis"]),
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
