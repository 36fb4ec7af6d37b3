//! What is kept for years: moving it to the archive, holding it, destroying it (CLM-15 to CLM-18).
//!
//! A segment of the archive is begun before its object is written, loose once a commit points to something in it, kept
//! when all of it is pointed to, and ending before its object is deleted. So whoever crashes in between leaves a row that
//! says what is to be done, no object is deleted that anything points to, and none keeps for long what nothing does.

use std::collections::{BTreeSet, HashSet};

use async_trait::async_trait;
use snavio_model::archive::hold::{Held, Hold, Lifted};
use snavio_model::archive::{ClaimPointer, Pointer, Record};
use snavio_model::bounds;
use snavio_model::claim::{ClaimKey, IdKey};
use snavio_model::id::Serial;
use snavio_model::name::TenantName;
use snavio_model::telemetry::{self, Record as TelemetryRecord};
use snavio_model::time::Timestamp;

use crate::record::check_value::Check;
use crate::{Act, Deed, StoreError};

/// Claims that are looked at in one step.
pub(crate) const LOOKED_AT_MAX: usize = 1_000;
/// Deliveries have the numbers that follow their message's: a message has no more of them than this.
pub(crate) const DESTINATIONS_MAX: i64 = 4_096;
// Those of a conflict come with a record each.
const _: () = assert!(2 * bounds::SUBSCRIPTIONS_PER_TYPE_MAX as i64 <= DESTINATIONS_MAX);
/// A segment that was begun so long ago, and is pointed to by nothing, will not be finished by anybody: an hour.
pub(crate) const BEGUN_MAX: std::time::Duration = std::time::Duration::from_secs(3_600);

/// The note that a store was restored, since when, and may not be the only one that points into its archive: nothing is
/// moved, rewritten or deleted there until somebody has said that the other one is gone for good.
pub const ARCHIVE_UNCONFIRMED: &str = "archive/unconfirmed";

/// How far claims that have cooled were looked through: those come next whose time was over later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CooledUpTo {
    /// When the last one's time was over.
    pub hot_until: Timestamp,
    /// Its message.
    pub message: Serial,
}

/// What may be moved now.
#[derive(Debug, Default)]
pub struct Cooled {
    /// Each with the answers that move with it.
    pub records: Vec<Record>,
    /// From where to go on; nothing at the end.
    pub next: Option<CooledUpTo>,
}

/// A segment that is about to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSegment {
    /// Its key.
    pub object: String,
    /// How many records it has.
    pub records: usize,
    /// When the last of its claims is over.
    pub expires_at: Timestamp,
}

/// What is to be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHold {
    /// Whose.
    pub tenant: TenantName,
    /// What of it.
    pub held: Held,
}

/// What came of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Erasure {
    /// What the id said is destroyed, now or since this time.
    Erased {
        /// When.
        at: Timestamp,
        /// Whether it was before.
        before: bool,
    },
    /// A hold is on it.
    Held(Serial),
    /// It is the evidence of a conflict that nobody has resolved yet, and that is another's to resolve.
    Disputed(Serial),
    /// It is on its way, or a dead letter that may be put back: whoever works on it would get nothing.
    Busy,
    /// It was archived, or archived elsewhere, since it was looked at: look again.
    Moved,
    /// There is no such id.
    Unknown,
}

/// The archive's books.
#[async_trait]
pub trait Archive: Send + Sync {
    /// Some of what may be moved, oldest first: a bounded number, and a segment's worth of bytes.
    async fn cooled(&self, after: Option<CooledUpTo>, now: Timestamp) -> Result<Cooled, StoreError>;

    /// Notes that a segment is about to be written. False if the one before it under this key is being deleted.
    async fn begin_segment(&self, segment: NewSegment, now: Timestamp) -> Result<bool, StoreError>;

    /// Points claims to records that are in the archive and were read back from there, and deletes what moved, each in one
    /// commit with its pointer. What is not as it was when it was written stays, and its segment is settled: it is loose
    /// then, or ends if nothing of it moved. Says how many records moved.
    async fn moved(&self, records: Vec<(Record, Pointer)>, now: Timestamp) -> Result<usize, StoreError>;

    /// How many claims should have been moved by now.
    async fn archive_backlog(&self, now: Timestamp) -> Result<u64, StoreError>;

    /// Segments after a key that are loose: they have records that nothing points to, because whoever moved them was interrupted or
    /// did not find them as they were. What such records say is nobody's to find, and must not stay (CLM-18).
    async fn loose_segments(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Looks how much of a segment is pointed to whose object was written: all of it is kept, some of it loose, and if
    /// nothing is, it ends. So does one that has no row.
    async fn settle_segment(&self, object: &str, now: Timestamp) -> Result<(), StoreError>;

    /// What claims point to in a segment.
    async fn pointed(&self, object: &str) -> Result<Vec<Pointer>, StoreError>;

    /// Points claims to records that were written again. The old segments end. False, and nothing is done, if one of the
    /// new ones is not there to be pointed to, or something of an old one was left out.
    async fn repoint(&self, rewritten: Vec<(Pointer, Pointer)>) -> Result<bool, StoreError>;

    /// Segments after a key that nothing points to any more and nobody will finish: from here on they are ending.
    async fn spent_segments(
        &self,
        after: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError>;

    /// Whether the object of a segment is to be deleted: whoever does so asks just before.
    async fn is_ending(&self, object: &str) -> Result<bool, StoreError>;

    /// How many objects are still to be deleted, or to be written again without what nothing points to.
    async fn unsettled_segments(&self) -> Result<u64, StoreError>;

    /// The object of a segment that was ending is gone: so is its row, on the record.
    async fn forget_segment(&self, object: &str, now: Timestamp) -> Result<(), StoreError>;

    /// Destroys what an id says: payloads and answers in the store, and its records in the archive, which were written
    /// again without it. `rewritten` says where every record of their segments is now, `decides_for` whose conflicts
    /// whoever erases may resolve: all of them without one. In one commit, on the record, and told to whoever was sent it.
    async fn erase(
        &self,
        id: &IdKey,
        rewritten: Vec<(Pointer, Pointer)>,
        decides_for: Option<&str>,
        act: Act,
    ) -> Result<Erasure, StoreError>;

    /// Holds something, on the record. The same again is another hold. Nothing if the tenant has as many in force as it
    /// may ([`bounds::HOLDS_PER_TENANT_MAX`]).
    async fn set_hold(&self, hold: NewHold, act: Act) -> Result<Option<Hold>, StoreError>;

    /// Holds after a number, of one tenant or of all, those that were lifted too if asked for.
    async fn holds(
        &self,
        tenant: Option<&str>,
        lifted_too: bool,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<Hold>, StoreError>;

    /// One of them.
    async fn hold(&self, id: Serial) -> Result<Option<Hold>, StoreError>;

    /// Lifts a hold, on the record. One that was lifted before stays as it is.
    async fn lift_hold(&self, id: Serial, act: Act) -> Result<Option<Hold>, StoreError>;
}

impl NewHold {
    pub(crate) fn with(self, id: Serial, act: &Act) -> Hold {
        let (who, why, at) = (act.who.clone(), act.why.clone(), act.at);
        Hold { id, tenant: self.tenant, held: self.held, who, why, at, lifted: None }
    }
}

/// The hold as lifted by somebody.
pub(crate) fn lifted(hold: Hold, act: &Act) -> Hold {
    let lifted = Lifted { who: act.who.clone(), why: act.why.clone(), at: act.at };
    Hold { lifted: Some(lifted), ..hold }
}

/// What is on record of a hold that was set or lifted.
pub(crate) fn hold_deed(hold: &Hold) -> Deed {
    let (action, outcome) = match &hold.lifted {
        None => ("hold.set", format!("nothing of {} is deleted or erased", hold.object())),
        Some(_) => ("hold.lift", format!("{} may be deleted and erased again", hold.object())),
    };
    Deed { action, object: hold.id.to_string(), outcome }
}

/// The check value of a hold.
pub(crate) fn of_hold(hold: &Hold) -> i64 {
    let mut check = Check::default();
    check.number(hold.id.0);
    let (id, destination) = parts(&hold.held);
    for text in [hold.tenant.as_str(), id.unwrap_or(""), destination.unwrap_or(""), &hold.who, &hold.why] {
        check.bytes(text.as_bytes());
    }
    check.number(hold.at.0);
    if let Some(lifted) = &hold.lifted {
        check.number(lifted.at.0);
        check.bytes(lifted.who.as_bytes());
        check.bytes(lifted.why.as_bytes());
    }
    check.value()
}

/// What is held, as its two columns.
pub(crate) fn parts(held: &Held) -> (Option<&str>, Option<&str>) {
    match held {
        Held::Id(id) => (Some(id.as_str()), None),
        Held::Destination(destination) => (None, Some(destination)),
        Held::Tenant => (None, None),
    }
}

/// Takes back what [`parts`] gave.
pub(crate) fn held(id: Option<&str>, destination: Option<&str>) -> Held {
    match (id, destination) {
        (Some(id), _) => Held::Id(snavio_model::id::MessageId::stored(id)),
        (None, Some(destination)) => Held::Destination(destination.into()),
        (None, None) => Held::Tenant,
    }
}

/// A claim on the record. Its id is quoted: it may hold spaces and commas, and must not read as another's.
fn named(id: &str, tenant: &str, destination: &str) -> String {
    format!("{id:?} of {tenant} at {destination}")
}

/// Claims whose time is over, as they are deleted.
#[derive(Default)]
pub(crate) struct Expired {
    /// The names of those that are kept for an audit, in runs that each fit into an entry of the record.
    named: Vec<(usize, String)>,
    pub(crate) messages: usize,
    pub(crate) answers: usize,
}

/// Bytes of names in one entry of the record.
const NAMES_BYTES: usize = 8 * 1024;

impl Expired {
    pub(crate) fn add(&mut self, id: &str, tenant: &str, destination: &str) {
        let name = named(id, tenant, destination);
        match self.named.last_mut().filter(|(_, names)| names.len() + name.len() < NAMES_BYTES) {
            Some((count, names)) => {
                *count += 1;
                names.push_str(", ");
                names.push_str(&name);
            }
            None => self.named.push((1, name)),
        }
    }

    /// What is on record of it: what, and when (CLM-18). All of them by name, in as many entries as that takes; what went
    /// with them is in the last.
    pub(crate) fn deeds(&self, now: Timestamp) -> (Act, Vec<Deed>) {
        let (messages, answers) = (self.messages, self.answers);
        let deed = |(place, (count, names)): (usize, &(usize, String))| {
            let with = match place + 1 == self.named.len() {
                true => format!("; with them {messages} messages and {answers} answers"),
                false => String::new(),
            };
            let outcome = format!("their time was over: {names}{with}");
            Deed { action: "claims.expire", object: format!("{count} claims"), outcome }
        };
        let act = Act { who: "gateway".to_owned(), why: String::new(), at: now };
        (act, self.named.iter().enumerate().map(deed).collect())
    }
}

/// What is on record of a segment whose object was deleted.
pub(crate) fn deleted_segment(object: &str, at: Timestamp) -> (Act, Deed) {
    let act = Act { who: "gateway".to_owned(), why: String::new(), at };
    let outcome = "nothing pointed to it any more".to_owned();
    (act, Deed { action: "archive.delete", object: object.to_owned(), outcome })
}

/// What is on record of an erasure: the proof that stays.
pub(crate) fn erased(id: &IdKey, messages: usize, answers: usize, archived: usize) -> Deed {
    let outcome = format!(
        "what it said is destroyed: {messages} messages and {answers} answers in the store, {archived} records in the \
         archive; hash, reference and times stay"
    );
    Deed { action: "claim.erase", object: format!("{:?} of {}", id.id.as_str(), id.tenant), outcome }
}

/// A conflict under an id that is to be erased.
#[derive(Debug)]
pub(crate) struct Dispute {
    pub(crate) number: Serial,
    pub(crate) original: Serial,
    pub(crate) destination: String,
    pub(crate) owner: String,
    pub(crate) is_open: bool,
}

/// The first of them that only somebody else may resolve.
pub(crate) fn disputed(disputes: &[Dispute], decides_for: Option<&str>) -> Option<Serial> {
    let is_others = |it: &&Dispute| it.is_open && decides_for.is_some_and(|own| own != it.owner);
    disputes.iter().find(is_others).map(|it| it.number)
}

/// What the owners of destinations are told of an erasure: each once for each of them.
pub(crate) fn told_of_erasure<'a>(
    id: &IdKey,
    destinations: impl Iterator<Item = &'a str>,
    at: Timestamp,
) -> Vec<TelemetryRecord> {
    let destinations: BTreeSet<_> = destinations.collect();
    destinations.into_iter().filter_map(|it| telemetry::erased(id, it, at)).collect()
}

/// What a row of `claim` has besides the claim itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Aside {
    pub(crate) key: ClaimKey,
    pub(crate) message: Serial,
    pub(crate) repeats: i64,
    pub(crate) last_seen_at: Option<i64>,
    pub(crate) archived_at: Option<i64>,
    pub(crate) archive: Option<String>,
    pub(crate) erased_at: Option<i64>,
}

impl Aside {
    /// Whether its record is in the archive, and not among those that were written again.
    pub(crate) fn is_elsewhere(&self, rewritten: &[(Pointer, Pointer)]) -> bool {
        let Some(text) = &self.archive else { return false };
        let Some(pointer) = ClaimPointer::parse(text) else { return true };
        !rewritten.iter().any(|(old, _)| *old == pointer.record)
    }
}

/// Where a segment stands, as its column says: begun (0), kept (1), ending (2) or loose (3).
pub(crate) fn standing(pointed: usize, records: i64) -> i16 {
    match pointed {
        0 => 2,
        pointed if i64::try_from(pointed).is_ok_and(|it| it < records) => 3,
        _ => 1,
    }
}

/// The records that claims point to, by what stands beside these.
pub(crate) fn records_of(beside: Vec<String>) -> Result<HashSet<Pointer>, StoreError> {
    let damaged = |text: String| StoreError::Damaged { what: "pointer to the archive", key: text };
    let record = |text: String| ClaimPointer::parse(&text).map(|it| it.record).ok_or_else(|| damaged(text));
    beside.into_iter().map(record).collect()
}

/// How many records that are; what cannot be read is one too.
pub(crate) fn count_of(beside: Vec<String>) -> usize {
    let record = |text: String| ClaimPointer::parse(&text).map_or(text, |it| it.record.to_string());
    beside.into_iter().map(record).collect::<HashSet<_>>().len()
}

/// The segments that records are in, each once and in order.
pub(crate) fn objects_of<'a>(records: impl Iterator<Item = &'a Pointer>) -> BTreeSet<&'a str> {
    records.map(|it| it.object.as_str()).collect()
}

/// A row of `segment`, on its way to another store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentRow {
    pub(crate) object: String,
    pub(crate) state: i16,
    pub(crate) begun_at: i64,
    pub(crate) records: i64,
    pub(crate) expires_at: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-18: an id that reads like a list of others is one id on the record.
    #[test]
    fn an_id_cannot_pass_for_others_on_the_record() {
        let mut expired = Expired::default();
        expired.add("a1 of acme at acme/gl:post, \"z", "evil", "evil/app:x");
        let (_, deeds) = expired.deeds(Timestamp(0));
        let expected = r#""a1 of acme at acme/gl:post, \"z" of evil at evil/app:x"#;
        assert!(deeds[0].outcome.contains(expected), "{}", deeds[0].outcome);
    }
}
