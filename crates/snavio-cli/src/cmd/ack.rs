//! `snavio ack`.

use clap::Args;
use snavio_model::delivery::Receipt;
use snavio_model::id::Serial;

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
        Ok(())
    }
}

fn receipt(text: &str) -> Result<Receipt, &'static str> {
    let parts = text.split_once(':').and_then(|(id, fence)| Some((id.parse().ok()?, fence.parse().ok()?)));
    let (id, fence) = parts.ok_or("a receipt is <delivery>:<fence>")?;
    Ok(Receipt { delivery_id: Serial(id), fence: Serial(fence) })
}
