//! Batches of events that are signed as a whole (MSG-4): checked once, for all that is in them.

use snavio_model::name::ServiceName;
use snavio_model::refusal::Refusal;
use snavio_model::time::Timestamp;
use snavio_model::webhook::WebhookSignature;

use crate::Gate;
use crate::shield::Vouched;

impl Gate {
    /// Checks age and signature of a batch, by a registry that is not too old.
    pub async fn vouch(
        &self,
        webhook: &WebhookSignature,
        body: &[u8],
        source: &ServiceName,
        received_at: Timestamp,
    ) -> Result<Vouched, Refusal> {
        self.check_age().await?;
        Vouched::check(webhook, body, source, &self.registry(), received_at, self.window())
    }
}
