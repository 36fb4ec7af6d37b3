//! `snavio receive`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_sdk::{Delivered, Delivery};

use super::Failure;
use super::ack::check_done;
use crate::CommandResult;
use crate::connection::ServiceConnection;
use crate::output::{Output, is_reader_gone};

/// Receive deliveries from a queue.
///
/// Each delivery is leased for the visibility timeout. Acknowledge it before that ends: with --ack right
/// after printing, or later with `snavio ack` and its receipt. Otherwise the queue delivers it again.
#[derive(Args)]
#[command(after_help = "Example: snavio receive -c bot.json inbox
Example: snavio receive -c bot.json inbox --max 10 --wait 20 --ack
Example: snavio receive -c bot.json inbox --visibility 300 --output json")]
pub(crate) struct Receive {
    #[command(flatten)]
    service: ServiceConnection,
    /// The name of the queue.
    queue: String,
    /// The maximum number of deliveries.
    #[arg(long, default_value_t = 1)]
    max: usize,
    /// The seconds to wait for a first delivery if the queue is empty.
    #[arg(long, default_value_t = 0)]
    wait: u64,
    /// The visibility timeout in seconds, during which no other consumer receives the deliveries.
    #[arg(long, default_value_t = bounds::VISIBILITY_DEFAULT.as_secs())]
    visibility: u64,
    /// Acknowledge the deliveries after printing them.
    #[arg(long)]
    ack: bool,
}

impl Receive {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let client = self.service.client()?;
        let (visibility, wait) = (Duration::from_secs(self.visibility), Duration::from_secs(self.wait));
        let deliveries = client.receive(&self.queue, self.max, visibility, wait).await?;
        let items: Vec<Value> = deliveries.iter().map(delivery_item).collect();
        output.print_rows(
            &Value::Array(items.clone()),
            &items,
            &["receipt", "attempt", "id", "command", "event"],
        );
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

/// A delivery as an item of the list, with its command or its event.
fn delivery_item(delivery: &Delivery) -> Value {
    let mut item = json!({
        "receipt": format!("{}:{}", delivery.delivery_id, delivery.fence),
        "attempt": delivery.attempt,
        "id": delivery.message.id(),
    });
    match &delivery.message {
        Delivered::Command(delivered) => item["command"] = delivered.command.get().into(),
        Delivered::Event(event) => {
            item["source"] = event.source.as_str().into();
            item["event"] = format!("{} {}", event.event_type, event.data.get()).into();
        }
    }
    item
}
