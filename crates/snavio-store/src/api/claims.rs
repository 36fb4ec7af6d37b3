//! What becomes of claims: reports on attempts, and what can be looked up (CLM-2, CLM-5 to CLM-7, CLM-10, CLM-11).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use snavio_model::archive::{ClaimPointer, Fault};
use snavio_model::claim::conflict::Conflict;
use snavio_model::claim::{Claim, ClaimKey, IdKey, Leases, Present, Status};
use snavio_model::delivery::processing::{Answer, Ending, Retry};
use snavio_model::delivery::{Receipt, ReceiptOutcome};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::CorrelationId;
use snavio_model::name::{QueueKey, ServiceName, TenantName};
use snavio_model::time::Timestamp;

use crate::{Act, Received, StoreError};

/// What a worker says came of an attempt.
#[derive(Debug, Clone)]
pub struct Report {
    /// Which attempt.
    pub receipt: Receipt,
    /// What came of it.
    pub ending: Ending,
    /// When the next attempt is due, if there is one.
    pub retry: Retry,
    /// The destinations whose claims keep what was answered.
    pub kept_at: Vec<Arc<str>>,
    /// What is on record of late reports on this delivery.
    pub on_record: OnRecord,
}

/// What whoever hands reports over knows to be on record of late ones on the same delivery (CLM-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRecord {
    /// This very one, or it is about to be.
    This,
    /// As many others, or they are about to be.
    Others(u32),
}

impl Default for OnRecord {
    fn default() -> Self {
        Self::Others(0)
    }
}

impl OnRecord {
    /// Whether a late report goes on record.
    fn wants(self, fence: Serial, leases: &Leases) -> bool {
        match self {
            Self::This => false,
            Self::Others(others) => leases.put_on_record(fence, others),
        }
    }

    /// The same, where so many more are on record.
    fn and(self, more: usize) -> Self {
        match self {
            Self::This => Self::This,
            Self::Others(others) => {
                Self::Others(others.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)))
            }
        }
    }
}

impl Report {
    /// That it is done, with nothing to say about it.
    pub fn done(receipt: Receipt) -> Self {
        let ending = Ending::Completed { answer: None, reference: None, note: None };
        Self {
            receipt,
            ending,
            retry: Retry::At(Timestamp(0)),
            kept_at: Vec::new(),
            on_record: OnRecord::default(),
        }
    }

    /// That it is not done, and is to be handed out again; and why, if that was said.
    pub fn given_back(receipt: Receipt, retry_at: Timestamp, why: Option<&str>) -> Self {
        let error = why.unwrap_or("it was given back").to_owned();
        let ending = Ending::Failed { error, is_final: false, answer: None, retry_after: None };
        Self { ending, retry: Retry::At(retry_at), ..Self::done(receipt) }
    }

    /// That nobody knows whether it is done, and that it is to be handed out again unless its route holds that; and why, if
    /// that was said.
    pub fn given_back_unknown(receipt: Receipt, retry_at: Timestamp, why: Option<&str>) -> Self {
        let error = why.unwrap_or("it was given back, and may be done").to_owned();
        Self { ending: Ending::Unknown { error }, ..Self::given_back(receipt, retry_at, None) }
    }
}

impl Report {
    /// What it comes to if it was told before, and the pause before the next attempt goes on.
    pub(crate) fn told_before(&self, found: Option<&(ClaimKey, Claim)>) -> Option<Finished> {
        let progress = found.and_then(|(_, claim)| claim.progress.as_ref())?;
        let waits = progress.waits_after(self.receipt.fence, &self.ending);
        waits.then(|| Finished::before(ReceiptOutcome::Done, Some(progress.status)))
    }

    /// What was answered, if the claim keeps it: nothing of an attempt that is followed by another. One that is audited keeps
    /// it whatever its route says by now (CLM-5).
    pub(crate) fn kept_answer(&self, key: &ClaimKey, claim: &Claim) -> Option<&Answer> {
        if claim.status().is_unended() {
            return None;
        }
        let (Ending::Completed { answer, .. } | Ending::Failed { answer, .. }) = &self.ending else {
            return None;
        };
        let is_kept = claim.hot_until.is_some() || self.kept_at.contains(&key.destination);
        answer.as_ref().filter(|_| is_kept)
    }

    /// What it comes to where its work ended, or is somebody else's: whoever says again what stands is told that it does; all
    /// others are fenced off, and whoever can have had the work goes on the record, with as many others of this call
    /// (CLM-7). Where no claim says what became of the work, only the delivery does, if it is there. Decides and touches
    /// nothing.
    pub(crate) fn late(&self, is_there: bool, claim: Option<(&Claim, Leases)>, others: usize) -> Finished {
        let Some((claim, leases)) = claim else {
            let outcome = if is_there { ReceiptOutcome::Fenced } else { ReceiptOutcome::Gone };
            return Finished::new(outcome, None);
        };
        let (fence, status) = (self.receipt.fence, Some(claim.status()));
        if claim.progress.as_ref().is_some_and(|it| it.was_ended_by(fence, &self.ending)) {
            return Finished::before(ReceiptOutcome::Done, status);
        }
        Finished::fenced(status, self.on_record.and(others).wants(fence, &leases))
    }
}

/// What a report came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Whether it counts.
    pub outcome: ReceiptOutcome,
    /// Where the claim stands then, if one waits for the delivery.
    pub status: Option<Status>,
    /// Whether it stood before, and the report changed nothing.
    pub told_before: bool,
    /// Whether it went on record that it comes late.
    pub put_on_record: bool,
}

impl Finished {
    /// What a report came to that is the first of its attempt.
    pub fn new(outcome: ReceiptOutcome, status: Option<Status>) -> Self {
        Self { outcome, status, told_before: false, put_on_record: false }
    }

    /// What a report came to whose work had ended before.
    pub fn before(outcome: ReceiptOutcome, status: Option<Status>) -> Self {
        Self { told_before: true, ..Self::new(outcome, status) }
    }

    /// What a report came to that is late.
    pub fn fenced(status: Option<Status>, put_on_record: bool) -> Self {
        Self { put_on_record, ..Self::new(ReceiptOutcome::Fenced, status) }
    }
}

/// A hold is on what was answered last, which would have gone: it stays as it is (CLM-18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldBack;

/// A claim with all that is known of it.
#[derive(Debug, Clone)]
pub struct StoredClaim {
    /// Its key.
    pub key: ClaimKey,
    /// The claim.
    pub claim: Claim,
    /// What its message says, if that can be read.
    pub hash: Option<DomainHash>,
    /// What its message belongs to, if that can be read.
    pub correlation: Option<CorrelationId>,
    /// How often the id came again.
    pub repeats: u64,
    /// And when it did last.
    pub last_seen_at: Option<Timestamp>,
    /// When its message and its answer were moved to the archive.
    pub archived_at: Option<Timestamp>,
    /// Where they are there.
    pub archive: Option<String>,
    /// When what they said was destroyed.
    pub erased_at: Option<Timestamp>,
    /// The attempt that is in progress, or when the next one is due.
    pub held: Option<HeldDelivery>,
}

/// Where the delivery of a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldDelivery {
    /// Somebody works on it.
    Leased {
        /// Under which fence.
        fence: Serial,
        /// Which attempt it is.
        attempt: u32,
        /// Until when they must report.
        until: Timestamp,
    },
    /// It is handed out again, from then on.
    Due(Timestamp),
}

impl HeldDelivery {
    /// The newest lease and the status of a claim whose delivery is held so.
    pub(crate) fn present(held: Option<Self>, claim: &Claim, now: Timestamp) -> Present {
        let ended = claim.progress.as_ref().and_then(|progress| progress.fence);
        match held {
            Some(Self::Leased { fence, until, .. }) => {
                let status = claim.status();
                Present {
                    fence: Some(fence),
                    status: if now < until { status.while_leased() } else { status },
                }
            }
            Some(Self::Due(_)) | None => Present { fence: ended, status: claim.status() },
        }
    }
}

impl StoredClaim {
    /// Where its message and its answer are in the archive, if they are there.
    pub fn pointer(&self) -> Option<Result<ClaimPointer, Fault>> {
        let text = self.archive.as_ref()?;
        Some(ClaimPointer::parse(text).ok_or_else(|| Fault::Pointer(text.clone())))
    }

    /// Where it stands: one that failed and was taken up again is in progress.
    pub fn status(&self, now: Timestamp) -> Status {
        HeldDelivery::present(self.held, &self.claim, now).status
    }
}

/// Which claims are listed.
#[derive(Debug, Clone)]
pub struct ClaimFilter {
    /// The tenant of the destination, or all.
    pub owner: Option<String>,
    /// The service that sent it, or does the work; any when not said.
    pub service: Option<ServiceName>,
    /// Their statuses at present.
    pub statuses: Vec<Status>,
    /// Those whose message comes after this one.
    pub after: Serial,
}

/// Which claims under an id are looked up.
#[derive(Debug, Clone)]
pub struct ClaimLookUp {
    /// The id.
    pub id: MessageId,
    /// The tenants among which the sender is.
    pub senders: Vec<TenantName>,
    /// Each of these tenants is the sender or owns the destination.
    pub parties: Vec<String>,
    /// The destination; any when not given.
    pub destination: Option<String>,
    /// The service that sent it, or does the work; any when not given.
    pub service: Option<ServiceName>,
}

impl ClaimLookUp {
    /// Whether a claim under the id is asked for.
    pub fn asks_for(&self, key: &ClaimKey, claim: &Claim) -> bool {
        let is_party = |party: &String| key.tenant.as_str() == party || key.is_owned_by(party);
        let target = key.destination.split(':').next();
        let is_of = |service: &ServiceName| claim.source == *service || target == Some(service.as_str());
        self.parties.iter().all(is_party)
            && self.service.as_ref().is_none_or(is_of)
            && self.destination.as_ref().is_none_or(|asked| **asked == *key.destination)
    }

    /// Whether each party sent the id of a conflict or decides it.
    pub(crate) fn has_party_in(&self, conflict: &Conflict) -> bool {
        let is_party =
            |party: &String| [conflict.tenant.as_str(), conflict.owner.as_str()].contains(&party.as_str());
        self.parties.iter().all(is_party)
    }
}

impl ClaimFilter {
    /// The stored statuses among which the claims are: the lease of a delivery may make another one of them.
    pub(crate) fn stored_statuses(&self) -> Vec<i16> {
        let stored = (0..).map_while(Status::stored);
        let may_be = |status: &Status| {
            self.statuses.contains(status) || self.statuses.contains(&status.while_leased())
        };
        stored.filter(may_be).map(Status::number).collect()
    }
}

/// What becomes of claims.
#[async_trait]
pub trait Claims: Send + Sync {
    /// Ends attempts as they are reported, by somebody who is called so. What is told to be done is durable: the claim,
    /// its answer and the end of the delivery are one commit. A delivery that no claim waits for just ends, or is given
    /// back. A report on work that is somebody else's by now changes nothing, and goes on the record.
    async fn finish(
        &self,
        queue: &QueueKey,
        reports: Vec<Report>,
        who: &str,
        now: Timestamp,
    ) -> Result<Vec<Finished>, StoreError>;

    /// Hands out this one delivery, if it may be handed out now.
    async fn take(
        &self,
        queue: &QueueKey,
        delivery: Serial,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Option<Received>, StoreError>;

    /// All claims under an id, in the order of their destinations; without those whose time is over by then.
    async fn claims_of(&self, id: &IdKey, now: Timestamp) -> Result<Vec<StoredClaim>, StoreError>;

    /// Claims under an id, whichever tenant sent it, in the order of senders and destinations; without those whose time is
    /// over by then. [`bounds::PAGE_MAX`](snavio_model::bounds::PAGE_MAX) at most.
    async fn claims_under(&self, asked: &ClaimLookUp, now: Timestamp)
    -> Result<Vec<StoredClaim>, StoreError>;

    /// Whether there is any claim under ids of a tenant, or at its destinations. All of them may be looked at.
    async fn has_claims(&self, tenant: &str) -> Result<bool, StoreError>;

    /// Whether there is a claim or a conflict under an id that a tenant sent, or was sent by whomever. All of them may be
    /// looked at.
    async fn is_concerned(&self, tenant: &str, id: &MessageId) -> Result<bool, StoreError>;

    /// Claims that are not complete, oldest first.
    async fn open_claims(
        &self,
        filter: &ClaimFilter,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<StoredClaim>, StoreError>;

    /// What was answered to a delivery, if that was kept.
    async fn answer(&self, delivery: Serial) -> Result<Option<Answer>, StoreError>;

    /// Takes over claims from elsewhere, on the record, and says how many: those under ids that are taken here stay as
    /// they are. They have no message.
    async fn import(&self, claims: Vec<(ClaimKey, Claim)>, act: Act) -> Result<usize, StoreError>;

    /// Puts it on record that a person saw that the work of a delivery was done, where it failed for good or is in doubt:
    /// its dead letter and what its last attempt answered go, unless a hold is on that. Says where the claim stands then;
    /// nothing if the tenant has no such claim.
    async fn settle_claim(
        &self,
        owner: &str,
        delivery: Serial,
        reference: Option<String>,
        act: Act,
    ) -> Result<Option<Result<Status, HeldBack>>, StoreError>;

    /// Counts that ids came again: how often, and when last (CLM-5).
    async fn seen_again(&self, seen: Vec<(ClaimKey, u64, Timestamp)>) -> Result<(), StoreError>;
}
