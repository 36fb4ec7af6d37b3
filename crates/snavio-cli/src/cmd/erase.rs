//! `snavio erase`.

use clap::Args;
use reqwest::Method;
use serde_json::json;

use crate::Ended;
use crate::connection::AsOperator;
use crate::output::Output;

/// Destroy what an id said: payload and answer, in the store and in the archive.
///
/// Hash, reference, status and times stay, and the id is known as before. It cannot be undone, and is refused while a
/// hold is on it.
///
/// Example: snavio erase 7c0f… --tenant acme --why "request 4711 of the person concerned"
#[derive(Args)]
pub(crate) struct Erase {
    #[command(flatten)]
    node: AsOperator,
    /// The message's id.
    event: String,
    /// The tenant whose id it is.
    #[arg(long)]
    tenant: String,
    /// Why, for the record.
    #[arg(long)]
    why: String,
}

impl Erase {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let body = json!({ "tenant": self.tenant, "eventId": self.event, "why": self.why });
        output.object(&self.node.api()?.call(Method::POST, "/v1/erasures", Some(&body)).await?);
        Ok(())
    }
}
