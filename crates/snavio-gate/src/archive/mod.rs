//! The archive in object storage: where payloads and answers of claims are that have cooled (CLM-15 to CLM-18). One node
//! moves them for all (`archiver.rs`); any node reads them back (`reading.rs`), and writes segments again without what is
//! erased (`erasing.rs`, `rewriting.rs`). Which archive it is, an object in it says (`identity.rs`).

mod archiver;
mod erasing;
mod identity;
mod reading;
mod rewriting;

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use snavio_model::archive::segment::{self, Segment, Verified};
use snavio_model::archive::{Answered, Fault, Pointer, Record};
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::delivery::processing::Answer;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;
use snavio_store::objects::{Objects, ObjectsError};
use snavio_store::{CooledUpTo, StoreError, StoredClaim};

pub use archiver::Round;
pub(crate) use archiver::archive;
pub use erasing::Erased;
pub use identity::Said;

use self::identity::IDENTITY;
use self::reading::Reading;
use crate::Gate;

/// How hard segments are packed: harder saves little and takes long.
const LEVEL: i32 = 3;

/// An object that is written to see whether one can be.
const PROOF: &str = "claims/proof";

/// Segments in one place.
pub struct Archive {
    objects: Objects,
    /// What it is called if nobody has named it yet.
    name: String,
    /// Whether something was written there and read back.
    is_proven: AtomicBool,
    reading: Arc<Reading>,
    /// Segments are written again one at a time: two at once would undo each other's work.
    rewriting: tokio::sync::Mutex<()>,
    progress: Mutex<Progress>,
}

/// How far the archiver came: the next round goes on from there, or what stays would keep it from what comes after.
#[derive(Debug, Default)]
struct Progress {
    cooled: Option<CooledUpTo>,
    loose: String,
    spent: String,
}

/// Why something was not moved to the archive, or not read from there.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The storage did not do what it was asked.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// What is there is not what was written.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// An object is not there.
    #[error("{object} is not in the archive")]
    Missing {
        /// Which.
        object: String,
    },
    /// It took too long.
    #[error("the archive gave no answer in time")]
    Slow,
    /// A record has more bytes than may be read back.
    #[error("message {number} and its answers are too large for the archive")]
    TooLarge {
        /// Which.
        number: Serial,
    },
    /// A record does not read as it is, wherever it is written.
    #[error("message {number} and its answers would not come back from the archive as they are")]
    Unkept {
        /// Which.
        number: Serial,
    },
    /// It is not the archive that the store's pointers lead to.
    #[error(
        "archive.url names another archive than this store's: {IDENTITY} there says {found}, and should say {own}; name \
         the same archive on all nodes, and where it was moved, move all of its objects, {IDENTITY} too"
    )]
    Foreign {
        /// Which one is the store's.
        own: String,
        /// What this one says it is.
        found: Said,
    },
    /// The store is a copy, and the one that it was copied from may still have the archive.
    #[error(
        "this store was restored at {since}: nothing is moved, rewritten or deleted in the archive until it is certain that \
         no node serves over the store that it is a copy of; then stop this node and run snavio restore \
         --takes-over-archive --data <folder> (over PostgreSQL see docs/guides/fleet.md)"
    )]
    Copy {
        /// Since when it is one.
        since: String,
    },
    /// What somebody else tried to read for all who wait did not come.
    #[error(transparent)]
    Read(Arc<Self>),
    /// This node was not told where the archive is.
    #[error("this node has no archive: set archive.url")]
    Unset,
    /// It cannot be packed or unpacked.
    #[error("it cannot be packed or unpacked")]
    Packing(#[source] std::io::Error),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A task of this program ended before its time.
    #[error("the work on it was not finished")]
    Unfinished,
}

impl Archive {
    /// Segments among these objects. It is called so if nobody has named it yet: no two may have one name.
    pub fn new(objects: Objects, name: String) -> Self {
        let (is_proven, progress, rewriting) = Default::default();
        Self { objects, name, is_proven, reading: Arc::default(), rewriting, progress }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a segment, reads it back and verifies every record (CLM-18).
    async fn put(&self, segment: &Segment, records: &[Record]) -> Result<(), Trouble> {
        let text = segment.text.clone();
        let packed = apart(move || zstd::bulk::compress(&text, LEVEL)).await?.map_err(Trouble::Packing)?;
        self.objects.put(&segment.key, packed.into()).await?;
        let text = self.text(&segment.key).await?;
        verify(segment, records, &text)?;
        self.is_proven.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the place can be used at all: who names a wrong one hears of it before anything has cooled.
    async fn prove(&self) -> Result<(), Trouble> {
        if self.is_proven.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.objects.put(PROOF, PROOF.into()).await?;
        let found = self.objects.get(PROOF, PROOF.len()).await?;
        if found.is_none_or(|it| it.bytes != PROOF) {
            return Err(Fault::Altered { object: PROOF.to_owned() }.into());
        }
        self.objects.delete(&[PROOF.to_owned()]).await?;
        self.is_proven.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The text of a segment as it is there.
    async fn text(&self, object: &str) -> Result<Vec<u8>, Trouble> {
        let found = self.objects.get(object, bounds::ARCHIVE_SEGMENT_BYTES_MAX).await?;
        let packed: Bytes = found.ok_or_else(|| Trouble::Missing { object: object.to_owned() })?.bytes;
        let altered = Fault::Altered { object: object.to_owned() };
        apart(move || unpacked(&packed)).await?.ok_or_else(|| altered.into())
    }

    /// The record of a message, where a pointer says that it is.
    async fn read(self: &Arc<Self>, pointer: Pointer, id: &IdKey, number: Serial) -> Result<Record, Trouble> {
        let (archive, object) = (Arc::clone(self), pointer.object.clone());
        let fetch = move || async move {
            let text = archive.text(&object).await?;
            apart(move || Verified::new(&object, text)).await?.map_err(Trouble::from)
        };
        let segment = self.reading.segment(&pointer.object, fetch).await?;
        let another = Fault::Record { object: pointer.object.clone(), place: pointer.place };
        let record = self.reading.find(segment, pointer).await?;
        // A pointer that was altered must not lead to somebody else's answer.
        if record.is_of(id, number) { Ok(record) } else { Err(another.into()) }
    }
}

/// What was packed, unless it is not, or is more than a segment may have.
fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let unpack = zstd::stream::read::Decoder::new(packed).ok()?;
    unpack.take(bounds::ARCHIVE_SEGMENT_BYTES_MAX as u64 + 1).read_to_end(&mut text).ok()?;
    (text.len() <= bounds::ARCHIVE_SEGMENT_BYTES_MAX).then_some(text)
}

/// Whether a text is a segment with these records, each where its pointer says.
fn verify(segment: &Segment, records: &[Record], text: &[u8]) -> Result<(), Trouble> {
    let found = segment::read_pointed(&segment.key, text)?;
    let written = segment.pointers.iter().zip(records);
    if !found.iter().map(|(pointer, record)| (pointer, record)).eq(written) {
        return Err(Fault::Altered { object: segment.key.clone() }.into());
    }
    Ok(())
}

/// Whether the records themselves do not read as they were written, whatever the place does to them.
fn are_unkept(segment: &Segment, records: &[Record]) -> bool {
    verify(segment, records, &segment.text).is_err()
}

impl Gate {
    /// What was answered to the delivery of a claim, from wherever it is (CLM-5, CLM-16).
    pub async fn answer_of(&self, claim: &StoredClaim, delivery: Serial) -> Result<Option<Answer>, Trouble> {
        if claim.archive.is_none() {
            let answer = self.store().answer(delivery).await?;
            let has_cooled = claim.claim.hot_until.is_some_and(|until| until <= self.clock().now());
            if answer.is_some() || !has_cooled {
                return Ok(answer);
            }
        }
        // It may have been moved since it was looked up, or written again.
        let id = IdKey { id: claim.key.id.clone(), tenant: claim.key.tenant.clone() };
        let claims = self.claims_ever(&id).await?;
        let Some(claim) = claims.into_iter().find(|it| it.key == claim.key) else { return Ok(None) };
        let Some(pointer) = claim.pointer().transpose()? else { return Ok(None) };
        // CLM-17: what is known without the archive does not wait for it.
        match pointer.answered {
            Answered::No => return Ok(None),
            Answered::With(status) if claim.erased_at.is_some() => {
                return Ok(Some(Answer { status, content_type: None, body: Bytes::new() }));
            }
            Answered::With(_) | Answered::Unsaid => {}
        }
        let record = self.archive()?.read(pointer.record, &id, claim.claim.message).await?;
        Ok(record.answer(&claim.key.destination).cloned())
    }

    /// A message under an id that is in the archive, if a claim points to it.
    pub async fn archived_message(&self, id: &IdKey, number: Serial) -> Result<Option<Record>, Trouble> {
        let claims = self.claims_ever(id).await?;
        let of_message = claims.iter().filter(|it| it.claim.message == number);
        let Some(pointer) = of_message.filter_map(StoredClaim::pointer).next() else { return Ok(None) };
        self.archive()?.read(pointer?.record, id, number).await.map(Some)
    }

    /// All claims under an id, those too whose time is over: they are kept for a hold, or for a conflict that nobody has
    /// decided.
    async fn claims_ever(&self, id: &IdKey) -> Result<Vec<StoredClaim>, StoreError> {
        self.store().claims_of(id, Timestamp(i64::MIN)).await
    }

    fn archive(&self) -> Result<&Arc<Archive>, Trouble> {
        self.archive.get().ok_or(Trouble::Unset)
    }
}

/// Does what takes long on a thread of its own.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Trouble::Unfinished)
}

#[cfg(test)]
mod tests {
    use snavio_model::message::Path;
    use snavio_model::message::event::EventEnvelope;
    use snavio_model::refusal::Reason;
    use snavio_store::conformance::samples::{at, event_intake, message, notify};

    use super::*;
    use crate::outcome::follow::unreadable;

    fn record(id: &str) -> Record {
        let message = message("acme/billing", id, at(0));
        let (number, path, settled_at) = (Serial(1), Path::Slow, at(0));
        Record { number, path, settled_at, hash_version: 1, message, claims: Vec::new(), erased_at: None }
    }

    /// CLM-18: what is read back must be what was written, all of it and where it is pointed to.
    #[test]
    fn only_a_segment_that_reads_as_it_was_written_is_verified() {
        let records = [record("a"), record("b")];
        let segment = segment::write(&records).unwrap();
        assert!(verify(&segment, &records, &segment.text).is_ok());
        let mut tampered = segment.text.clone();
        tampered[100] ^= 1;
        let short = &segment.text[..segment.text.len() / 2];
        for text in [&tampered[..], short, b""] {
            assert!(matches!(verify(&segment, &records, text), Err(Trouble::Fault(Fault::Altered { .. }))));
        }
        let swapped = [record("b"), record("a")];
        assert!(verify(&segment, &swapped, &segment.text).is_err(), "another's records");
        assert!(!are_unkept(&segment, &records), "whatever is wrong is the place's fault");
    }

    /// CLM-17, CLM-18: one that would not come back is told from a place that alters what is put there.
    #[test]
    fn a_record_that_would_not_come_back_is_known_without_the_place() {
        let mut odd = record("b");
        let event = event_intake("b", &notify(), at(0)).message.event.unwrap();
        odd.message.event =
            Some(EventEnvelope { metadata: Some("no JSON".to_owned()), ..(*event).clone() }.into());
        let records = [record("a"), odd];
        for (some, unkept) in [(&records[..], true), (&records[..1], false), (&records[1..], true)] {
            assert_eq!(segment::write(some).is_none_or(|it| are_unkept(&it, some)), unkept);
        }
    }

    /// CLM-17
    #[test]
    fn who_wants_what_is_in_the_archive_is_told_when_to_come_back() {
        for trouble in [Trouble::Unset, Trouble::Slow, Trouble::Missing { object: String::new() }] {
            let refusal = unreadable(&trouble);
            assert_eq!((refusal.reason, refusal.retry_after.is_some()), (Reason::Unavailable, true));
        }
    }
}
