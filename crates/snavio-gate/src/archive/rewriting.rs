//! Writing segments again: with what claims point to and nothing else. What is left over in a segment, because whoever
//! moved was interrupted or a message changed meanwhile, could be found by nobody, and erased by nobody (CLM-18).

use std::collections::{BTreeSet, HashSet};

use snavio_model::archive::{Fault, Pointer, Record, segment};
use snavio_store::NewSegment;

use super::archiver::failed;
use super::{Archive, Round, Trouble, apart};
use crate::Gate;

/// Segments that are written again in one round.
const REWRITTEN_AT_ONCE: usize = 10;

impl Gate {
    /// Writes segments again that have something in them which nothing points to.
    pub(super) async fn tighten(&self, archive: &Archive, round: &mut Round) -> Result<(), Trouble> {
        let after = archive.progress().loose.clone();
        let loose = self.store().loose_segments(&after, REWRITTEN_AT_ONCE).await?;
        let last = loose.last().filter(|_| loose.len() == REWRITTEN_AT_ONCE);
        archive.progress().loose = last.cloned().unwrap_or_default();
        for object in &loose {
            match self.tighten_one(archive, object).await {
                Ok(()) => round.rewritten += 1,
                // One that cannot be read does not keep the others.
                Err(trouble) => {
                    failed(Err(trouble), round, "what nothing points to was not taken out of a segment");
                }
            }
        }
        round.is_partial |= last.is_some();
        Ok(())
    }

    async fn tighten_one(&self, archive: &Archive, object: &str) -> Result<(), Trouble> {
        let _turn = archive.rewriting.lock().await;
        let rewritten = self.rewrite(archive, object, |_, record| Ok(record)).await?;
        if !self.store().repoint(rewritten.clone()).await? {
            self.abandon(&rewritten).await;
        }
        Ok(())
    }

    /// Writes a segment again with those of its records that claims point to, each as `change` leaves it, and says where
    /// they are now: nowhere if nothing points to it, or the new one is being deleted.
    pub(super) async fn rewrite(
        &self,
        archive: &Archive,
        object: &str,
        change: impl Fn(&Pointer, Record) -> Result<Record, Fault>,
    ) -> Result<Vec<(Pointer, Pointer)>, Trouble> {
        archive.identify(&**self.store()).await?;
        let mut pointed: HashSet<_> = self.store().pointed(object).await?.into_iter().collect();
        let text = match archive.text(object).await {
            // Somebody else wrote it again meanwhile.
            Err(Trouble::Missing { .. }) if self.store().pointed(object).await?.is_empty() => {
                return Ok(Vec::new());
            }
            text => text?,
        };
        let key = object.to_owned();
        let there = apart(move || segment::read_pointed(&key, &text)).await??;
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
            let last = records.iter().flat_map(|it| &it.claims).map(|it| it.expires_at).max();
            let (key, expires_at) = (new.key.clone(), last.unwrap_or(now));
            let segment = NewSegment { object: key, records: records.len(), expires_at };
            if !self.store().begin_segment(segment, now).await? {
                return Ok(Vec::new());
            }
            archive.put(&new, &records).await?;
        }
        Ok(old.into_iter().zip(new.pointers).collect())
    }

    /// Lets go of what was written again and is not pointed to after all: it says what others may just have erased.
    pub(super) async fn abandon(&self, rewritten: &[(Pointer, Pointer)]) {
        for object in rewritten.iter().map(|(_, new)| &new.object).collect::<BTreeSet<_>>() {
            if let Err(error) = self.store().settle_segment(object, self.clock().now()).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, object, "a segment that nothing points to is left for an hour");
            }
        }
    }

    /// Deletes the object of a segment that is ending, and says whether it was: the row is asked just before, because
    /// another node may have deleted it meanwhile and somebody written it again.
    pub(super) async fn delete_ended(&self, archive: &Archive, object: &String) -> Result<bool, Trouble> {
        if !self.store().is_ending(object).await? {
            return Ok(false);
        }
        archive.objects.delete(std::slice::from_ref(object)).await?;
        archive.reading.forget(object);
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

    /// CLM-18: between the list of what is ending and the deletion, another node may have deleted it, and somebody
    /// written the same again.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_object_is_deleted_only_while_its_row_says_so() {
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
        // Another deletes it, and the same is written again.
        store.forget_segment(&object, later).await.unwrap();
        assert!(store.begin_segment(new, later).await.unwrap());
        archive.put(&segment, &records).await.unwrap();
        assert!(!gate.delete_ended(&archive, &object).await.unwrap(), "it is being moved");
        let pointed = records.into_iter().zip(segment.pointers).collect();
        assert_eq!(store.moved(pointed, later).await.unwrap(), 1);
        assert!(!gate.delete_ended(&archive, &object).await.unwrap(), "it is pointed to");
        assert!(archive.text(&object).await.is_ok());
        gate.stop().await;
    }
}
