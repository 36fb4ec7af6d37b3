//! What is known of entities whose messages are ordered (ORD-6), and what goes on in them by itself.

use std::sync::Arc;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use snavio_model::ordering::{EntityKey, EntityRecord, EntityState, NotParked};
use snavio_model::time::Timestamp;

use crate::{Act, Deed, StoreError};

/// What is known of entities.
#[async_trait]
pub trait Entities: Send + Sync {
    /// What is known of an entity; nothing of one that is forgotten.
    async fn entity(&self, key: &EntityKey, now: Timestamp) -> Result<Option<EntityRecord>, StoreError>;

    /// Forgets an entity, on the record, and says what was known; one that is damaged, too. What waits is handed out in
    /// order, and what is parked goes on. While deliveries of it are there, only if that is said: those that are numbered
    /// anew would be handed out amid them.
    async fn reset_entity(&self, key: &EntityKey, force: bool, act: Act) -> Result<Reset, StoreError>;

    /// Lets later messages of an entity go on that is parked behind this number, on the record. The message stays a dead
    /// letter.
    async fn skip_parked(
        &self,
        key: &EntityKey,
        number: i64,
        act: Act,
    ) -> Result<Option<Result<EntityState, NotParked>>, StoreError>;

    /// Ends waits whose time is over, those of a bounded number of entities, the longest over first, and says what was let
    /// go.
    async fn end_waits(&self, now: Timestamp) -> Result<WaitsEnded, StoreError>;
}

/// What came of forgetting an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reset {
    /// Nothing was known of it.
    Unknown,
    /// This was known.
    Forgotten(EntityState),
    /// What was known could not be trusted.
    Damaged,
    /// Deliveries of it are there, and nothing was done.
    Busy {
        /// How many.
        deliveries: u64,
    },
}

/// What came of ending waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitsEnded {
    /// What was let go.
    pub ended: Vec<WaitEnded>,
    /// Whether more may be over: whoever ends them does it again.
    pub is_partial: bool,
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

/// What is on the record of an entity that was forgotten; nothing of its state where that was damaged.
pub(crate) fn reset(key: &EntityKey, state: Option<&EntityState>) -> Deed {
    let outcome = match state {
        Some(state) => {
            let parked = state.parked_at().map(|it| format!(", parked at {it}")).unwrap_or_default();
            format!("it was at {}{parked}; {} waited", state.last, state.waiting.len())
        }
        None => "it was damaged".to_owned(),
    };
    Deed { action: "entity.reset", object: named(key), outcome }
}

/// An entity on the record, which is kept for ever: its name may be personal, so a digest of it stands for it. Whoever knows
/// the name finds it.
fn named(key: &EntityKey) -> String {
    let digest = Sha256::digest(key.entity.as_bytes());
    let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{} {} sha256:{digest}", key.tenant, key.scope)
}

/// What is on the record of an entity that goes on without the message it was parked behind.
pub(crate) fn skipped(key: &EntityKey, number: i64) -> Deed {
    Deed { action: "entity.skip", object: named(key), outcome: format!("goes on behind {number}") }
}
