//! What becomes of claims, over the tables `claim`, `answer` and `delivery` and the leases in memory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, params};
use snavio_model::bounds;
use snavio_model::claim::{Claim, ClaimKey, IdKey, Status};
use snavio_model::delivery::processing::{Answer, Ending};
use snavio_model::delivery::{DeadReason, ReceiptOutcome, Tracking};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::{QueueKey, ServiceName, TenantName};
use snavio_model::ordering::Lane;
use snavio_model::time::Timestamp;
use tokio::sync::oneshot;

use super::check::usable;
use super::claim::CLAIMS_READ_AT_ONCE;
use super::finish::{Finish, Lapse, Work};
use super::index::{Ended, Lapsed};
use super::park::Parked;
use super::writer::{Transaction, Urgency, lock, sql};
use super::{EmbeddedStore, Queues, answer, audit, claim, finish, hold, known, retention};
use crate::engine::expiry::{KEEPS_CLAIM, is_held};
use crate::record::check_value;
use crate::{
    Act, ClaimFilter, ClaimLookUp, Claims, Finished, HeldBack, HeldDelivery, Received, Report, StoreError,
    StoredClaim,
};

#[async_trait]
impl Claims for EmbeddedStore {
    async fn finish(
        &self,
        queue: &QueueKey,
        reports: Vec<Report>,
        who: &str,
        now: Timestamp,
    ) -> Result<Vec<Finished>, StoreError> {
        let mut finished = vec![Finished::new(ReceiptOutcome::Done, None); reports.len()];
        let (plain, lanes, works) = self.take_reported(queue, reports, now, &mut finished);
        if plain.is_empty() && works.is_empty() {
            return Ok(finished);
        }
        let (reply, answer) = oneshot::channel();
        let job = Finish {
            queue: queue.clone(),
            plain,
            lanes,
            works,
            who: who.to_owned(),
            now,
            queues: Arc::clone(&self.queues),
            written: Arc::clone(&self.written),
            ended: Vec::new(),
            records: Vec::new(),
            parked: Vec::new(),
            reply,
        };
        self.writer.submit(Urgency::Completion, Box::new(job));
        for (place, of) in answer.await.unwrap_or(Err(StoreError::Closed))? {
            finished[place] = of;
        }
        Ok(finished)
    }

    async fn take(
        &self,
        queue: &QueueKey,
        delivery: Serial,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Option<Received>, StoreError> {
        let Some(lease) = lock(&self.queues).receive_one(queue, delivery, visibility, now) else {
            return Ok(None);
        };
        Ok(self.hand_out(queue, vec![lease]).await?.pop())
    }

    async fn claims_of(&self, id: &IdKey, now: Timestamp) -> Result<Vec<StoredClaim>, StoreError> {
        let (key, limit) = (id.clone(), bounds::PAGE_MAX);
        let find = move |connection: &Connection| {
            let which = format!(
                "number IN (SELECT number FROM known_id WHERE digest = ?1 AND kind = 0) AND id = ?2 AND tenant = ?3 \
                 AND (expires_at > ?4 OR {KEEPS_CLAIM}) ORDER BY destination"
            );
            let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
            claim::listed(connection, &which, &[&known::digest(id, tenant), &id, &tenant, &now.0], limit)
        };
        let found = self.readers.run(find).await?;
        Ok(self.with_leases(found))
    }

    async fn claims_under(
        &self,
        asked: &ClaimLookUp,
        now: Timestamp,
    ) -> Result<Vec<StoredClaim>, StoreError> {
        let asked = asked.clone();
        let find = move |connection: &Connection| {
            let which = format!(
                "number IN (SELECT number FROM known_id \
                     WHERE digest IN (SELECT unhex(value) FROM json_each(?1)) AND kind = 0) AND id = ?2 \
                 AND (expires_at > ?3 OR {KEEPS_CLAIM}) ORDER BY message"
            );
            let id = asked.id.as_str();
            let senders: HashSet<_> = asked.senders.iter().map(TenantName::as_str).collect();
            // One of all tenants where the id is a UUID. Otherwise there is one for each: one statement searches them all.
            let digests: BTreeSet<_> = senders.iter().map(|sender| known::digest(id, sender)).collect();
            let hex = |digest: [u8; 16]| format!("\"{:032x}\"", u128::from_be_bytes(digest));
            let digests: Vec<_> = digests.into_iter().map(hex).collect();
            let digests = format!("[{}]", digests.join(","));
            let wanted = |key: &ClaimKey, claim: &Claim| {
                senders.contains(key.tenant.as_str()) && asked.asks_for(key, claim)
            };
            let values: [&dyn rusqlite::ToSql; 3] = [&digests, &id, &now.0];
            let (mut found, _) = claim::some_listed(connection, &which, &values, bounds::PAGE_MAX, wanted)?;
            found.sort_by(|one, other| one.key.cmp(&other.key));
            Ok(found)
        };
        let found = self.readers.run(find).await?;
        Ok(self.with_leases(found))
    }

    async fn has_claims(&self, tenant: &str) -> Result<bool, StoreError> {
        const ANY: &str = "SELECT EXISTS (SELECT 1 FROM claim WHERE tenant = ?1 \
             OR substr(destination, 1, length(?1) + 1) = ?1 || '/')";
        let tenant = tenant.to_owned();
        let any =
            move |connection: &Connection| connection.query_row(ANY, [tenant], |row| row.get(0)).map_err(sql);
        self.readers.run(any).await
    }

    async fn is_concerned(&self, tenant: &str, id: &MessageId) -> Result<bool, StoreError> {
        const CONFLICT: &str =
            "SELECT EXISTS (SELECT 1 FROM conflict WHERE event_id = ?1 AND (tenant = ?2 OR owner = ?2))";
        const KNOWN: &str = "SELECT EXISTS (SELECT 1 FROM claim \
             WHERE number IN (SELECT number FROM known_id WHERE digest = ?3 AND kind = 0) AND id = ?1 \
             AND (tenant = ?2 OR substr(destination, 1, length(?2) + 1) = ?2 || '/'))";
        // Ids that are no UUIDs are found by their sender, who is likely one of today's tenants, and may be a former one.
        const TENANTS: &str = "SELECT name FROM registry_entry WHERE kind = 'tenant'";
        const SENT_BY_ANYBODY: &str = "SELECT max(number), \
             max(id = ?1 AND substr(destination, 1, length(?2) + 1) = ?2 || '/') \
             FROM (SELECT number, id, destination FROM claim WHERE number > ?3 ORDER BY number LIMIT ?4)";
        let of = (tenant.to_owned(), id.clone());
        let (tenant, id) = of.clone();
        let any = move |connection: &Connection| {
            let (tenant, id) = (tenant.as_str(), id.as_str());
            let is_there = |query: &str, values: &[&dyn rusqlite::ToSql]| {
                connection.prepare_cached(query)?.query_row(values, |row| row.get::<_, bool>(0))
            };
            let is_sent_by = |sender: &str| is_there(KNOWN, &[&id, &tenant, &known::digest(id, sender)]);
            let any = || -> rusqlite::Result<Option<bool>> {
                if is_there(CONFLICT, &[&id, &tenant])? || is_sent_by(tenant)? {
                    return Ok(Some(true));
                }
                if known::is_uuid(id) {
                    return Ok(Some(false));
                }
                let mut tenants = connection.prepare_cached(TENANTS)?;
                for sender in tenants.query_map([], |row| row.get::<_, String>(0))? {
                    if is_sent_by(&sender?)? {
                        return Ok(Some(true));
                    }
                }
                Ok(None)
            };
            any().map_err(sql)
        };
        if let Some(known) = self.readers.run(any).await? {
            return Ok(known);
        }
        // Of all claims: some at a time, so that no reading lasts. Whoever hangs up ends it.
        let reading = self.reading_through.begin(&of.0)?;
        let mut last = 0;
        loop {
            let _turn = reading.turn().await;
            let (tenant, id) = of.clone();
            let some = move |connection: &Connection| {
                let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
                let values = params![id.as_str(), tenant, last, CLAIMS_READ_AT_ONCE as i64];
                connection.prepare_cached(SENT_BY_ANYBODY)?.query_row(values, read)
            };
            let some = move |connection: &Connection| some(connection).map_err(sql);
            match self.readers.run::<(Option<i64>, Option<bool>)>(some).await? {
                (_, Some(true)) => return Ok(true),
                (Some(number), _) => last = number,
                (None, _) => return Ok(false),
            }
        }
    }

    async fn open_claims(
        &self,
        filter: &ClaimFilter,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<StoredClaim>, StoreError> {
        // Each stored status is a run of its own in the index. Which of them are being processed is known in memory.
        let leased = Arc::new(lock(&self.queues).leased(now));
        let mut found = Vec::new();
        for stored in filter.stored_statuses() {
            let (mut after, mut of_status) = (Some(filter.after), Vec::new());
            while let Some(from) = after.filter(|_| of_status.len() < limit) {
                let (filter, leased) = (ClaimFilter { after: from, ..filter.clone() }, Arc::clone(&leased));
                let most = limit - of_status.len();
                let read = move |connection: &Connection| {
                    open_claims(connection, &filter, stored, &leased, most, now)
                };
                let (some, next) = self.readers.run(read).await?;
                of_status.extend(some);
                after = next;
            }
            found.extend(of_status);
        }
        found.sort_by_key(|claim: &StoredClaim| claim.claim.message);
        found.truncate(limit);
        Ok(self.with_due_times(found, now))
    }

    async fn answer(&self, delivery: Serial) -> Result<Option<Answer>, StoreError> {
        self.readers.run(move |connection| answer::find(connection, delivery)).await
    }

    async fn import(&self, claims: Vec<(ClaimKey, Claim)>, act: Act) -> Result<usize, StoreError> {
        let import = move |transaction: &mut Transaction<'_>| {
            let message = transaction.numbers.next();
            let holds = usable(hold::in_force(transaction.connection))?;
            let mut taken_over = 0;
            for (key, claim) in &claims {
                let found = claim::Find::prepare(transaction.connection).map_err(sql)?.run(key)?;
                if let Some(found) = found {
                    // What is kept for an audit, or held, is not replaced.
                    if found.is_live(act.at) || found.is_audited() || is_held(holds.as_ref(), key) {
                        continue;
                    }
                    retention::make_way(transaction, key, act.at)?;
                }
                let claim = Claim { message, ..claim.clone() };
                let mut put = claim::Put::prepare(transaction.connection).map_err(sql)?;
                put.run(key, &claim).map_err(sql)?;
                taken_over += 1;
            }
            let deed = check_value::imported(&claims, taken_over);
            audit::append(transaction, deed.action, &deed.object, &act, &deed.outcome)?;
            Ok(taken_over)
        };
        self.writer.run(Urgency::Ordinary, import).await
    }

    async fn settle_claim(
        &self,
        owner: &str,
        delivery: Serial,
        reference: Option<String>,
        act: Act,
    ) -> Result<Option<Result<Status, HeldBack>>, StoreError> {
        let owner = owner.to_owned();
        let settle = move |transaction: &mut Transaction<'_>| {
            let mut parked = None;
            let settled =
                finish::settle(transaction, &owner, delivery, reference.as_deref(), &act, &mut parked)?;
            Ok(((settled, parked), Vec::new()))
        };
        let go_on = |queues: &mut Queues, (_, parked): &(_, Option<Parked>)| {
            parked.iter().for_each(|(key, at)| queues.park(key, *at));
        };
        Ok(self.change_lanes(settle, go_on).await?.0)
    }

    async fn seen_again(&self, seen: Vec<(ClaimKey, u64, Timestamp)>) -> Result<(), StoreError> {
        let count = move |transaction: &mut Transaction<'_>| {
            for (key, repeats, at) in &seen {
                claim::seen_again(transaction.connection, key, *repeats, *at).map_err(sql)?;
                transaction.dirty = true;
            }
            Ok(())
        };
        self.writer.run(Urgency::Ordinary, count).await
    }
}

/// The lease of a claim's delivery.
fn held(queues: &Queues, claim: &StoredClaim) -> Option<HeldDelivery> {
    let owner = claim.key.destination.split('/').next()?;
    queues.held(owner, claim.claim.progress.as_ref()?.delivery)
}

/// Some open claims of one stored status that the filter wants, and from which message to go on.
fn open_claims(
    connection: &Connection,
    filter: &ClaimFilter,
    stored: i16,
    leased: &HashMap<Serial, HeldDelivery>,
    limit: usize,
    now: Timestamp,
) -> Result<(Vec<StoredClaim>, Option<Serial>), StoreError> {
    let which = format!(
        "status = ?1 AND status <> 1 AND message > ?2 AND (expires_at > ?3 OR {KEEPS_CLAIM}) \
         AND (?4 IS NULL OR destination >= ?4 || '/' AND destination < ?4 || '0') \
         AND (?5 IS NULL OR source = ?5 OR destination >= ?5 || ':' AND destination < ?5 || ';') \
         ORDER BY message"
    );
    let service = filter.service.as_ref().map(ServiceName::as_str);
    let values: [&dyn rusqlite::ToSql; 5] = [&stored, &filter.after.0, &now.0, &filter.owner, &service];
    let held = |claim: &Claim| leased.get(&claim.progress.as_ref()?.delivery).copied();
    let wanted = |_: &ClaimKey, claim: &Claim| {
        filter.statuses.contains(&HeldDelivery::present(held(claim), claim, now).status)
    };
    let (found, next) = claim::some_listed(connection, &which, &values, limit, wanted)?;
    Ok((found.into_iter().map(|it| StoredClaim { held: held(&it.claim), ..it }).collect(), next))
}

impl EmbeddedStore {
    /// Takes out of the queue what is reported on. What just ends is on its way out, and what is given back is back; the
    /// rest is work for the writer.
    fn take_reported(
        &self,
        queue: &QueueKey,
        reports: Vec<Report>,
        now: Timestamp,
        finished: &mut [Finished],
    ) -> (Vec<Serial>, Vec<Lane>, Vec<Work>) {
        let (mut plain, mut lanes, mut works) = (Vec::new(), Vec::new(), Vec::new());
        let mut queues = lock(&self.queues);
        for (place, report) in reports.into_iter().enumerate() {
            let receipt = report.receipt;
            match queues.tracking(queue, receipt.delivery_id) {
                Some(Tracking::Plain) if matches!(report.ending, Ending::Completed { .. }) => {
                    let (outcomes, ended) = queues.end(queue, &[receipt]);
                    lanes.extend(ended.iter().filter_map(|id| queues.parking_lane(*id)));
                    plain.extend(ended);
                    outcomes.first().inspect(|it| finished[place].outcome = **it);
                }
                Some(Tracking::Plain) if !matches!(report.ending, Ending::Failed { is_final: true, .. }) => {
                    let due = report.retry.due(1, receipt.delivery_id, now);
                    let outcomes = queues.release(queue, &[receipt], due);
                    outcomes.first().inspect(|it| finished[place].outcome = **it);
                }
                tracking => {
                    let handed_out = queues.handed_out(queue, receipt.delivery_id);
                    let held = queues.held_in(queue, receipt.delivery_id);
                    let shown = queues.take_shown(queue, receipt);
                    let tracking = tracking.unwrap_or_default();
                    let lane = queues.parking_lane(receipt.delivery_id);
                    works.push(Work { place, report, shown, tracking, lane, handed_out, held });
                }
            }
        }
        (plain, lanes, works)
    }

    /// Claims with who holds their deliveries.
    fn with_leases(&self, claims: Vec<StoredClaim>) -> Vec<StoredClaim> {
        let queues = lock(&self.queues);
        claims.into_iter().map(|claim| StoredClaim { held: held(&queues, &claim), ..claim }).collect()
    }

    /// Claims with when their next attempt is due, where no attempt was in progress. What was leased since stays as it was.
    fn with_due_times(&self, claims: Vec<StoredClaim>, now: Timestamp) -> Vec<StoredClaim> {
        let queues = lock(&self.queues);
        let due = |claim: &StoredClaim| {
            held(&queues, claim)
                .filter(|held| !matches!(held, HeldDelivery::Leased { until, .. } if now < *until))
        };
        claims
            .into_iter()
            .map(|claim| StoredClaim { held: claim.held.or_else(|| due(&claim)), ..claim })
            .collect()
    }

    /// Puts it on record that attempts did not report in time; what is held for a person is buried.
    pub(super) fn lapse(
        &self,
        queue: &QueueKey,
        lapsed: Vec<Lapsed>,
        now: Timestamp,
    ) -> [oneshot::Receiver<Result<(), StoreError>>; 2] {
        let (held, lapsed): (Vec<_>, Vec<_>) =
            lapsed.into_iter().partition(|it| it.tracking == Tracking::Hold);
        let ended = |it: Lapsed| Ended { id: it.id, reason: DeadReason::InDoubt, receives: it.attempts };
        let buried = self.bury(queue, held.into_iter().map(ended).collect(), now);
        let (reply, noted) = oneshot::channel();
        let job = Lapse { queue: queue.clone(), lapsed, now, queues: Arc::clone(&self.queues), reply };
        self.writer.submit(Urgency::Completion, Box::new(job));
        [buried, noted]
    }
}
