//! `snavio explain`.

use clap::Args;
use reqwest::Method;
use serde_json::Value;
use snavio_model::percent::in_url;

use super::claims::path_segment;
use crate::CommandResult;
use crate::connection::AnyConnection;
use crate::output::{Output, cell_text, print_line, print_lines, single_line};

/// Show every decision of the gateway on a message, with the facts behind it.
///
/// The message can be an accepted or a refused one.
#[derive(Args)]
#[command(after_help = "Example: snavio explain 0193a1c2-7d1e-7c3a-9f51-2b6f6f0a9d11 --tenant acme
Example: snavio explain order-7 -c credentials/acme/shop.json
Example: snavio explain order-7 --tenant acme --output json")]
pub(crate) struct Explain {
    #[command(flatten)]
    node: AnyConnection,
    /// The id of the message.
    id: String,
    /// The tenant that sent the message; needed with a platform-wide token.
    #[arg(long)]
    tenant: Option<String>,
}

impl Explain {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let tenant = self.tenant.map(|tenant| format!("?tenant={}", in_url(&tenant))).unwrap_or_default();
        let path = format!("/v1/messages/{}/explain{tenant}", path_segment(&self.id)?);
        let explained = self.node.api().await?.call(Method::GET, &path, None).await?;
        let steps = explained["steps"].as_array().cloned().unwrap_or_default();
        if output == Output::Json {
            output.print_object(&explained);
            return Ok(());
        }
        if steps.is_empty() {
            print_line("nothing is on record under this id");
        }
        steps.iter().for_each(print_step);
        if explained["searched_in_part"] == true {
            print_line(
                "the node searched only the newest telemetry: it does not show refusals from before that",
            );
        }
        if explained["messages_searched_in_part"] == true {
            print_line(
                "no claim is kept under this id, and the node searched only the newest 10,000 messages: find an older \
                 message in the table message of the database, by its column id",
            );
        }
        Ok(())
    }
}

/// Prints a decision on one line and the facts behind it below.
fn print_step(step: &Value) {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    print_line(&format!("{}  {}: {}", text("at"), text("stage"), single_line(text("decision"))));
    let facts = step["basis"].as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    for (name, value) in facts {
        print_lines(&format!("{name}: {}", cell_text(value)));
    }
}
