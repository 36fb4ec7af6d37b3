//! When the owners of keys last asked for their configuration (REG-11), as all nodes know it.

use snavio_model::name::ServiceName;
use snavio_model::time::Timestamp;
use snavio_store::StoreError;

use crate::Gate;

fn note(service: &ServiceName) -> String {
    format!("polled/{service}")
}

impl Gate {
    /// Notes that a service asked for its configuration.
    pub async fn note_poll(&self, service: &ServiceName, at: Timestamp) -> Result<(), StoreError> {
        self.store().set_note(&note(service), &at.to_string(), Vec::new()).await
    }

    /// When a service last asked for its configuration, as far as is noted.
    pub async fn last_poll(&self, service: &ServiceName) -> Result<Option<Timestamp>, StoreError> {
        let noted = self.store().note(&note(service)).await?;
        Ok(noted.and_then(|text| Timestamp::parse(&text)))
    }
}
