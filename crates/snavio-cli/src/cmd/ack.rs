//! `snavio ack`.

use clap::Args;
use serde_json::Value;
use snavio_model::delivery::Receipt;
use snavio_model::id::Serial;

use super::Failure;
use crate::Ended;
use crate::connection::AsService;
use crate::output::Output;

/// Acknowledge deliveries: they are done, and not handed out again.
///
/// Example: snavio ack -c credentials/acme/discord-bot.json bot-inbox 268435458:268435460
#[derive(Args)]
pub(crate) struct Ack {
    #[command(flatten)]
    service: AsService,
    /// The queue.
    queue: String,
    /// Receipts, as `snavio receive` shows them.
    #[arg(required = true, value_parser = receipt)]
    receipts: Vec<Receipt>,
}

impl Ack {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let answer = self.service.client()?.acknowledge(&self.queue, &self.receipts).await?;
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        output.rows(&answer, &results, &["delivery_id", "outcome"]);
        check_done(&answer)
    }
}

/// Everything was acknowledged, or it is said what was not.
pub(super) fn check_done(answer: &Value) -> Ended {
    let results = answer["results"].as_array().into_iter().flatten();
    let undone = results.filter(|it| it["outcome"] != "done");
    let told: Vec<_> = undone
        .map(|it| format!("{} is {}", it["delivery_id"], it["outcome"].as_str().unwrap_or_default()))
        .collect();
    if told.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("not acknowledged by this: delivery {}", told.join(", "))))
}

fn receipt(text: &str) -> Result<Receipt, &'static str> {
    let parts = text.split_once(':').and_then(|(id, fence)| Some((id.parse().ok()?, fence.parse().ok()?)));
    let (id, fence) = parts.ok_or("a receipt is <delivery>:<fence>")?;
    Ok(Receipt { delivery_id: Serial(id), fence: Serial(fence) })
}
