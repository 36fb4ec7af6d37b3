//! What a purge takes out of a queue, and what it leaves (CLM-7, DLV-2).

use snavio_model::delivery::DeadReason;
use snavio_model::id::Serial;

use super::{Ended, Index, Slot};

/// What a purge takes out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::embedded) struct Purging {
    /// What was handed out, and a claim waits for: it may be done, and becomes a dead letter.
    pub(in crate::embedded) tried: Vec<Ended>,
    /// All else, to be deleted.
    pub(in crate::embedded) others: Vec<Serial>,
}

impl Purging {
    pub(in crate::embedded) fn len(&self) -> usize {
        self.tried.len() + self.others.len()
    }
}

impl Index {
    /// Takes out some of what has a number up to this one, to be purged. What a claim waits for and somebody is at, or whose
    /// report is being committed, stays.
    pub(in crate::embedded) fn end_up_to(&mut self, up_to: Serial, limit: usize) -> Purging {
        let ending =
            self.ending.range(..=up_to).map(|(_, it)| it.slot).filter(|it| !it.tracking.is_tracked());
        let known = self.known.range(..=up_to).map(|(_, it)| it).filter(|it| !it.is_in_progress());
        let fresh = self.fresh.iter().filter(|fresh| !fresh.hole).map(|fresh| fresh.slot);
        let fresh = fresh.take_while(|slot| slot.id <= up_to);
        let all = ending.chain(known.map(|it| it.slot)).chain(fresh);
        let mut purging = Purging::default();
        for Slot { id, receives, tracking, .. } in all.take(limit) {
            if tracking.is_tracked() && receives > 0 {
                purging.tried.push(Ended { id, reason: DeadReason::Purged, receives });
            } else {
                purging.others.push(id);
            }
        }
        let tried = purging.tried.iter().map(|it| it.id);
        let ids: Vec<_> = tried.chain(purging.others.iter().copied()).collect();
        for id in ids {
            self.begin_end(id);
        }
        purging
    }

    /// How many of what has a number up to this one a purge leaves.
    pub(in crate::embedded) fn in_progress(&self, up_to: Serial) -> usize {
        let ending = self.ending.range(..=up_to).filter(|(_, it)| it.slot.tracking.is_tracked());
        self.known.range(..=up_to).filter(|(_, it)| it.is_in_progress()).count() + ending.count()
    }
}
