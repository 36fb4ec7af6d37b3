//! `snavio ack`.

use clap::Args;
use serde_json::Value;
use snavio_model::delivery::Receipt;
use snavio_model::id::Serial;

use super::Failure;
use crate::CommandResult;
use crate::connection::ServiceConnection;
use crate::output::Output;

/// Acknowledge deliveries, so that the queue does not deliver them again.
#[derive(Args)]
#[command(after_help = "Example: snavio ack -c bot.json inbox 268435458:268435460
Example: snavio ack -c bot.json inbox 268435458:268435460 268435459:268435461
Example: snavio ack -c bot.json inbox 268435458:268435460 --output json")]
pub(crate) struct Ack {
    #[command(flatten)]
    service: ServiceConnection,
    /// The name of the queue.
    queue: String,
    /// The receipts, as printed by `snavio receive`.
    #[arg(required = true, value_parser = receipt)]
    receipts: Vec<Receipt>,
}

impl Ack {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let answer = self.service.client()?.acknowledge(&self.queue, &self.receipts).await?;
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        output.print_rows(&answer, &results, &["delivery_id", "outcome"]);
        check_done(&answer)
    }
}

/// Returns a failure that names each delivery whose acknowledgement was refused.
pub(super) fn check_done(answer: &Value) -> CommandResult {
    let results = answer["results"].as_array().into_iter().flatten();
    let refused: Vec<_> = results
        .filter(|result| result["outcome"] != "done")
        .map(|result| {
            format!("{} is {}", result["delivery_id"], result["outcome"].as_str().unwrap_or_default())
        })
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "not acknowledged: delivery {}; a delivery whose lease has ended may be delivered again",
        refused.join(", ")
    )))
}

fn receipt(text: &str) -> Result<Receipt, &'static str> {
    let parts = text.split_once(':').and_then(|(id, fence)| Some((id.parse().ok()?, fence.parse().ok()?)));
    let (id, fence) =
        parts.ok_or("a receipt must be <delivery id>:<fencing token>, as snavio receive prints it")?;
    Ok(Receipt { delivery_id: Serial(id), fence: Serial(fence) })
}
