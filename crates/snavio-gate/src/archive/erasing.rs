//! Erasing what is in the archive: its segment is written again without what it said, and the old object deleted
//! (CLM-18).

use std::collections::BTreeSet;

use snavio_model::archive::{Pointer, segment};
use snavio_model::claim::IdKey;
use snavio_model::time::Timestamp;
use snavio_store::{Act, Erasure, NewSegment, StoredClaim};

use super::{Archive, Trouble};
use crate::Gate;

/// How often an erasure begins again because what is to be erased was moved meanwhile.
const TRIES: usize = 5;

impl Gate {
    /// Destroys what an id says, wherever it is.
    pub async fn erase(&self, id: &IdKey, act: Act) -> Result<Erasure, Trouble> {
        let mut rewritten = Vec::new();
        for _ in 0..TRIES {
            let erasure = self.store().erase(id, rewritten.clone(), act.clone()).await?;
            if erasure != Erasure::Moved {
                if matches!(erasure, Erasure::Erased { .. }) {
                    self.delete_old(&rewritten).await;
                }
                return Ok(erasure);
            }
            rewritten = self.rewrite(id, act.at).await?;
        }
        Ok(Erasure::Moved)
    }

    /// Writes the segments of an id again without what it says, and says where each of their records is now.
    async fn rewrite(&self, id: &IdKey, at: Timestamp) -> Result<Vec<(Pointer, Pointer)>, Trouble> {
        let archive = self.archive()?;
        let claims = self.store().claims_of(id, at).await?;
        let mut objects = BTreeSet::new();
        for pointer in claims.iter().filter(|it| it.erased_at.is_none()).filter_map(StoredClaim::pointer) {
            objects.insert(pointer?.object);
        }
        let mut rewritten = Vec::new();
        for object in objects {
            rewritten.extend(self.rewrite_one(archive, &object, id, at).await?);
        }
        Ok(rewritten)
    }

    async fn rewrite_one(
        &self,
        archive: &Archive,
        object: &str,
        id: &IdKey,
        at: Timestamp,
    ) -> Result<Vec<(Pointer, Pointer)>, Trouble> {
        let text = archive.text(object).await?;
        let (old, mut records): (Vec<_>, Vec<_>) = segment::read_pointed(object, &text)?.into_iter().unzip();
        for record in &mut records {
            if record.message.id == id.id && record.message.tenant == id.tenant {
                *record = record.clone().erased(at);
            }
        }
        let Some(new) = segment::write(&records) else { return Ok(Vec::new()) };
        let expires_at = records.iter().flat_map(|it| &it.claims).map(|it| it.expires_at).max().unwrap_or(at);
        let segment = NewSegment { object: new.key.clone(), records: records.len(), expires_at };
        if !self.store().begin_segment(segment, at).await? {
            return Ok(Vec::new());
        }
        archive.put(&new, &records).await?;
        Ok(old.into_iter().zip(new.pointers).collect())
    }

    /// Deletes objects that nothing points to any more; what cannot be deleted now is the archiver's.
    async fn delete_old(&self, rewritten: &[(Pointer, Pointer)]) {
        let Ok(archive) = self.archive() else { return };
        let objects: BTreeSet<_> = rewritten.iter().map(|(old, _)| &old.object).collect();
        for object in objects {
            let deleted = async {
                archive.objects.delete(std::slice::from_ref(object)).await?;
                self.store().forget_segment(object, self.clock().now()).await.map_err(Trouble::from)
            };
            if let Err(trouble) = deleted.await {
                let error = &trouble as &dyn std::error::Error;
                tracing::warn!(error, "what was erased is in an object that could not be deleted yet");
            }
        }
    }
}
