//! The registry with which a gate starts, and how current it is.

use snavio_model::registry::{Registry, Unseal};
use snavio_store::{Store, StoreError};
use tokio::time::Instant;

/// A registry that was loaded as a whole.
pub struct Loaded {
    /// The registry.
    pub registry: Registry,
    /// When it was last known to be right: its age counts from here (REG-23).
    pub current_at: Instant,
}

impl Loaded {
    /// Reads every entry from the store.
    pub async fn from_store(store: &dyn Store, unseal: &dyn Unseal) -> Result<Self, StoreError> {
        let current_at = Instant::now();
        let (version, entries) = store.load().await?;
        let mut registry = Registry::default().at_version(version);
        registry.fill(entries, unseal);
        Ok(Self { registry, current_at })
    }
}
