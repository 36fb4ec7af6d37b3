//! The time at which services last asked for their configuration (REG-11), shared by all nodes.

use snavio_model::name::ServiceName;
use snavio_model::registry::KeyRing;
use snavio_model::time::Timestamp;
use snavio_store::StoreError;

use crate::{Gate, ServiceNote};

impl Gate {
    /// Records that a service asked for its configuration.
    pub async fn note_poll(&self, service: &ServiceName, at: Timestamp) -> Result<(), StoreError> {
        self.store().set_note(&ServiceNote::Polled.of(service), &at.to_string(), Vec::new()).await
    }

    /// The time at which a service last asked for its configuration, if it is known. A time before the oldest
    /// of its keys is ignored: it belongs to an earlier service of the same name.
    pub async fn last_poll(&self, service: &ServiceName) -> Result<Option<Timestamp>, StoreError> {
        let Some(since) = self.first_key_at(service) else { return Ok(None) };
        let noted = self.store().note(&ServiceNote::Polled.of(service)).await?;
        Ok(noted.and_then(|text| Timestamp::parse(&text)).filter(|at| *at >= since))
    }

    /// The creation time of the oldest key of a service.
    fn first_key_at(&self, service: &ServiceName) -> Option<Timestamp> {
        let registry = self.registry();
        KeyRing::of(&registry, service)?.keys().iter().map(|key| key.created_at).min()
    }
}
