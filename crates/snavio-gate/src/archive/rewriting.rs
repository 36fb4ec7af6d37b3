//! Rewrites segments, with only the records that claims point to. An interrupted move or a message that
//! changed meanwhile leaves unreferenced records in a segment. Such records could be neither found nor erased
//! (CLM-18).

use std::collections::{BTreeSet, HashSet};

use snavio_model::archive::{Fault, Pointer, Record, segment};
use snavio_store::NewSegment;

use super::archiver::count_failure;
use super::{Archive, Round, Trouble, run_blocking};
use crate::Gate;

/// Segments that are rewritten in one round.
const REWRITTEN_AT_ONCE: usize = 10;

impl Gate {
    /// Rewrites segments that have unreferenced records.
    pub(super) async fn rewrite_loose(&self, archive: &Archive, round: &mut Round) -> Result<(), Trouble> {
        let after = archive.progress().loose.clone();
        let loose = self.store().loose_segments(&after, REWRITTEN_AT_ONCE).await?;
        let last = loose.last().filter(|_| loose.len() == REWRITTEN_AT_ONCE);
        archive.progress().loose = last.cloned().unwrap_or_default();
        for object in &loose {
            match self.rewrite_one(archive, object).await {
                Ok(()) => round.rewritten += 1,
                // A segment that cannot be read must not block the others.
                Err(trouble) => {
                    count_failure(
                        Err(trouble),
                        round,
                        "unreferenced records could not be removed from a segment",
                    );
                }
            }
        }
        round.is_partial |= last.is_some();
        Ok(())
    }

    async fn rewrite_one(&self, archive: &Archive, object: &str) -> Result<(), Trouble> {
        let _turn = archive.rewriting.lock().await;
        let rewritten = self.rewrite(archive, object, |_, record| Ok(record)).await?;
        if !self.store().repoint(rewritten.clone()).await? {
            self.abandon(&rewritten).await;
        }
        Ok(())
    }

    /// Rewrites a segment with the records that claims point to, each as `change` returns it. Returns the old
    /// and new pointers. The result is empty if no claim points to the segment, or if the new segment is
    /// being deleted.
    pub(super) async fn rewrite(
        &self,
        archive: &Archive,
        object: &str,
        change: impl Fn(&Pointer, Record) -> Result<Record, Fault>,
    ) -> Result<Vec<(Pointer, Pointer)>, Trouble> {
        archive.identify(&**self.store()).await?;
        let mut pointed: HashSet<_> = self.store().pointed(object).await?.into_iter().collect();
        let text = match archive.text(object).await {
            // Another task rewrote the segment meanwhile.
            Err(Trouble::Missing { .. }) if self.store().pointed(object).await?.is_empty() => {
                return Ok(Vec::new());
            }
            text => text?,
        };
        let key = object.to_owned();
        let there = run_blocking(move || segment::read_pointed(&key, &text)).await??;
        let (mut old, mut records) = (Vec::new(), Vec::new());
        for (pointer, record) in there.into_iter().filter(|(pointer, _)| pointed.remove(pointer)) {
            records.push(change(&pointer, record)?);
            old.push(pointer);
        }
        if let Some(lost) = pointed.into_iter().next() {
            return Err(Fault::Record { object: object.to_owned(), place: lost.place }.into());
        }
        let Some(new) = segment::write(&records) else { return Ok(Vec::new()) };
        if new.key != object {
            let now = self.clock().now();
            let last = records.iter().flat_map(|record| &record.claims).map(|claim| claim.expires_at).max();
            let (key, expires_at) = (new.key.clone(), last.unwrap_or(now));
            let segment = NewSegment { object: key, records: records.len(), expires_at };
            if !self.store().begin_segment(segment, now).await? {
                return Ok(Vec::new());
            }
            archive.put(&new, &records).await?;
        }
        Ok(old.into_iter().zip(new.pointers).collect())
    }

    /// Gives up rewritten segments that got no pointers after all: they may contain content that was just
    /// erased.
    pub(super) async fn abandon(&self, rewritten: &[(Pointer, Pointer)]) {
        for object in rewritten.iter().map(|(_, new)| &new.object).collect::<BTreeSet<_>>() {
            if let Err(error) = self.store().settle_segment(object, self.clock().now()).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, object, "an unreferenced segment is left for an hour");
            }
        }
    }

    /// Deletes the object of a segment that is ending. Returns whether it did. It asks the store just before,
    /// because another node may have deleted the segment meanwhile, and a third may have written it again.
    pub(super) async fn delete_ended(&self, archive: &Archive, object: &String) -> Result<bool, Trouble> {
        if !self.store().is_ending(object).await? {
            return Ok(false);
        }
        archive.objects.delete(std::slice::from_ref(object)).await?;
        archive.reader.evict(object);
        self.store().forget_segment(object, self.clock().now()).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use snavio_model::claim::ClaimPolicy;
    use snavio_model::registry::{Sealed, Unseal};
    use snavio_model::signature::signing::Secret;
    use snavio_store::Store;
    use snavio_store::conformance::samples::{acknowledge, at, queue, receipt, receive, route, settle_one};
    use snavio_store::engine::sqlite::{EmbeddedStore, Options};
    use snavio_store::objects::{Objects, Place};

    use super::*;
    use crate::Settings;

    struct NoKeys;

    impl Unseal for NoKeys {
        fn unseal(&self, _: &Sealed) -> Option<Secret> {
            None
        }
    }

    /// CLM-18: between the list of ending segments and the deletion, another node may have deleted the
    /// object, and a third may have written it again.
    #[tokio::test(flavor = "multi_thread")]
    async fn object_is_deleted_only_while_its_segment_ends() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(EmbeddedStore::open(&Options::new(folder.path().join("data"))).unwrap());
        let later = at(401 * 86_400);
        let gate = Gate::start(Settings::default(), Arc::clone(&store), Arc::new(later), Arc::new(NoKeys));
        let gate = gate.await.unwrap();
        gate.hold_sweeps(true);
        let url = format!("file://{}/archive", folder.path().display());
        let objects = Objects::open(&Place { url, options: Vec::new() }).unwrap();
        gate.use_archive(Arc::new(Archive::new(objects, "one".to_owned())));
        settle_one(&*store, "a", &route("post", ClaimPolicy::ledger()), at(0)).await;
        let work = receive(&*store, "post", 30, at(0)).await.remove(0);
        acknowledge(&*store, &queue("post"), vec![receipt(&work)]).await.unwrap();

        let records = store.cooled(None, later).await.unwrap().records;
        let segment = segment::write(&records).unwrap();
        let object = segment.key.clone();
        let new = NewSegment { object: object.clone(), records: 1, expires_at: at(2_557 * 86_400) };
        let archive = Arc::clone(gate.archive().unwrap());
        assert!(store.begin_segment(new.clone(), later).await.unwrap());
        store.settle_segment(&object, later).await.unwrap();
        let spent = store.spent_segments("", 10, later).await.unwrap();
        assert_eq!(spent, std::slice::from_ref(&object));
        // Another node deletes the object, and the same segment is written again.
        store.forget_segment(&object, later).await.unwrap();
        assert!(store.begin_segment(new, later).await.unwrap());
        archive.put(&segment, &records).await.unwrap();
        assert!(!gate.delete_ended(&archive, &object).await.unwrap(), "the segment is being moved");
        let pointed = records.into_iter().zip(segment.pointers).collect();
        assert_eq!(store.moved(pointed, later).await.unwrap(), 1);
        assert!(!gate.delete_ended(&archive, &object).await.unwrap(), "claims point to the segment");
        assert!(archive.text(&object).await.is_ok());
        gate.stop().await;
    }
}
