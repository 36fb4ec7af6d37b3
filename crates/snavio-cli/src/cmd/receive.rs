//! `snavio receive`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_sdk::{Delivered, Delivery};

use super::Failure;
use super::ack::check_done;
use crate::Ended;
use crate::connection::AsService;
use crate::output::{Output, is_reader_gone};

/// Receive deliveries from a queue.
///
/// They come back when their visibility ends, unless they are acknowledged: at once with --ack, or later with
/// `snavio ack` and the receipt shown.
///
/// Example: snavio receive -c credentials/acme/discord-bot.json bot-inbox --max 10 --wait 20 --ack
#[derive(Args)]
pub(crate) struct Receive {
    #[command(flatten)]
    service: AsService,
    /// The queue.
    queue: String,
    /// How many at most.
    #[arg(long, default_value_t = 1)]
    max: usize,
    /// Seconds to wait for the first one.
    #[arg(long, default_value_t = 0)]
    wait: u64,
    /// Seconds for which they are hidden from others.
    #[arg(long, default_value_t = bounds::VISIBILITY_DEFAULT.as_secs())]
    visibility: u64,
    /// Acknowledge them once they are printed.
    #[arg(long)]
    ack: bool,
}

impl Receive {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let client = self.service.client()?;
        let (visibility, wait) = (Duration::from_secs(self.visibility), Duration::from_secs(self.wait));
        let deliveries = client.receive(&self.queue, self.max, visibility, wait).await?;
        let items: Vec<Value> = deliveries.iter().map(item).collect();
        output.rows(&Value::Array(items.clone()), &items, &["receipt", "attempt", "id", "command", "event"]);
        if self.ack && is_reader_gone() {
            return Err(Failure::new(
                "standard output was closed before all deliveries were printed; none was acknowledged",
            ));
        }
        if self.ack && !deliveries.is_empty() {
            let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
            return check_done(&client.acknowledge(&self.queue, &receipts).await?);
        }
        Ok(())
    }
}

/// A delivery with what its message says: a command, or an event's type and data.
fn item(delivery: &Delivery) -> Value {
    let mut item = json!({
        "receipt": format!("{}:{}", delivery.delivery_id, delivery.fence),
        "attempt": delivery.attempt,
        "id": delivery.message.id(),
    });
    match &delivery.message {
        Delivered::Command(it) => item["command"] = it.command.get().into(),
        Delivered::Event(it) => {
            item["source"] = it.source.as_str().into();
            item["event"] = format!("{} {}", it.event_type, it.data.get()).into();
        }
    }
    item
}
