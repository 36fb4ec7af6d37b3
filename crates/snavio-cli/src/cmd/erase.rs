//! `snavio erase`.

use clap::Args;
use reqwest::Method;
use serde_json::json;

use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::Output;

/// Destroy the content of a message id in the store and in the archive.
///
/// The content is the payload and the response. The hash, reference, status and times stay, and the gateway
/// still detects duplicates of the id. An erasure cannot be undone. The gateway refuses it while a legal hold
/// covers the id.
#[derive(Args)]
#[command(after_help = "\
Example: snavio erase invoice-4711 --tenant acme --why 'request 4711 of the person concerned'
Example: snavio erase 0193a1c2-7d1e-7c3a-9f51-2b6f6f0a9d11 --tenant acme --why 'sent by mistake'
Example: snavio erase invoice-4711 --tenant acme --why 'request 4711' --output json")]
pub(crate) struct Erase {
    #[command(flatten)]
    node: OperatorConnection,
    /// The id of the message.
    event: String,
    /// The tenant that sent the message.
    #[arg(long)]
    tenant: String,
    /// A note for the audit log: the reason for the erasure.
    #[arg(long)]
    why: String,
}

impl Erase {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let body = json!({ "tenant": self.tenant, "eventId": self.event, "why": self.why });
        output.print_object(&self.node.api()?.call(Method::POST, "/v1/erasures", Some(&body)).await?);
        Ok(())
    }
}
