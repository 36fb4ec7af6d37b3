//! The archive in object storage holds the messages and responses of claims that have cooled (CLM-15 to
//! CLM-18). One node moves them for all nodes (`archiver.rs`). Any node reads them (`reading.rs`) and
//! rewrites segments without erased records (`erasing.rs`, `rewriting.rs`). An object in the archive
//! identifies it (`identity.rs`).

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
use self::reading::SegmentReader;
use crate::Gate;

/// The compression level of segments. A higher level saves little and takes long.
const LEVEL: i32 = 3;

/// An object that is written to test whether the storage can be used.
const PROOF: &str = "claims/proof";

/// The segments of one archive.
pub struct Archive {
    objects: Objects,
    /// The archive's name, if no node has named it yet.
    name: String,
    /// Whether an object was written to the storage and read back.
    is_proven: AtomicBool,
    reader: Arc<SegmentReader>,
    /// Held while a segment is rewritten: two concurrent rewrites would undo each other.
    rewriting: tokio::sync::Mutex<()>,
    progress: Mutex<Progress>,
}

/// The archiver's position. The next round continues there. Otherwise records that cannot be moved would
/// block those after them.
#[derive(Debug, Default)]
struct Progress {
    cooled: Option<CooledUpTo>,
    loose: String,
    spent: String,
}

/// The error of a move to the archive or of a read from it.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The object storage failed.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// The content of an object is not as it was written.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// An object is missing.
    #[error("{object} is not in the archive")]
    Missing { object: String },
    #[error("the archive gave no answer in time")]
    Slow,
    /// A record is larger than the archive can read back.
    #[error("message {number} and its answers are too large for the archive")]
    TooLarge { number: Serial },
    /// A record does not read back as it was written, independent of the storage.
    #[error("message {number} and its answers would not come back from the archive as they are")]
    Unkept { number: Serial },
    /// The store's pointers refer to another archive.
    #[error(
        "archive.url names another archive than this store's: {IDENTITY} there says {found}, and should say {own}; name \
         the same archive on all nodes, and where it was moved, move all of its objects, {IDENTITY} too"
    )]
    Foreign {
        /// The name of the store's archive.
        own: String,
        /// The name in the configured archive.
        found: Said,
    },
    /// The store is a copy, and the original store may still use the archive.
    #[error(
        "this store was restored at {since}: nothing is moved, rewritten or deleted in the archive until it is certain that \
         no node serves over the store that it is a copy of; then stop this node and run snavio restore \
         --takes-over-archive --data <folder> (over PostgreSQL see docs/guides/fleet.md)"
    )]
    Copy {
        /// The time of the restore.
        since: String,
    },
    /// Another task's read failed, and this task waited for the same read.
    #[error(transparent)]
    Read(Arc<Self>),
    /// This node has no archive configured.
    #[error("this node has no archive: set archive.url")]
    Unset,
    /// Compression or decompression failed.
    #[error("a segment cannot be compressed or decompressed")]
    Packing(#[source] std::io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A background task of this process ended early.
    #[error("a background task ended early; try again")]
    Unfinished,
}

impl Archive {
    /// An archive in this object storage. `name` is its name if no node has named it yet; every store needs a
    /// different name.
    pub fn new(objects: Objects, name: String) -> Self {
        let (is_proven, progress, rewriting) = Default::default();
        Self { objects, name, is_proven, reader: Arc::default(), rewriting, progress }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a segment, reads it back and verifies every record (CLM-18).
    async fn put(&self, segment: &Segment, records: &[Record]) -> Result<(), Trouble> {
        let text = segment.text.clone();
        let packed =
            run_blocking(move || zstd::bulk::compress(&text, LEVEL)).await?.map_err(Trouble::Packing)?;
        self.objects.put(&segment.key, packed.into()).await?;
        let text = self.text(&segment.key).await?;
        verify(segment, records, &text)?;
        self.is_proven.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Tests whether the storage can be used, so that an operator learns of a wrong setting before any record
    /// has cooled.
    async fn prove(&self) -> Result<(), Trouble> {
        if self.is_proven.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.objects.put(PROOF, PROOF.into()).await?;
        let found = self.objects.get(PROOF, PROOF.len()).await?;
        if found.is_none_or(|object| object.bytes != PROOF) {
            return Err(Fault::Altered { object: PROOF.to_owned() }.into());
        }
        self.objects.delete(&[PROOF.to_owned()]).await?;
        self.is_proven.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The text of a segment, as the storage has it.
    async fn text(&self, object: &str) -> Result<Vec<u8>, Trouble> {
        let found = self.objects.get(object, bounds::ARCHIVE_SEGMENT_BYTES_MAX).await?;
        let packed: Bytes = found.ok_or_else(|| Trouble::Missing { object: object.to_owned() })?.bytes;
        let altered = Fault::Altered { object: object.to_owned() };
        run_blocking(move || unpacked(&packed)).await?.ok_or_else(|| altered.into())
    }

    /// Reads the record of a message at a pointer.
    async fn read(self: &Arc<Self>, pointer: Pointer, id: &IdKey, number: Serial) -> Result<Record, Trouble> {
        let (archive, object) = (Arc::clone(self), pointer.object.clone());
        let fetch = move || async move {
            let text = archive.text(&object).await?;
            run_blocking(move || Verified::new(&object, text)).await?.map_err(Trouble::from)
        };
        let segment = self.reader.segment(&pointer.object, fetch).await?;
        let another = Fault::Record { object: pointer.object.clone(), place: pointer.place };
        let record = self.reader.find(segment, pointer).await?;
        // An altered pointer must not lead to another message's response.
        if record.is_of(id, number) { Ok(record) } else { Err(another.into()) }
    }
}

/// Decompresses a segment; `None` if it is not valid or larger than a segment may be.
fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let unpack = zstd::stream::read::Decoder::new(packed).ok()?;
    unpack.take(bounds::ARCHIVE_SEGMENT_BYTES_MAX as u64 + 1).read_to_end(&mut text).ok()?;
    (text.len() <= bounds::ARCHIVE_SEGMENT_BYTES_MAX).then_some(text)
}

/// Verifies that a text is a segment with these records, each where its pointer says.
fn verify(segment: &Segment, records: &[Record], text: &[u8]) -> Result<(), Trouble> {
    let found = segment::read_pointed(&segment.key, text)?;
    let written = segment.pointers.iter().zip(records);
    if !found.iter().map(|(pointer, record)| (pointer, record)).eq(written) {
        return Err(Fault::Altered { object: segment.key.clone() }.into());
    }
    Ok(())
}

/// Whether the records themselves do not read back as they were written, independent of the storage.
fn are_unreadable(segment: &Segment, records: &[Record]) -> bool {
    verify(segment, records, &segment.text).is_err()
}

impl Gate {
    /// The stored response of a claim's delivery, from the store or the archive (CLM-5, CLM-16).
    pub async fn answer_of(&self, claim: &StoredClaim, delivery: Serial) -> Result<Option<Answer>, Trouble> {
        if claim.archive.is_none() {
            let answer = self.store().answer(delivery).await?;
            let has_cooled = claim.claim.hot_until.is_some_and(|until| until <= self.clock().now());
            if answer.is_some() || !has_cooled {
                return Ok(answer);
            }
        }
        // The response may have been moved, or its segment rewritten, since the claim was read.
        let id = IdKey { id: claim.key.id.clone(), tenant: claim.key.tenant.clone() };
        let claims = self.all_claims(&id).await?;
        let Some(claim) = claims.into_iter().find(|stored| stored.key == claim.key) else { return Ok(None) };
        let Some(pointer) = claim.pointer().transpose()? else { return Ok(None) };
        // CLM-17: a response that is known without the archive does not depend on the archive.
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

    /// The archived message of an id, if a claim points to it.
    pub async fn archived_message(&self, id: &IdKey, number: Serial) -> Result<Option<Record>, Trouble> {
        let claims = self.all_claims(id).await?;
        let of_message = claims.iter().filter(|stored| stored.claim.message == number);
        let Some(pointer) = of_message.filter_map(StoredClaim::pointer).next() else { return Ok(None) };
        self.archive()?.read(pointer?.record, id, number).await.map(Some)
    }

    /// All claims of an id, including expired ones: they are kept for a legal hold, or for a conflict that is
    /// not resolved.
    async fn all_claims(&self, id: &IdKey) -> Result<Vec<StoredClaim>, StoreError> {
        self.store().claims_of(id, Timestamp(i64::MIN)).await
    }

    fn archive(&self) -> Result<&Arc<Archive>, Trouble> {
        self.archive.get().ok_or(Trouble::Unset)
    }
}

/// Runs long work on a blocking thread.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Trouble> {
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

    /// CLM-18: a segment must read back completely and unchanged, with every record where its pointer says.
    #[test]
    fn altered_segment_fails_verification() {
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
        assert!(verify(&segment, &swapped, &segment.text).is_err(), "the records of another segment");
        assert!(!are_unreadable(&segment, &records), "the records themselves are valid");
    }

    /// CLM-17, CLM-18: a record that cannot be read back is distinguished from a storage that alters objects.
    #[test]
    fn unreadable_record_is_detected_without_storage() {
        let mut odd = record("b");
        let event = event_intake("b", &notify(), at(0)).message.event.unwrap();
        odd.message.event =
            Some(EventEnvelope { metadata: Some("no JSON".to_owned()), ..(*event).clone() }.into());
        let records = [record("a"), odd];
        for (some, unkept) in [(&records[..], true), (&records[..1], false), (&records[1..], true)] {
            assert_eq!(segment::write(some).is_none_or(|segment| are_unreadable(&segment, some)), unkept);
        }
    }

    /// CLM-17
    #[test]
    fn refusal_of_unreadable_archive_has_retry_after() {
        for trouble in [Trouble::Unset, Trouble::Slow, Trouble::Missing { object: String::new() }] {
            let refusal = unreadable(&trouble);
            assert_eq!((refusal.reason, refusal.retry_after.is_some()), (Reason::Unavailable, true));
        }
    }
}
