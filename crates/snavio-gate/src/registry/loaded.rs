//! The registry that a gate starts with, and its age.

use snavio_model::registry::{Registry, Unseal};
use snavio_model::time::{Clock, Timestamp};
use snavio_store::{Store, StoreError};

/// A registry that was loaded as a whole.
pub struct Loaded {
    pub registry: Registry,
    /// The time at which the registry was last known to be current; its age counts from here (REG-23).
    pub current_at: Timestamp,
}

impl Loaded {
    /// Reads every entry from the store.
    pub async fn from_store(
        store: &dyn Store,
        clock: &dyn Clock,
        unseal: &dyn Unseal,
    ) -> Result<Self, StoreError> {
        let current_at = clock.now();
        let (version, entries) = store.load().await?;
        let mut registry = Registry::default().at_version(version);
        registry.fill(entries, unseal);
        Ok(Self { registry, current_at })
    }
}
