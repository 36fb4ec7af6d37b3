//! Attempts that end: what is reported, and what nobody reported in time (CLM-4, CLM-6, CLM-7).
//!
//! Entities are locked first, then deliveries in the order of their numbers, then their claims in the order of their keys:
//! so do all.

use std::collections::{HashMap, HashSet};

use snavio_model::claim::{Attempt, Claim, ClaimKey, Fenced, Leases, Next, Status};
use snavio_model::delivery::processing::Answer;
use snavio_model::delivery::{DeadLetter, DeadReason, Delivery, Receipt, ReceiptOutcome, Tracking};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::ordering::Lane;
use snavio_model::telemetry::{Record, dead_lettered};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::{Client, GenericClient};
use super::pool::sql;
use super::{answer, audit, claim, dead_letter, delivery, hold, lane, message, park, telemetry};
use crate::engine::expiry::is_held;
use crate::record::check_value;
use crate::record::check_value::usable;
use crate::{Act, Deed, Finished, HeldBack, HeldDelivery, Report, StoreError};

/// What reports leave to be written.
#[derive(Default)]
struct Written {
    /// Deliveries whose claims have changed.
    claims: HashSet<Serial>,
    answers: Vec<(Serial, Answer)>,
    done: Vec<i64>,
    /// Lanes of those that are done.
    lanes: Vec<Lane>,
    again: Vec<(i64, i64)>,
    buried: Vec<DeadLetter>,
    fenced: Vec<(Act, Deed)>,
    records: Vec<Record>,
}

/// Ends attempts as they are reported, in one transaction; also says whose telemetry was written.
pub(super) async fn finish(
    client: &mut Client,
    queue: &QueueKey,
    reports: &[Report],
    who: &str,
    now: Timestamp,
) -> Result<(Vec<Finished>, Vec<Record>), StoreError> {
    let transaction = client.transaction().await.map_err(sql)?;
    let ids: Vec<_> = reports.iter().map(|it| it.receipt.delivery_id).collect();
    lane::lock(&transaction, &ids).await?;
    let mut deliveries = lock(&transaction, queue, &ids).await?;
    let claims = claim::lock_of_deliveries(&transaction, &ids, Some(queue.tenant())).await?;
    let of_delivery = |found: (ClaimKey, Claim)| Some((found.1.progress.as_ref()?.delivery, found));
    let mut claims: HashMap<_, _> = claims.into_iter().filter_map(of_delivery).collect();
    let is_newest = |deliveries: &HashMap<Serial, Shown>, Receipt { delivery_id, fence }: Receipt| {
        deliveries.get(&delivery_id).is_some_and(|it| it.fence == Some(fence))
    };
    // The first of two on one delivery may leave the second late.
    let mut once = HashSet::new();
    let may_be_late =
        |it: &Report| !is_newest(&deliveries, it.receipt) || !once.insert(it.receipt.delivery_id);
    let issued = if reports.iter().any(may_be_late) { newest_fence(&transaction).await? } else { Serial(0) };
    let (mut written, mut ended) = (Written::default(), HashSet::new());
    let mut finished: Vec<Finished> = Vec::with_capacity(reports.len());
    for report in reports {
        let id = report.receipt.delivery_id;
        let (there, claim) = (deliveries.get(&id), claims.get_mut(&id));
        // Said twice in one call, the second finds the first's work done.
        let there_now = there.filter(|_| is_newest(&deliveries, report.receipt) && ended.insert(id));
        let came = match there_now {
            Some(shown) => {
                let (came, leaves) = end(report, shown, claim, now, &mut written);
                if leaves {
                    deliveries.remove(&id);
                }
                came
            }
            None => {
                // A report of this call that counted has ended the lease.
                let held = there.filter(|_| !ended.contains(&id)).and_then(Shown::held);
                let of_it = reports.iter().zip(&finished).filter(|(it, _)| it.receipt.delivery_id == id);
                let others = of_it.filter(|(_, came)| came.put_on_record).count();
                let of = Late { report, there, held, others };
                late(of, claim.as_deref(), (who, now, issued), &mut written)
            }
        };
        finished.push(came);
    }
    claims.retain(|id, _| written.claims.contains(id));
    let claims: Vec<_> = claims.into_values().collect();
    claim::update(&transaction, &claims).await?;
    write(&transaction, &mut written, now).await?;
    transaction.commit().await.map_err(sql)?;
    Ok((finished, written.records))
}

/// The newest fence that there is.
async fn newest_fence(client: &impl GenericClient) -> Result<Serial, StoreError> {
    let row = client.query_one("SELECT last_value FROM fence", &[]).await.map_err(sql)?;
    row.try_get(0).map(Serial).map_err(sql)
}

/// A delivery that a report may be about.
struct Shown {
    delivery: Delivery,
    /// Under which it was handed out last.
    fence: Option<Serial>,
    /// Until when it is leased; nothing if it was given back since.
    leased_until: Option<Timestamp>,
}

impl Shown {
    fn held(&self) -> Option<HeldDelivery> {
        let (fence, until) = self.fence.zip(self.leased_until)?;
        Some(HeldDelivery::Leased { fence, attempt: self.delivery.receives, until })
    }
}

/// Locks the deliveries of a queue.
async fn lock(
    client: &impl GenericClient,
    queue: &QueueKey,
    ids: &[Serial],
) -> Result<HashMap<Serial, Shown>, StoreError> {
    let text = format!(
        "SELECT {}, fence, CASE WHEN held = 'leased' THEN visible_at END FROM delivery WHERE id = ANY ($1) AND queue = $2 ORDER BY id FOR UPDATE",
        delivery::COLUMNS
    );
    let ids: Vec<_> = ids.iter().map(|it| it.0).collect();
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let rows = client.query(&statement, &[&ids, &queue.as_str()]).await.map_err(sql)?;
    let read = |row: &Row| {
        let delivery = delivery::read(row)?;
        let fence = row.try_get::<_, Option<i64>>(delivery::WIDTH)?.map(Serial);
        let leased_until = row.try_get::<_, Option<i64>>(delivery::WIDTH + 1)?.map(Timestamp);
        Ok((delivery.id, Shown { delivery, fence, leased_until }))
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

/// A report of the newest lease, and whether its delivery leaves.
fn end(
    report: &Report,
    shown: &Shown,
    found: Option<&mut (ClaimKey, Claim)>,
    now: Timestamp,
    written: &mut Written,
) -> (Finished, bool) {
    let Report { receipt, ending, .. } = report;
    let before = report.told_before(found.as_deref());
    if let Some(before) = before.filter(|_| shown.leased_until.is_none()) {
        return (before, false);
    }
    let delivery = &shown.delivery;
    // Where it was leased on since, its pause begins anew: whoever reports has not got it.
    let mut told_before = before.is_some();
    let (next, status) = match found {
        Some((key, claim)) => {
            let attempt = Attempt {
                fence: receipt.fence,
                number: delivery.receives,
                most: delivery.receives_max,
                tracking: delivery.tracking,
            };
            match claim.finish(&attempt, ending, now) {
                Ok(next) => {
                    let kept = report.kept_answer(key, claim);
                    written.answers.extend(kept.map(|it| (delivery.id, it.clone())));
                    written.claims.insert(delivery.id);
                    (next, Some(claim.status()))
                }
                // It ended before: what is left of the delivery goes, and nothing else happens.
                Err(Fenced) => {
                    told_before = true;
                    (Next::Done, Some(claim.status()))
                }
            }
        }
        None => (ending.without_claim(delivery.tracking), None),
    };
    match next {
        Next::Done => {
            written.done.push(delivery.id.0);
            written.lanes.extend(delivery.lane.as_deref().cloned());
        }
        Next::Again => {
            let due = report.retry.due(delivery.receives, delivery.id, now);
            written.again.push((delivery.id.0, due.0));
        }
        Next::Bury(reason) => {
            written.buried.push(DeadLetter::new(delivery.clone(), reason, now).after(ending));
        }
    }
    let finished = Finished { told_before, ..Finished::new(ReceiptOutcome::Done, status) };
    (finished, next != Next::Again)
}

/// A report under a lease that is over, and what its call leaves of the delivery.
struct Late<'a> {
    report: &'a Report,
    there: Option<&'a Shown>,
    held: Option<HeldDelivery>,
    /// Late reports of the same call that went on record.
    others: usize,
}

/// A report on work that ended, or is somebody else's.
fn late(
    Late { report, there, held, others }: Late<'_>,
    found: Option<&(ClaimKey, Claim)>,
    (who, now, issued): (&str, Timestamp, Serial),
    written: &mut Written,
) -> Finished {
    let claim = found.map(|(_, claim)| (claim, leases(there, claim, issued)));
    let finished = report.late(there.is_some(), claim, others);
    if let Some(found) = found.filter(|_| finished.put_on_record) {
        let (act, deed, record) = check_value::fenced(found, held, report.receipt, who, now);
        written.fenced.push((act, deed));
        written.records.extend(record);
    }
    finished
}

/// The leases that a delivery can have had: fences are numbered by themselves here, from one. Of one that is gone it is not
/// known which was the newest, since a purge or silence that is in doubt ends it without a word of its lease.
fn leases(there: Option<&Shown>, claim: &Claim, issued: Serial) -> Leases {
    let (after, attempts) = (Serial(0), claim.progress.as_ref().map_or(0, |it| it.attempts));
    match there {
        Some(Shown { delivery, fence, .. }) => {
            Leases { after, newest: fence.unwrap_or(issued), attempts: attempts.max(delivery.receives) }
        }
        None => Leases { after, newest: issued, attempts: attempts.max(1) },
    }
}

async fn write(client: &impl GenericClient, written: &mut Written, now: Timestamp) -> Result<(), StoreError> {
    const AGAIN: &str = "UPDATE delivery SET visible_at = new.at, held = 'delayed' \
         FROM unnest($1::bigint[], $2::bigint[]) AS new (id, at) WHERE delivery.id = new.id";
    answer::put(client, &written.answers).await?;
    if !written.done.is_empty() {
        let statement =
            client.prepare_cached("DELETE FROM delivery WHERE id = ANY ($1)").await.map_err(sql)?;
        client.execute(&statement, &[&written.done]).await.map_err(sql)?;
    }
    if !written.again.is_empty() {
        let (ids, times): (Vec<_>, Vec<_>) = written.again.iter().copied().unzip();
        let statement = client.prepare_cached(AGAIN).await.map_err(sql)?;
        let values: [&(dyn ToSql + Sync); 2] = [&ids, &times];
        client.execute(&statement, &values).await.map_err(sql)?;
    }
    if !written.buried.is_empty() {
        dead_letter::move_here(client, &written.buried).await?;
        let records = told(client, &written.buried).await?;
        written.records.extend(records);
    }
    park::ended(client, &written.lanes, &written.buried, now).await?;
    if let Some((act, _)) = written.fenced.first() {
        let deeds: Vec<_> = written.fenced.iter().map(|(_, deed)| deed.clone()).collect();
        audit::append(client, &Act { at: now, ..act.clone() }, &deeds).await?;
    }
    telemetry::append(client, &written.records).await
}

/// What the senders of dead letters are told.
async fn told(client: &impl GenericClient, letters: &[DeadLetter]) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    for letter in letters {
        let message = message::find(client, letter.delivery.message).await?;
        records.extend(message.map(|logged| dead_lettered(&logged.message, letter)));
    }
    Ok(records)
}

/// Attempts whose worker did not report in time: their claims say so, and then they are handed out again, or held for a
/// person. Within a transaction; says how many, and what is to be told.
pub(super) async fn lapse(
    client: &impl GenericClient,
    now: Timestamp,
    limit: usize,
) -> Result<(usize, Vec<Record>), StoreError> {
    const FOUND: &str = "SELECT id, tracking FROM delivery WHERE tracking > 0 AND held = 'leased' AND visible_at <= $1 \
         ORDER BY visible_at LIMIT $2";
    let text = format!(
        "SELECT {}, fence FROM delivery WHERE id = ANY ($2) AND held = 'leased' AND visible_at <= $1 \
         ORDER BY id FOR UPDATE SKIP LOCKED",
        delivery::COLUMNS
    );
    let statement = client.prepare_cached(FOUND).await.map_err(sql)?;
    let rows = client.query(&statement, &[&now.0, &(limit as i64)]).await.map_err(sql)?;
    // Only what is held leaves its lane.
    let (mut found, mut leaving) = (Vec::new(), Vec::new());
    for row in &rows {
        let (id, tracking): (i64, i16) = (row.try_get(0).map_err(sql)?, row.try_get(1).map_err(sql)?);
        if Tracking::stored(tracking) == Tracking::Hold {
            if leaving.len() == lane::LOCKED_MAX {
                continue;
            }
            leaving.push(Serial(id));
        }
        found.push(id);
    }
    lane::lock(client, &leaving).await?;
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let rows = client.query(&statement, &[&now.0, &found]).await.map_err(sql)?;
    if rows.is_empty() {
        return Ok((0, Vec::new()));
    }
    let read =
        |row: &Row| Ok((delivery::read(row)?, row.try_get::<_, Option<i64>>(delivery::WIDTH)?.map(Serial)));
    let found = rows.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(sql)?;
    let (held, again): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(delivery, _)| delivery.tracking == Tracking::Hold);
    note_lapsed(client, &again, now).await?;
    let letter = |(delivery, _): (Delivery, _)| DeadLetter::new(delivery, DeadReason::InDoubt, now);
    let letters: Vec<_> = held.into_iter().map(letter).collect();
    if letters.is_empty() {
        return Ok((rows.len(), Vec::new()));
    }
    Ok((rows.len(), bury_all(client, &letters, now).await?))
}

/// Makes dead letters of deliveries that ended without a report, and says what is to be told of that.
pub(super) async fn bury_all(
    client: &impl GenericClient,
    letters: &[DeadLetter],
    now: Timestamp,
) -> Result<Vec<Record>, StoreError> {
    if letters.is_empty() {
        return Ok(Vec::new());
    }
    dead_letter::move_here(client, letters).await?;
    buried(client, letters.iter().map(|it| (&it.delivery, it.reason)), now).await?;
    park::ended(client, &[], letters, now).await?;
    told(client, letters).await
}

async fn note_lapsed(
    client: &impl GenericClient,
    lapsed: &[(Delivery, Option<Serial>)],
    now: Timestamp,
) -> Result<(), StoreError> {
    const AGAIN: &str = "UPDATE delivery SET held = NULL, visible_at = $2 WHERE id = ANY ($1)";
    let ids: Vec<_> = lapsed.iter().map(|(delivery, _)| delivery.id).collect();
    let mut claims = claim::lock_of_deliveries(client, &ids, None).await?;
    for (_, claim) in &mut claims {
        let Some(progress) = &mut claim.progress else { continue };
        let of = lapsed.iter().find(|(delivery, _)| delivery.id == progress.delivery);
        if let Some((delivery, fence)) = of {
            progress.lapsed(*fence, delivery.receives, now);
        }
    }
    claim::update(client, &claims).await?;
    let deeds: Vec<_> = claims.iter().map(|(key, claim)| check_value::lapsed(key, claim, now)).collect();
    if let Some((act, _)) = deeds.first() {
        let act = act.clone();
        audit::append(client, &act, &deeds.into_iter().map(|(_, deed)| deed).collect::<Vec<_>>()).await?;
    }
    let ids: Vec<_> = ids.iter().map(|it| it.0).collect();
    let statement = client.prepare_cached(AGAIN).await.map_err(sql)?;
    client.execute(&statement, &[&ids, &now.0]).await.map(|_| ()).map_err(sql)
}

/// The claims of deliveries that ended without a report.
pub(super) async fn buried<'a>(
    client: &impl GenericClient,
    ended: impl Iterator<Item = (&'a Delivery, DeadReason)>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let tracked: HashMap<_, _> = ended
        .filter(|(delivery, _)| delivery.tracking.is_tracked())
        .map(|(delivery, reason)| (delivery.id, (delivery.receives, reason)))
        .collect();
    change(client, tracked.keys().copied().collect(), |claim| {
        let of = claim.progress.as_ref().and_then(|it| tracked.get(&it.delivery));
        if let Some((receives, reason)) = of {
            claim.buried(*reason, *receives, now);
        }
    })
    .await
}

/// Those of some locked deliveries that anybody ever had, and claims wait to hear of, or later ones of their entities stay
/// behind (ORD-7).
pub(super) async fn tried(
    client: &impl GenericClient,
    deliveries: &[Delivery],
) -> Result<HashSet<Serial>, StoreError> {
    let (tracked, plain): (Vec<_>, Vec<_>) = deliveries.iter().partition(|it| it.tracking.is_tracked());
    let ids: Vec<_> = tracked.iter().map(|it| it.id).collect();
    let claims = claim::lock_of_deliveries(client, &ids, None).await?;
    let of_claims = claims.into_iter().filter_map(|(_, claim)| claim.progress);
    let progress: HashMap<_, _> = of_claims.map(|it| (it.delivery, it)).collect();
    let was_tried =
        |it: &&Delivery| progress.get(&it.id).map_or(it.receives > 0, |of| of.was_handed_out(it.receives));
    let plain = plain.into_iter().filter(|it| it.receives > 0 && it.parks());
    Ok(tracked.into_iter().filter(was_tried).chain(plain).map(|it| it.id).collect())
}

/// The claims of dead letters that were put back.
pub(super) async fn reopened(client: &impl GenericClient, deliveries: &[Delivery]) -> Result<(), StoreError> {
    let tracked: Vec<_> = deliveries.iter().filter(|it| it.tracking.is_tracked()).map(|it| it.id).collect();
    answer::delete(client, &tracked).await?;
    change(client, tracked, |claim| {
        if let Some(progress) = claim.progress.as_mut().filter(|it| it.status != Status::Completed) {
            progress.reopened();
        }
    })
    .await
}

/// Those of some deliveries on whose last answer a hold is: another attempt would destroy it (CLM-18).
pub(super) async fn held(
    client: &impl GenericClient,
    deliveries: &[Serial],
) -> Result<Vec<Serial>, StoreError> {
    const ANSWERED: &str = "SELECT delivery FROM answer WHERE delivery = ANY ($1)";
    const CLAIMED: &str = "SELECT delivery FROM claim WHERE delivery = ANY ($1)";
    let deliveries: Vec<_> = deliveries.iter().map(|it| it.0).collect();
    let rows = client.query(ANSWERED, &[&deliveries]).await.map_err(sql)?;
    let answered = rows.iter().map(|row| row.try_get(0).map(Serial)).collect::<Result<Vec<_>, _>>();
    let answered = answered.map_err(sql)?;
    if answered.is_empty() {
        return Ok(answered);
    }
    let claims = claim::lock_of_deliveries(client, &answered, None).await?;
    let holds = usable(hold::in_force_to_the_end(client).await)?;
    let of = |(_, claim): &(ClaimKey, Claim)| Some(claim.progress.as_ref()?.delivery);
    let free = claims.iter().filter(|(key, _)| !is_held(holds.as_ref(), key));
    let free: Vec<_> = free.filter_map(of).collect();
    // Whose a damaged claim is cannot be known.
    let rows = client.query(CLAIMED, &[&deliveries]).await.map_err(sql)?;
    let claimed = rows.iter().map(|row| row.try_get(0).map(Serial)).collect::<Result<Vec<_>, _>>();
    let claimed = claimed.map_err(sql)?;
    Ok(answered.into_iter().filter(|it| claimed.contains(it) && !free.contains(it)).collect())
}

/// Those of some deliveries whose claims are in doubt, kept so until the transaction ends.
pub(super) async fn in_doubt(
    client: &impl GenericClient,
    deliveries: &[Serial],
) -> Result<Vec<Serial>, StoreError> {
    let claims = claim::lock_of_deliveries(client, deliveries, None).await?;
    let doubted = claims.into_iter().filter(|(_, claim)| claim.status() == Status::InDoubt);
    let doubted: HashSet<_> = doubted.filter_map(|(_, claim)| Some(claim.progress?.delivery)).collect();
    Ok(deliveries.iter().filter(|id| doubted.contains(id)).copied().collect())
}

/// A person says that it was done. Within a transaction.
pub(super) async fn settle(
    client: &impl GenericClient,
    owner: &str,
    delivery: Serial,
    reference: Option<&str>,
    act: &Act,
) -> Result<Option<Result<Status, HeldBack>>, StoreError> {
    lane::lock_letters(client, &[delivery]).await?;
    let letters = dead_letter::lock(client, owner, &[delivery]).await?;
    let mut claims = claim::lock_of_deliveries(client, &[delivery], Some(owner)).await?;
    let Some((key, claim)) = claims.first_mut() else { return Ok(None) };
    let before = claim.status();
    if claim.settled(reference, act.at).is_err() {
        return Ok(Some(Ok(before)));
    }
    if !held(client, &[delivery]).await?.is_empty() {
        return Ok(Some(Err(HeldBack)));
    }
    let (deed, after) = (check_value::settled(key, before, reference), claim.status());
    claim::update(client, &claims).await?;
    answer::delete(client, &[delivery]).await?;
    dead_letter::delete(client, &letters.iter().map(|it| it.delivery.id).collect::<Vec<_>>()).await?;
    let lanes: Vec<_> = letters.iter().filter_map(|it| it.delivery.lane.as_deref().cloned()).collect();
    park::ended(client, &lanes, &[], act.at).await?;
    audit::append(client, act, &[deed]).await?;
    Ok(Some(Ok(after)))
}

async fn change(
    client: &impl GenericClient,
    deliveries: Vec<Serial>,
    change: impl Fn(&mut Claim),
) -> Result<(), StoreError> {
    if deliveries.is_empty() {
        return Ok(());
    }
    let mut claims = claim::lock_of_deliveries(client, &deliveries, None).await?;
    claims.iter_mut().for_each(|(_, claim)| change(claim));
    claim::update(client, &claims).await
}
