//! Attempts that end: what is reported, and what nobody reported in time (CLM-4, CLM-6, CLM-7).
//!
//! A report changes the claim, keeps the answer and ends or keeps the delivery in one transaction; the index in memory
//! follows once that is durable.

use std::sync::{Arc, Mutex};

use snavio_model::claim::{Attempt, Claim, ClaimKey, Fenced, Leases, Next, Status};
use snavio_model::delivery::processing::Ending;
use snavio_model::delivery::{DeadLetter, DeadReason, Delivery, ReceiptOutcome, Tracking};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::QueueKey;
use snavio_model::ordering::Lane;
use snavio_model::telemetry::{Record, dead_lettered};
use snavio_model::time::Timestamp;
use tokio::sync::oneshot;

use super::check::usable;
use super::index::{Lapsed, Shown};
use super::park::{self, Parked};
use super::queue::Queues;
use super::writer::{Job, Transaction, lock, sql};
use super::{answer, audit, claim, dead_letter, delivery, hold, lease, message, telemetry};
use crate::engine::expiry;
use crate::engine::notifiers::Waiting;
use crate::record::check_value;
use crate::record::lease::{Held, KeptLease};
use crate::{Act, Finished, HeldBack, HeldDelivery, Report, StoreError};

/// A report on an attempt of a delivery that a claim waits for, or that is refused for good.
pub(super) struct Work {
    /// Its place among the answers.
    pub(super) place: usize,
    pub(super) report: Report,
    /// Nothing if it is not of the newest lease.
    pub(super) shown: Option<Shown>,
    pub(super) tracking: Tracking,
    /// Its lane, if an entity may be parked behind it.
    pub(super) lane: Option<Lane>,
    /// Of a delivery that is there, how often it was handed out, and a number that no lease of it is above: of those from
    /// before the store was opened only some are on record.
    pub(super) handed_out: Option<(u32, Serial)>,
    /// The present lease of the delivery, if it is there.
    pub(super) held: Option<HeldDelivery>,
}

impl Work {
    /// The leases that its delivery can have had: fences are numbered after their deliveries. Of one that is gone it is not
    /// known which was the newest, since a purge or silence that is in doubt ends it without a word of its lease.
    fn leases(&self, claim: &Claim, issued: Serial) -> Leases {
        let attempts = claim.progress.as_ref().map_or(0, |it| it.attempts);
        let after = self.report.receipt.delivery_id;
        match self.handed_out {
            Some((receives, newest)) => Leases { after, newest, attempts: attempts.max(receives) },
            None => Leases { after, newest: issued, attempts: attempts.max(1) },
        }
    }
}

pub(super) struct Finish {
    pub(super) queue: QueueKey,
    /// Deliveries that just end: no claim waits for them.
    pub(super) plain: Vec<Serial>,
    /// Lanes of those of them that an entity may be parked behind.
    pub(super) lanes: Vec<Lane>,
    pub(super) works: Vec<Work>,
    pub(super) who: String,
    pub(super) now: Timestamp,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) written: Arc<Waiting>,
    /// What became of each work.
    pub(super) ended: Vec<(Finished, Option<Next>)>,
    pub(super) records: Vec<Record>,
    pub(super) parked: Vec<Parked>,
    pub(super) reply: oneshot::Sender<Result<Vec<(usize, Finished)>, StoreError>>,
}

impl Finish {
    fn taken(&self) -> impl Iterator<Item = Serial> {
        let shown = self.works.iter().filter(|work| work.shown.is_some());
        shown.map(|work| work.report.receipt.delivery_id)
    }
}

impl Job for Finish {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.ended.clear();
        self.records.clear();
        self.parked.clear();
        for id in &self.plain {
            delivery::delete(transaction.connection, *id).map_err(sql)?;
            transaction.dirty = true;
        }
        for lane in &self.lanes {
            self.parked.extend(park::done(transaction, Some(lane), self.now)?);
        }
        for work in &self.works {
            let id = work.report.receipt.delivery_id;
            // Those of one call are not known to each other.
            let before = self.works.iter().zip(&self.ended);
            let before = before.filter(|(it, _)| it.report.receipt.delivery_id == id).map(|(_, ended)| ended);
            let others = before.clone().filter(|(to, _)| to.put_on_record).count();
            let has_left = before.clone().any(|(_, next)| matches!(next, Some(Next::Done | Next::Bury(_))));
            let is_there = work.handed_out.is_some() && !has_left;
            // A report of this call that counted has ended the lease.
            let held = work.held.filter(|_| before.clone().all(|(_, next)| next.is_none()));
            let found = usable(claim::of_delivery(transaction.connection, id))?.flatten();
            // A number of somebody else's says nothing about theirs.
            let found = found.filter(|(key, _)| key.is_owned_by(self.queue.tenant()));
            let is_late = |shown: &Shown, claim: &Claim| {
                let newest = claim.progress.as_ref().and_then(|it| it.fence);
                shown.is_old && newest.is_some_and(|newest| newest >= work.report.receipt.fence)
            };
            let ended = match work.shown {
                // One that was handed out before a restart, and was not the last one then, is late too.
                Some(shown) if !found.as_ref().is_some_and(|(_, claim)| is_late(&shown, claim)) => {
                    let ended = end(transaction, work, shown, found, self.now, &mut self.records)?;
                    let lane = work.lane.as_ref();
                    self.parked.extend(match ended.1 {
                        Some(Next::Done) => park::done(transaction, lane, self.now)?,
                        Some(Next::Bury(_)) => {
                            park::failed(transaction, lane, message_id(transaction, id)?.as_ref(), self.now)?
                        }
                        Some(Next::Again) | None => None,
                    });
                    ended
                }
                _ => {
                    let of = Late { work, is_there, held, others };
                    late(transaction, of, found, (&self.who, self.now), &mut self.records)?
                }
            };
            self.ended.push(ended);
        }
        telemetry::append(transaction, &self.records)
    }

    fn committed(self: Box<Self>) {
        let mut queues = lock(&self.queues);
        self.parked.iter().for_each(|(key, at)| queues.park(key, *at));
        queues.forget(&self.queue, &self.plain);
        for (work, (_, next)) in self.works.iter().zip(&self.ended) {
            let id = work.report.receipt.delivery_id;
            match next {
                Some(Next::Again) => {
                    let attempt = work.shown.map_or(1, |it| it.attempts);
                    queues.resume(&self.queue, id, work.report.retry.due(attempt, id, self.now));
                }
                Some(Next::Done | Next::Bury(_)) => queues.forget(&self.queue, &[id]),
                // Whoever has it still does.
                None if work.shown.is_some() => queues.put_back(&self.queue, &[id]),
                None => {}
            }
        }
        drop(queues);
        self.written.wake(self.records.iter().map(|record| record.tenant.as_str()));
        let places = self.works.iter().map(|work| work.place);
        let finished = places.zip(self.ended.into_iter().map(|(finished, _)| finished));
        let _ = self.reply.send(Ok(finished.collect()));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        let taken: Vec<_> = self.taken().chain(self.plain.iter().copied()).collect();
        lock(&self.queues).put_back(&self.queue, &taken);
        let _ = self.reply.send(Err(error));
    }
}

/// A report of the newest lease.
fn end(
    transaction: &mut Transaction<'_>,
    work: &Work,
    shown: Shown,
    found: Option<(ClaimKey, Claim)>,
    now: Timestamp,
    records: &mut Vec<Record>,
) -> Result<(Finished, Option<Next>), StoreError> {
    let Report { receipt, ending, .. } = &work.report;
    let before = work.report.told_before(found.as_ref());
    if let Some(before) = before.filter(|_| !shown.is_leased) {
        return Ok((before, None));
    }
    let (number, most) = (shown.attempts, shown.attempts_max);
    let attempt = Attempt { fence: receipt.fence, number, most, tracking: work.tracking };
    // Where it was leased on since, its pause begins anew: whoever reports has not got it.
    let mut told_before = before.is_some();
    let (next, status) = match found {
        Some((key, mut claim)) => match claim.finish(&attempt, ending, now) {
            Ok(next) => {
                claim::update(transaction.connection, &key, &claim).map_err(sql)?;
                if let Some(answer) = work.report.kept_answer(&key, &claim) {
                    answer::put(transaction.connection, receipt.delivery_id, answer).map_err(sql)?;
                }
                (next, Some(claim.status()))
            }
            // It ended before: what is left of the delivery goes, and nothing else happens.
            Err(Fenced) => {
                told_before = true;
                (Next::Done, Some(claim.status()))
            }
        },
        None => (ending.without_claim(work.tracking), None),
    };
    let id = receipt.delivery_id;
    match next {
        Next::Done => {
            delivery::delete(transaction.connection, id).map_err(sql)?;
        }
        Next::Again => {
            let due = work.report.retry.due(number, id, now);
            let (held, fence) = (Some(Held::Delayed), Some(receipt.fence));
            let lease = KeptLease { delivery: id, receives: number, fence, held, visible_at: Some(due) };
            lease::put(transaction.connection, &lease, receipt.fence).map_err(sql)?;
        }
        Next::Bury(reason) => bury(transaction, id, (reason, ending), number, now, records)?,
    }
    transaction.dirty = true;
    Ok((Finished { told_before, ..Finished::new(ReceiptOutcome::Done, status) }, Some(next)))
}

/// The id of the message of a dead letter.
fn message_id(transaction: &Transaction<'_>, letter: Serial) -> Result<Option<MessageId>, StoreError> {
    let message = dead_letter::message_of(transaction.connection, letter).map_err(sql)?;
    let logged = message.map(|it| message::find_usable(transaction.connection, it)).transpose()?;
    Ok(logged.flatten().map(|it| it.message.id))
}

fn bury(
    transaction: &Transaction<'_>,
    id: Serial,
    (reason, ending): (DeadReason, &Ending),
    receives: u32,
    now: Timestamp,
    records: &mut Vec<Record>,
) -> Result<(), StoreError> {
    let found = usable(delivery::find(transaction.connection, id))?.flatten();
    let Some(delivery) = found else { return Ok(()) };
    let letter = DeadLetter::new(Delivery { receives, ..delivery }, reason, now).after(ending);
    delivery::delete(transaction.connection, id).map_err(sql)?;
    dead_letter::insert(transaction.connection, &letter).map_err(sql)?;
    let message = message::find_usable(transaction.connection, letter.delivery.message)?;
    records.extend(message.map(|logged| dead_lettered(&logged.message, &letter)));
    Ok(())
}

/// A report under a lease that is over, and what its call leaves of the delivery.
struct Late<'a> {
    work: &'a Work,
    is_there: bool,
    held: Option<HeldDelivery>,
    /// Late reports of the same call that went on record.
    others: usize,
}

/// A report on work that ended, or is somebody else's.
fn late(
    transaction: &mut Transaction<'_>,
    Late { work, is_there, held, others }: Late<'_>,
    found: Option<(ClaimKey, Claim)>,
    (who, now): (&str, Timestamp),
    records: &mut Vec<Record>,
) -> Result<(Finished, Option<Next>), StoreError> {
    let issued = transaction.numbers.newest();
    let claim = found.as_ref().map(|(_, claim)| (claim, work.leases(claim, issued)));
    let finished = work.report.late(is_there, claim, others);
    if let Some(found) = found.filter(|_| finished.put_on_record) {
        let (act, deed, record) = check_value::fenced(&found, held, work.report.receipt, who, now);
        audit::append(transaction, deed.action, &deed.object, &act, &deed.outcome)?;
        records.extend(record);
    }
    Ok((finished, None))
}

/// Attempts whose time is over: their claims say so, and then they are handed out again (CLM-7).
pub(super) struct Lapse {
    pub(super) queue: QueueKey,
    pub(super) lapsed: Vec<Lapsed>,
    pub(super) now: Timestamp,
    pub(super) queues: Arc<Mutex<Queues>>,
    pub(super) reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Job for Lapse {
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        for Lapsed { id, fence, attempts, .. } in &self.lapsed {
            let (receives, visible_at) = (*attempts, Some(self.now));
            let lease = KeptLease { delivery: *id, receives, fence: *fence, held: None, visible_at };
            lease::put(transaction.connection, &lease, fence.unwrap_or(Serial(0))).map_err(sql)?;
            transaction.dirty = true;
            let found = usable(claim::of_delivery(transaction.connection, *id))?.flatten();
            let Some((key, mut claim)) = found else { continue };
            if let Some(progress) = &mut claim.progress {
                progress.lapsed(*fence, *attempts, self.now);
            }
            claim::update(transaction.connection, &key, &claim).map_err(sql)?;
            let (act, deed) = check_value::lapsed(&key, &claim, self.now);
            audit::append(transaction, deed.action, &deed.object, &act, &deed.outcome)?;
        }
        Ok(())
    }

    fn committed(self: Box<Self>) {
        let mut queues = lock(&self.queues);
        self.lapsed.iter().for_each(|it| queues.resume(&self.queue, it.id, self.now));
        drop(queues);
        let _ = self.reply.send(Ok(()));
    }

    fn failed(self: Box<Self>, error: StoreError) {
        let ids: Vec<_> = self.lapsed.iter().map(|it| it.id).collect();
        lock(&self.queues).put_back(&self.queue, &ids);
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "attempts that did not report were not noted"
        );
        let _ = self.reply.send(Err(error));
    }
}

/// The claim of a delivery that ended without a report.
pub(super) fn buried(
    transaction: &Transaction<'_>,
    delivery: &Delivery,
    reason: DeadReason,
    now: Timestamp,
) -> Result<(), StoreError> {
    change(transaction, delivery.id, |claim| {
        claim.buried(reason, delivery.receives, now);
    })
}

/// Whether anybody ever had what a delivery is about, and a claim waits to hear of it, or later ones of its entity stay
/// behind it (ORD-7).
pub(super) fn was_tried(transaction: &Transaction<'_>, delivery: &Delivery) -> Result<bool, StoreError> {
    if !delivery.tracking.is_tracked() {
        return Ok(delivery.receives > 0 && delivery.parks());
    }
    let claim = usable(claim::of_delivery(transaction.connection, delivery.id))?.flatten();
    let progress = claim.and_then(|(_, claim)| claim.progress);
    Ok(progress.map_or(delivery.receives > 0, |it| it.was_handed_out(delivery.receives)))
}

/// The claim of a dead letter that was put back.
pub(super) fn reopened(transaction: &Transaction<'_>, delivery: Serial) -> Result<(), StoreError> {
    answer::delete(transaction.connection, delivery).map_err(sql)?;
    change(transaction, delivery, |claim| {
        if let Some(progress) = claim.progress.as_mut().filter(|it| it.status != Status::Completed) {
            progress.reopened();
        }
    })
}

/// Whether a hold is on what was answered to a delivery last: another attempt would destroy it (CLM-18).
pub(super) fn is_held(transaction: &Transaction<'_>, delivery: Serial) -> Result<bool, StoreError> {
    let connection = transaction.connection;
    if usable(answer::find(connection, delivery))?.is_some_and(|it| it.is_none()) {
        return Ok(false);
    }
    match usable(claim::of_delivery(connection, delivery))? {
        Some(Some((key, _))) => Ok(expiry::is_held(usable(hold::in_force(connection))?.as_ref(), &key)),
        Some(None) => Ok(false),
        // Whose it is cannot be known.
        None => Ok(true),
    }
}

/// Whether the claim that waits for a delivery is in doubt.
pub(super) fn is_in_doubt(transaction: &Transaction<'_>, delivery: Serial) -> Result<bool, StoreError> {
    let claim = usable(claim::of_delivery(transaction.connection, delivery))?.flatten();
    Ok(claim.is_some_and(|(_, claim)| claim.status() == Status::InDoubt))
}

/// A person says that it was done.
pub(super) fn settle(
    transaction: &mut Transaction<'_>,
    owner: &str,
    delivery: Serial,
    reference: Option<&str>,
    act: &Act,
    parked: &mut Option<Parked>,
) -> Result<Option<Result<Status, HeldBack>>, StoreError> {
    let found = usable(claim::of_delivery(transaction.connection, delivery))?.flatten();
    let Some((key, mut claim)) = found.filter(|(key, _)| key.is_owned_by(owner)) else { return Ok(None) };
    let before = claim.status();
    if claim.settled(reference, act.at).is_err() {
        return Ok(Some(Ok(before)));
    }
    if is_held(transaction, delivery)? {
        return Ok(Some(Err(HeldBack)));
    }
    claim::update(transaction.connection, &key, &claim).map_err(sql)?;
    answer::delete(transaction.connection, delivery).map_err(sql)?;
    let letter = usable(dead_letter::find(transaction.connection, owner, delivery))?.flatten();
    let lane = letter.and_then(|it| it.delivery.lane);
    *parked = park::done(transaction, lane.as_deref(), act.at)?;
    dead_letter::delete(transaction.connection, delivery).map_err(sql)?;
    let deed = check_value::settled(&key, before, reference);
    audit::append(transaction, deed.action, &deed.object, act, &deed.outcome)?;
    Ok(Some(Ok(claim.status())))
}

fn change(
    transaction: &Transaction<'_>,
    delivery: Serial,
    change: impl FnOnce(&mut Claim),
) -> Result<(), StoreError> {
    let found = usable(claim::of_delivery(transaction.connection, delivery))?.flatten();
    let Some((key, mut claim)) = found else { return Ok(()) };
    change(&mut claim);
    claim::update(transaction.connection, &key, &claim).map_err(sql)
}
