//! What is known of entities whose messages are ordered (ORD-6), and what goes on in them by itself.

use std::sync::Arc;

use async_trait::async_trait;
use snavio_model::order::{EntityKey, EntityRecord, EntityState, NotParked};
use snavio_model::time::Timestamp;

use crate::{Act, Deed, StoreError};

/// What is known of entities.
#[async_trait]
pub trait Entities: Send + Sync {
    /// What is known of an entity; nothing of one that is forgotten.
    async fn entity(&self, key: &EntityKey, now: Timestamp) -> Result<Option<EntityRecord>, StoreError>;

    /// Forgets an entity, on the record, and says what was known. What waits is handed out in order, and what is parked
    /// goes on.
    async fn reset_entity(&self, key: &EntityKey, act: Act) -> Result<Option<EntityState>, StoreError>;

    /// Lets later messages of an entity go on that is parked behind this number, on the record. The message stays a dead
    /// letter.
    async fn skip_parked(
        &self,
        key: &EntityKey,
        number: i64,
        act: Act,
    ) -> Result<Option<Result<EntityState, NotParked>>, StoreError>;

    /// Ends waits whose time is over, some of them, and says what was let go.
    async fn end_waits(&self, now: Timestamp) -> Result<Vec<WaitEnded>, StoreError>;
}

/// A message that was let go without those before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitEnded {
    /// Its entity.
    pub key: EntityKey,
    /// Its destination; nothing if its delivery has gone meanwhile.
    pub destination: Option<Arc<str>>,
    /// Its number.
    pub number: i64,
    /// How many numbers before it were given up.
    pub gap: u64,
}

/// What is on the record of an entity that was forgotten.
pub(crate) fn reset(key: &EntityKey, state: &EntityState) -> Deed {
    let parked = state.parked_at().map(|it| format!(", parked at {it}")).unwrap_or_default();
    let outcome = format!("it was at {}{parked}; {} waited", state.last, state.waiting.len());
    Deed { action: "entity.reset", object: key.to_text(), outcome }
}

/// What is on the record of an entity that goes on without the message it was parked behind.
pub(crate) fn skipped(key: &EntityKey, number: i64) -> Deed {
    Deed { action: "entity.skip", object: key.to_text(), outcome: format!("goes on behind {number}") }
}
