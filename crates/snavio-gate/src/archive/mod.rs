//! The archive in object storage: where payloads and answers of claims are that have cooled (CLM-15 to CLM-18). One node
//! moves them for all (`archiver.rs`); any node reads them back, and rewrites what is erased (`erasing.rs`).

mod archiver;
mod erasing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use snavio_model::archive::segment::{self, Segment};
use snavio_model::archive::{Fault, Pointer, Record};
use snavio_model::claim::IdKey;
use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::processing::Answer;
use snavio_store::objects::{Objects, ObjectsError};
use snavio_store::{StoreError, StoredClaim};

pub use archiver::Round;
pub(crate) use archiver::archive;

use crate::Gate;

/// How hard segments are packed: harder saves little and takes long.
const LEVEL: i32 = 3;
/// How long somebody who wants an answer waits for an object.
const READING_MAX: Duration = Duration::from_secs(5);

/// An object that is written to see whether one can be.
const PROOF: &str = "claims/proof";

/// Segments in one place.
pub struct Archive {
    objects: Objects,
    /// Whether something was written there and read back.
    is_proven: AtomicBool,
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
    #[error("the archive gave no answer within {} s", READING_MAX.as_secs())]
    Slow,
    /// A record has more bytes than may be read back.
    #[error("message {number} and its answers are too large for the archive")]
    TooLarge {
        /// Which.
        number: Serial,
    },
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
    /// Segments among these objects.
    pub fn new(objects: Objects) -> Self {
        Self { objects, is_proven: AtomicBool::new(false) }
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
        let found = self.objects.get(object, limits::ARCHIVE_SEGMENT_BYTES_MAX).await?;
        let packed: Bytes = found.ok_or_else(|| Trouble::Missing { object: object.to_owned() })?.bytes;
        let altered = Fault::Altered { object: object.to_owned() };
        let unpack = move || zstd::bulk::decompress(&packed, limits::ARCHIVE_SEGMENT_BYTES_MAX);
        apart(unpack).await?.map_err(|_| altered.into())
    }

    /// The record that a pointer names.
    async fn read(&self, pointer: Pointer) -> Result<Record, Trouble> {
        let reading = async {
            let text = self.text(&pointer.object).await?;
            apart(move || segment::find(&pointer, &text)).await?.map_err(Trouble::from)
        };
        tokio::time::timeout(READING_MAX, reading).await.unwrap_or(Err(Trouble::Slow))
    }
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
        let claims = self.store().claims_of(&id, self.clock().now()).await?;
        let claim = claims.into_iter().find(|it| it.key == claim.key);
        let Some(pointer) = claim.as_ref().and_then(StoredClaim::pointer) else { return Ok(None) };
        let record = self.archive()?.read(pointer?).await?;
        Ok(claim.and_then(|it| record.answer(&it.key.destination).cloned()))
    }

    /// A message under an id that is in the archive, if a claim points to it.
    pub async fn archived_message(&self, id: &IdKey, number: Serial) -> Result<Option<Record>, Trouble> {
        let claims = self.store().claims_of(id, self.clock().now()).await?;
        let of_message = claims.iter().filter(|it| it.claim.message == number);
        let Some(pointer) = of_message.filter_map(StoredClaim::pointer).next() else { return Ok(None) };
        self.archive()?.read(pointer?).await.map(Some)
    }

    fn archive(&self) -> Result<&Archive, Trouble> {
        self.archive.get().map(|it| &**it).ok_or(Trouble::Unset)
    }
}

/// Does what takes long on a thread of its own.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Trouble::Unfinished)
}

#[cfg(test)]
mod tests {
    use snavio_model::message::Path;
    use snavio_model::refusal::Reason;
    use snavio_store::conformance::samples::{at, message};

    use super::*;
    use crate::follow::unreadable;

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
