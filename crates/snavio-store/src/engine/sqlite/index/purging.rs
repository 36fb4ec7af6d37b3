//! What a purge takes out of a queue, and what it leaves (CLM-7, DLV-2).

use snavio_model::delivery::DeadReason;
use snavio_model::id::Serial;

use super::{Ended, Index, Slot};

impl Index {
    /// Takes out some of what has a number up to this one, to be purged, until that is on record. What a claim waits for and
    /// somebody is at, or whose report is being committed, stays.
    pub(in crate::engine::sqlite) fn end_up_to(&mut self, up_to: Serial, limit: usize) -> Vec<Ended> {
        let ending =
            self.ending.range(..=up_to).map(|(_, it)| it.slot).filter(|it| !it.tracking.is_tracked());
        let known = self.known.range(..=up_to).map(|(_, it)| it).filter(|it| !it.is_in_progress());
        let fresh = self.fresh.iter().filter(|fresh| !fresh.hole).map(|fresh| fresh.slot);
        let fresh = fresh.take_while(|slot| slot.id <= up_to);
        let all = ending.chain(known.map(|it| it.slot)).chain(fresh);
        let purged = |Slot { id, receives, .. }| Ended { id, reason: DeadReason::Purged, receives };
        let ended: Vec<_> = all.take(limit).map(purged).collect();
        for it in &ended {
            self.begin_end(it.id);
        }
        ended
    }

    /// How many of what has a number up to this one a purge leaves.
    pub(in crate::engine::sqlite) fn in_progress(&self, up_to: Serial) -> usize {
        let ending = self.ending.range(..=up_to).filter(|(_, it)| it.slot.tracking.is_tracked());
        self.known.range(..=up_to).filter(|(_, it)| it.is_in_progress()).count() + ending.count()
    }
}
