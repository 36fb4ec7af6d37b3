//! Erases content in the archive: its segment is rewritten without the content, and the old object is deleted
//! (CLM-18).

use std::collections::{BTreeMap, BTreeSet};

use snavio_model::archive::{Fault, Pointer, Record};
use snavio_model::claim::IdKey;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;
use snavio_store::{Act, Erasure};

use super::Trouble;
use crate::Gate;

/// The number of times that an erasure starts again because its records were moved meanwhile.
const TRIES: usize = 5;

/// The result of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    pub erasure: Erasure,
    /// The number of archive objects that are still to be deleted or rewritten and may have the content.
    pub objects_left: u64,
}

impl Gate {
    /// Destroys the content of an id in the store and in the archive. The caller may resolve the conflicts of
    /// the tenant `decides_for`, or of all tenants if it is `None`.
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
            rewritten = self.rewrite_erased(id, act.at).await?;
        }
        self.abandon(&rewritten).await;
        Ok(Erased { erasure: Erasure::Moved, objects_left: 0 })
    }

    /// Rewrites the segments of an id without its content. Returns the old and new pointers of their records.
    async fn rewrite_erased(&self, id: &IdKey, at: Timestamp) -> Result<Vec<(Pointer, Pointer)>, Trouble> {
        let archive = self.archive()?;
        let mut wanted: BTreeMap<String, Vec<(Pointer, Serial)>> = BTreeMap::new();
        for claim in self.all_claims(id).await?.iter().filter(|stored| stored.erased_at.is_none()) {
            if let Some(pointer) = claim.pointer().transpose()? {
                let of_object = wanted.entry(pointer.record.object.clone()).or_default();
                of_object.push((pointer.record, claim.claim.message));
            }
        }
        let mut rewritten = Vec::new();
        for (object, pointers) in wanted {
            let change =
                |pointer: &Pointer, record: Record| erased_record(id, at, &pointers, pointer, record);
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

    /// Deletes objects without pointers. The archiver deletes them later if they cannot be deleted now.
    async fn delete_old(&self, rewritten: &[(Pointer, Pointer)]) {
        let Ok(archive) = self.archive() else { return };
        for object in rewritten.iter().map(|(old, _)| &old.object).collect::<BTreeSet<_>>() {
            if let Err(trouble) = self.delete_ended(archive, object).await {
                let error = &trouble as &dyn std::error::Error;
                tracing::warn!(error, "erased content is in an object that could not be deleted yet");
            }
        }
    }
}

/// A record after an erasure. A record of another message that the id's claims point to is a fault: it does
/// not prove that the id's own record is erased.
fn erased_record(
    id: &IdKey,
    at: Timestamp,
    pointers: &[(Pointer, Serial)],
    pointer: &Pointer,
    record: Record,
) -> Result<Record, Fault> {
    if pointers.iter().any(|(known, number)| known == pointer && !record.is_of(id, *number)) {
        return Err(Fault::Record { object: pointer.object.clone(), place: pointer.place });
    }
    let is_of_id = record.message.id == id.id && record.message.tenant == id.tenant;
    Ok(if is_of_id { record.erased(at) } else { record })
}
