//! The working set of a batch: claims, id records, conflicts, entities and free queue room.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use crate::claim::conflict::Dispute;
use crate::claim::{Claim, ClaimKey, IdKey, Original};
use crate::hash::DomainHash;
use crate::id::Serial;
use crate::name::QueueKey;
use crate::ordering::{EntityKey, EntityRecord};

/// The data that a backend loads for a batch. The judgement changes it from message to message.
#[derive(Debug)]
pub struct Working {
    /// The claims that exist under the keys of the batch.
    pub claims: HashMap<ClaimKey, Claim>,
    /// Claims with damaged records. Messages that need them are refused.
    pub unreadable: HashSet<ClaimKey>,
    /// Ids of the batch with work in progress at destinations outside the batch. Their id records stay in
    /// force.
    pub claimed: HashSet<IdKey>,
    /// The id records of the batch's ids, if content is compared; `None` for a damaged record.
    pub originals: HashMap<IdKey, Option<Known>>,
    /// The recorded conflicts under ids of the batch, in their order.
    pub conflicts: HashMap<IdKey, Vec<Recorded>>,
    /// The states of the batch's entities.
    pub entities: HashMap<EntityKey, EntityRecord>,
    /// Entities with damaged records.
    pub unreadable_entities: HashSet<EntityKey>,
    /// The number of further deliveries that each queue of the batch can hold.
    pub room: HashMap<QueueKey, usize>,
    /// The version of the store's registry, if an intake requires it.
    pub registry_version: Option<i64>,
    /// The last number that was assigned.
    pub last: Serial,
}

impl Working {
    /// An empty working set that assigns numbers above `last`.
    pub fn after(last: Serial) -> Self {
        Self {
            claims: HashMap::new(),
            unreadable: HashSet::new(),
            claimed: HashSet::new(),
            originals: HashMap::new(),
            conflicts: HashMap::new(),
            entities: HashMap::new(),
            unreadable_entities: HashSet::new(),
            room: HashMap::new(),
            registry_version: None,
            last,
        }
    }

    /// Assigns the next number.
    pub(super) fn next_number(&mut self) -> Serial {
        self.last = self.last.next();
        self.last
    }
}

/// An id record in the working set.
#[derive(Debug, Clone)]
pub struct Known {
    /// The record of the first message.
    pub original: Original,
    /// Whether the record was created in this batch.
    pub is_new: bool,
}

impl Known {
    /// The id record of an id that was claimed while its content was not compared. The claim's message
    /// supplies the content.
    pub fn by_claim(claim: &Claim, hash: DomainHash) -> Self {
        let (source, message, expires_at) = (claim.source.clone(), claim.message, claim.expires_at);
        Self { original: Original { source, message, hash, expires_at }, is_new: false }
    }
}

/// A recorded conflict.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub conflict: Serial,
    /// Its position among the conflicts of its id.
    pub place: u32,
    /// The dispute; `None` if the record is damaged.
    pub dispute: Option<Dispute>,
    /// Its index in the delta, if it was recorded in this batch.
    pub new: Option<usize>,
}
