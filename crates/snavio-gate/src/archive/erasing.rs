//! Erasing what is in the archive: its segment is written again without what it said, and the old object deleted
//! (CLM-18).

use std::collections::{BTreeMap, BTreeSet};

use snavio_model::archive::{Fault, Pointer, Record};
use snavio_model::claim::IdKey;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;
use snavio_store::{Act, Erasure};

use super::Trouble;
use crate::Gate;

/// How often an erasure begins again because what is to be erased was moved meanwhile.
const TRIES: usize = 5;

/// What came of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// What the store says.
    pub erasure: Erasure,
    /// Objects of the archive that are still to be deleted, or to be written again, and may have it in them.
    pub objects_left: u64,
}

impl Gate {
    /// Destroys what an id says, wherever it is, for somebody who may resolve conflicts of one tenant, or of all.
    pub async fn erase(&self, id: &IdKey, decides_for: Option<&str>, act: Act) -> Result<Erased, Trouble> {
        let mut rewritten = Vec::new();
        let mut turn = None;
        for _ in 0..TRIES {
            let erasure = self.store().erase(id, rewritten.clone(), decides_for, act.clone()).await?;
            if let Erasure::Erased { .. } = erasure {
                self.delete_old(&rewritten).await;
                return Ok(Erased { erasure, objects_left: self.store().unsettled_segments().await? });
            }
            self.abandon(&rewritten).await;
            if erasure != Erasure::Moved {
                return Ok(Erased { erasure, objects_left: 0 });
            }
            if turn.is_none() {
                turn = Some(self.archive()?.rewriting.lock().await);
            }
            rewritten = self.rewrite_without(id, act.at).await?;
        }
        self.abandon(&rewritten).await;
        Ok(Erased { erasure: Erasure::Moved, objects_left: 0 })
    }

    /// Writes the segments of an id again without what it says, and says where each of their records is now.
    async fn rewrite_without(&self, id: &IdKey, at: Timestamp) -> Result<Vec<(Pointer, Pointer)>, Trouble> {
        let archive = self.archive()?;
        let mut wanted: BTreeMap<String, Vec<(Pointer, Serial)>> = BTreeMap::new();
        for claim in self.claims_ever(id).await?.iter().filter(|it| it.erased_at.is_none()) {
            if let Some(pointer) = claim.pointer().transpose()? {
                let of_object = wanted.entry(pointer.record.object.clone()).or_default();
                of_object.push((pointer.record, claim.claim.message));
            }
        }
        let mut rewritten = Vec::new();
        for (object, pointers) in wanted {
            let change = |pointer: &Pointer, record: Record| without(id, at, &pointers, pointer, record);
            match self.rewrite(archive, &object, change).await {
                Ok(some) => rewritten.extend(some),
                Err(trouble) => {
                    self.abandon(&rewritten).await;
                    return Err(trouble);
                }
            }
        }
        Ok(rewritten)
    }

    /// Deletes objects that nothing points to any more; what cannot be deleted now is the archiver's.
    async fn delete_old(&self, rewritten: &[(Pointer, Pointer)]) {
        let Ok(archive) = self.archive() else { return };
        for object in rewritten.iter().map(|(old, _)| &old.object).collect::<BTreeSet<_>>() {
            if let Err(trouble) = self.delete_ended(archive, object).await {
                let error = &trouble as &dyn std::error::Error;
                tracing::warn!(error, "what was erased is in an object that could not be deleted yet");
            }
        }
    }
}

/// A record as it is after an erasure. One that claims of the id point to and that is another's is no reason to believe
/// that the id's own is erased.
fn without(
    id: &IdKey,
    at: Timestamp,
    pointers: &[(Pointer, Serial)],
    pointer: &Pointer,
    record: Record,
) -> Result<Record, Fault> {
    if pointers.iter().any(|(it, number)| it == pointer && !record.is_of(id, *number)) {
        return Err(Fault::Record { object: pointer.object.clone(), place: pointer.place });
    }
    let is_meant = record.message.id == id.id && record.message.tenant == id.tenant;
    Ok(if is_meant { record.erased(at) } else { record })
}
