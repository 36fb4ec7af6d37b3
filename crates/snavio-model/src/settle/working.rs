//! What a batch is judged by: the claims, meanings, conflicts, entities and rooms that are there.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use crate::claim::conflict::Dispute;
use crate::claim::{Claim, ClaimKey, IdKey, Original};
use crate::hash::DomainHash;
use crate::id::Serial;
use crate::name::QueueKey;
use crate::ordering::{EntityKey, EntityRecord};

/// What a backend loads for a batch, and judge changes as it goes along.
#[derive(Debug)]
pub struct Working {
    /// The claims found under the keys of the batch.
    pub claims: HashMap<ClaimKey, Claim>,
    /// Claims that are there but cannot be trusted: what needs them is refused.
    pub unreadable: HashSet<ClaimKey>,
    /// Ids of the batch under which work goes on at destinations that it does not name: they mean what they did.
    pub claimed: HashSet<IdKey>,
    /// What the ids of the batch mean, where contents are compared; nothing of one that cannot be trusted.
    pub originals: HashMap<IdKey, Option<Known>>,
    /// The conflicts that are recorded under ids of the batch, in their order.
    pub conflicts: HashMap<IdKey, Vec<Recorded>>,
    /// What is known of the entities of the batch.
    pub entities: HashMap<EntityKey, EntityRecord>,
    /// Entities whose records cannot be trusted.
    pub unreadable_entities: HashSet<EntityKey>,
    /// How many more deliveries each queue of the batch may take.
    pub room: HashMap<QueueKey, usize>,
    /// The store's registry version, where an intake asks for it.
    pub registry_version: Option<i64>,
    /// The last number given.
    pub last: Serial,
}

impl Working {
    /// An empty working set that numbers on from `last`.
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

    /// The next number.
    pub(super) fn number(&mut self) -> Serial {
        self.last = self.last.next();
        self.last
    }
}

/// What an id means.
#[derive(Debug, Clone)]
pub struct Known {
    /// What was first.
    pub original: Original,
    /// Whether it is of this very batch.
    pub is_new: bool,
}

impl Known {
    /// Of an id that was taken while contents were not compared: what its claim's message says.
    pub fn by_claim(claim: &Claim, hash: DomainHash) -> Self {
        let (source, message, expires_at) = (claim.source.clone(), claim.message, claim.expires_at);
        Self { original: Original { source, message, hash, expires_at }, is_new: false }
    }
}

/// A conflict that is on record.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its id.
    pub conflict: Serial,
    /// Its place among those of its id.
    pub place: u32,
    /// What it is about; nothing of one that is damaged.
    pub dispute: Option<Dispute>,
    /// Its place among the delta's, if it is of this very batch.
    pub new: Option<usize>,
}
