//! Settling on PostgreSQL: judge first, and write only if it was right.
//!
//! Most ids are new. So a batch is judged as if all were, and one statement writes messages, claims and deliveries
//! in one commit of its own: one round trip, whatever the batch's size. The claims' key stops it if any id is taken;
//! then the claims are read, the batch is judged by them, and what is left is written in the same way. A batch that
//! met a claim lets the next one read first. Nothing is locked but what is inserted, and that in the order of the
//! key, so that batches wait for each other and never in a circle.
//!
//! A statement whose answer is lost is sent again under the same nonce, which only one of them can insert: whichever
//! it was, the batch is settled once. `attempt` says by which judgement.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use foldhash::{HashMap, HashMapExt, HashSet};
use futures_util::future::{join3, join4};
use snavio_model::bounds;
use snavio_model::claim::{Claim, ClaimKey};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::settle::{self, Delta, Intake, Outcome, Settlement, Working};
use snavio_model::telemetry::dead_lettered;
use snavio_model::time::Timestamp;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::client::{Client, GenericClient, Transaction};
use super::horizon::{BLOCK, BLOCK_NUMBERS};
use super::met::{self, Found, found};
use super::pool::{Trouble, sql};
use super::{
    Inner, claim, conflict, dead_letter, delivery, entity, lane, message, original, registry, telemetry,
};
use crate::StoreError;
use crate::engine::conflict_log::tell_conflicts;

/// How long a batch is tried to be settled while its fate is unknown or others are in its way.
const TRYING_MAX: Duration = Duration::from_secs(8);
/// How long one try may take.
const STEP_MAX: Duration = Duration::from_secs(4);
/// And how long it may always take.
const STEP_MIN: Duration = Duration::from_millis(200);
/// Entities that one batch keeps from others: the database has room for some thousands of locks in all.
const ENTITIES_MAX: usize = 512;
/// Between two tries, growing.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Names batches: half of it is this opening's alone.
pub(super) struct Nonces {
    opening: u64,
    next: AtomicU64,
}

impl Nonces {
    pub(super) fn new(random: Uuid) -> Self {
        Self { opening: random.as_u64_pair().1, next: AtomicU64::new(0) }
    }

    fn next(&self) -> Uuid {
        Uuid::from_u64_pair(self.opening, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Whether the last batch met a claim that was there: the next may too.
#[derive(Default)]
pub(super) struct ReadFirst(AtomicBool);

/// Settles a batch. A message that the engine cannot hold fails alone. Fewer settlements than messages mean that of
/// the rest nothing is known: what was settled before them stands.
pub(super) async fn settle(
    inner: &Inner,
    batch: &[Intake],
    now: Timestamp,
) -> Result<Vec<Settlement>, StoreError> {
    settle_until(inner, batch, now, Instant::now() + TRYING_MAX).await
}

async fn settle_until(
    inner: &Inner,
    batch: &[Intake],
    now: Timestamp,
    until: Instant,
) -> Result<Vec<Settlement>, StoreError> {
    let needed: usize = batch.iter().map(Intake::numbers_max).sum();
    let entities: HashSet<_> = batch.iter().flat_map(Intake::entities).collect();
    let is_too_much = needed >= BLOCK_NUMBERS || entities.len() > ENTITIES_MAX;
    if is_too_much && batch.len() > 1 {
        return halves(inner, batch, now, until).await;
    }
    let mut attempts = Attempts::new(inner, batch, now);
    match attempts.run(until).await {
        Err(Trouble::Unfit(_)) if batch.len() > 1 => halves(inner, batch, now, until).await,
        Err(Trouble::Unfit(error)) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a message that PostgreSQL cannot hold");
            let outcomes = vec![Outcome::Unfit; batch.first().map_or(0, |intake| intake.destinations.len())];
            Ok(vec![Settlement::unordered(None, outcomes)])
        }
        Err(trouble) => Err(trouble.into_error()),
        Ok(settlements) => Ok(settlements),
    }
}

async fn halves(
    inner: &Inner,
    batch: &[Intake],
    now: Timestamp,
    until: Instant,
) -> Result<Vec<Settlement>, StoreError> {
    let (first, second) = batch.split_at(batch.len() / 2);
    let mut settlements = Box::pin(settle_until(inner, first, now, until)).await?;
    if settlements.len() == first.len() {
        match Box::pin(settle_until(inner, second, now, until)).await {
            Ok(more) => settlements.extend(more),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "half of a batch was not settled");
            }
        }
    }
    Ok(settlements)
}

/// What a step begins with.
#[derive(Clone, Copy)]
enum Next {
    /// Judge, by the claims that are there or as if there were none, and write.
    Judge { read: bool },
    /// Write what was judged last.
    Write,
}

/// What a step came to.
enum Step {
    Settled(Vec<Settlement>),
    /// The judgement does not hold: an id is taken.
    Taken,
}

/// One batch under one nonce, judged as often as the world turns out to be different.
struct Attempts<'a> {
    inner: &'a Inner,
    batch: &'a [Intake],
    now: Timestamp,
    nonce: Uuid,
    /// What was judged, newest last, with numbers counted from zero.
    judged: Vec<(Vec<Settlement>, Delta)>,
    /// The registry version that the last judgement hangs on, if it does.
    registry_version: Option<i64>,
    /// When what permitted its messages is out of date: nothing is written from then on.
    good_until: Option<Instant>,
    /// Whether a statement that writes was ever sent.
    sent: bool,
    /// Whether one is out of which nothing was heard: then the nonce may be there.
    lost: bool,
}

impl<'a> Attempts<'a> {
    fn new(inner: &'a Inner, batch: &'a [Intake], now: Timestamp) -> Self {
        let first_end = batch.iter().map(|intake| intake.good_until).min();
        Self {
            inner,
            batch,
            now,
            nonce: inner.nonces.next(),
            judged: Vec::new(),
            registry_version: None,
            good_until: first_end.and_then(|end| Instant::now().checked_add(end.since(now))),
            sent: false,
            lost: false,
        }
    }

    async fn run(&mut self, until: Instant) -> Result<Vec<Settlement>, Trouble> {
        let mut pause = PAUSE;
        let mut next = Next::Judge { read: self.inner.read_first.0.load(Ordering::Relaxed) };
        loop {
            let trouble = match self.timed_step(next).await {
                Ok(Step::Settled(settlements)) => return Ok(settlements),
                // An id is taken, or was: what is there must be read.
                Ok(Step::Taken) if Instant::now() < until => {
                    self.inner.read_first.0.store(true, Ordering::Relaxed);
                    // Once it was judged by what is there, somebody else must be at it.
                    if matches!(next, Next::Judge { read: true }) {
                        tokio::time::sleep(pause).await;
                        pause = (2 * pause).min(PAUSE_MAX);
                    }
                    next = Next::Judge { read: true };
                    continue;
                }
                Ok(Step::Taken) => {
                    Trouble::Crossed(StoreError::Unavailable("others take the same ids".into()))
                }
                Err(trouble @ (Trouble::Lost(_) | Trouble::Crossed(_))) => trouble,
                // Whether an earlier statement was done must be known before anything else is said.
                Err(trouble) if self.lost => trouble,
                Err(trouble) => return Err(trouble),
            };
            if Instant::now() + pause >= until || !self.lost && self.is_outdated() {
                return Err(if self.lost {
                    Trouble::Lost(trouble.into_error())
                } else {
                    trouble.not_in_doubt()
                });
            }
            if !self.judged.is_empty() {
                next = Next::Write;
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    fn is_outdated(&self) -> bool {
        self.good_until.is_some_and(|end| Instant::now() >= end)
    }

    /// The store's registry version, or the newest that permitted a message of the batch, for those that hang on it.
    async fn registry_version(
        &self,
        client: &impl GenericClient,
        read: bool,
    ) -> Result<Option<i64>, Trouble> {
        let asking = self.batch.iter().filter(|intake| intake.asks_registry());
        let Some(newest) = asking.map(|intake| intake.message.registry_version).max() else {
            return Ok(None);
        };
        if !read {
            return Ok(Some(newest));
        }
        registry::version(client).await.map(Some).map_err(Trouble::Refused)
    }

    /// A step on a connection, which has its time from when there is one.
    async fn timed_step(&mut self, next: Next) -> Result<Step, Trouble> {
        let pool = &self.inner.pool;
        let client = pool.get_kept().await.map_err(Trouble::Refused)?;
        // What permitted the messages ends the statement too; only what was sent before is asked about for longer.
        let left = self.good_until.map_or(STEP_MAX, |end| end.saturating_duration_since(Instant::now()));
        let time = if self.lost { STEP_MAX } else { STEP_MAX.min(left.max(STEP_MIN)) };
        match pool.answered(time, self.step(client, next)).await {
            Ok(step) => step,
            Err(lost) => {
                self.lost |= self.sent;
                Err(lost)
            }
        }
    }

    /// Whether entities must be kept from others while it is judged and written.
    fn is_ordered(&self) -> bool {
        self.batch.iter().any(|intake| intake.entities().next().is_some())
    }

    async fn step(&mut self, mut client: Client, next: Next) -> Result<Step, Trouble> {
        if self.is_ordered() {
            return self.ordered_step(client).await;
        }
        if let Next::Judge { read } = next {
            let mut found = match read {
                true => found(&client, self.batch, self.now).await?,
                false => Found::default(),
            };
            let over = std::mem::take(&mut found.over);
            let rooms = self.inner.rooms.of(&client, queues(self.batch)).await.map_err(Trouble::Refused)?;
            self.registry_version = self.registry_version(&client, read).await?;
            let judged = judge(self.batch, found, rooms, self.registry_version, self.now);
            // Whether it was taken before was not asked, and comes before a full queue.
            if !read && judged.0.iter().any(|it| it.outcomes.contains(&Outcome::QueueFull)) {
                return Ok(Step::Taken);
            }
            let over = over.replaced_by(&judged.1);
            if !over.is_empty() {
                let transaction = client.transaction().await.map_err(Trouble::of)?;
                over.make_way(&transaction, self.now).await?;
                transaction.commit().await.map_err(Trouble::of)?;
            }
            self.judged.push(judged);
        }
        // After the claims were read: those of an earlier statement of this very batch make no duplicates of it.
        if let Some(settled) = self.done_before(&client).await? {
            return Ok(Step::Settled(settled));
        }
        let Some((settlements, delta)) = self.judged.last() else { return Ok(Step::Taken) };
        if delta.is_empty() {
            return Ok(Step::Settled(settlements.clone()));
        }
        if self.is_outdated() {
            let why = "what permitted the messages is out of date";
            return Err(Trouble::Crossed(StoreError::Unavailable(why.into())));
        }
        self.sent = true;
        let written = match has_more(delta) {
            true => self.write_more(&mut client, delta).await,
            false => self.write(&client, delta).await,
        };
        match written {
            // The registry is another one: what hangs on it must be judged by that.
            Ok(None) => Ok(Step::Taken),
            Ok(Some(base)) => {
                let met = settlements.iter().any(|it| !it.outcomes.iter().all(is_queued));
                self.inner.read_first.0.store(met, Ordering::Relaxed);
                Ok(Step::Settled(self.committed(self.judged.len() - 1, base)))
            }
            Err(Trouble::Taken) => Ok(self.done_before(&client).await?.map_or(Step::Taken, Step::Settled)),
            Err(trouble) => {
                self.lost |= matches!(trouble, Trouble::Lost(_));
                Err(trouble)
            }
        }
    }

    /// The same with entities: judged and written in one transaction, under their locks. Whoever waits for the locks of a
    /// batch whose answer was lost has them once its fate is known.
    async fn ordered_step(&mut self, mut client: Client) -> Result<Step, Trouble> {
        let inner = self.inner;
        let transaction = client.transaction().await.map_err(Trouble::of)?;
        let looked = self.lock_and_look(&transaction).await?;
        if let Some(settled) = self.done_before(&transaction).await? {
            return Ok(Step::Settled(settled));
        }
        let mut found = looked.met(&transaction, self.batch, self.now).await?;
        let over = std::mem::take(&mut found.over);
        let rooms = inner.rooms.of(&transaction, queues(self.batch)).await.map_err(Trouble::Refused)?;
        let judged = judge(self.batch, found, rooms, self.registry_version, self.now);
        over.replaced_by(&judged.1).make_way(&transaction, self.now).await?;
        self.judged.push(judged);
        let Some((settlements, delta)) = self.judged.last() else { return Ok(Step::Taken) };
        if delta.is_empty() {
            return Ok(Step::Settled(settlements.clone()));
        }
        if self.is_outdated() {
            let why = "what permitted the messages is out of date";
            return Err(Trouble::Crossed(StoreError::Unavailable(why.into())));
        }
        self.sent = true;
        match self.write_ordered(transaction, delta).await {
            Ok(None) | Err(Trouble::Taken) => Ok(Step::Taken),
            Ok(Some((base, queues))) => {
                queues.iter().for_each(|it| inner.arrivals.wake_some(it.as_str(), 1));
                Ok(Step::Settled(self.committed(self.judged.len() - 1, base)))
            }
            Err(trouble) => {
                self.lost |= matches!(trouble, Trouble::Lost(_));
                Err(trouble)
            }
        }
    }

    /// Keeps the entities from others and reads what is there, in one flight: each statement sees what is there once the one
    /// before it has its locks.
    async fn lock_and_look(&mut self, transaction: &Transaction<'_>) -> Result<Found, Trouble> {
        let [claims, originals, entities] = met::look_queries();
        let queries = [entity::LOCK, &claims, &originals, &entities, registry::VERSION];
        let flight = transaction.flight(&queries).await.map_err(Trouble::of)?;
        let (locked, found, version) = join3(
            entity::lock(&flight, self.batch.iter().flat_map(Intake::entities)),
            met::look(&flight, self.batch, self.now),
            self.registry_version(&flight, true),
        )
        .await;
        locked?;
        let found = found?;
        self.registry_version = version?;
        Ok(found)
    }

    async fn write_ordered(
        &self,
        transaction: Transaction<'_>,
        delta: &Delta,
    ) -> Result<Option<(i64, Vec<QueueKey>)>, Trouble> {
        let lanes = delta.deliveries.iter().filter_map(|it| it.lane.as_deref()).map(|it| &it.key);
        let lanes = lanes.chain(delta.released.iter().map(|(key, _)| key));
        let (base, queues) = if has_more(delta) {
            let Some(base) = self.write_all(&transaction, delta).await? else { return Ok(None) };
            entity::put(&transaction, delta.entities.iter()).await?;
            delivery::release(&transaction, &delta.released).await?;
            (base, lane::pass_on(&transaction, lanes).await?)
        } else {
            let [step_back, pass_on] = lane::pass_on_queries();
            let queries = [&self.inner.write, entity::PUT, delivery::RELEASE, &step_back, &pass_on];
            let flight = transaction.flight(&queries).await.map_err(Trouble::of)?;
            let (base, put, released, queues) = join4(
                self.write(&flight, delta),
                entity::put(&flight, delta.entities.iter()),
                delivery::release(&flight, &delta.released),
                lane::pass_on(&flight, lanes),
            )
            .await;
            // Where the registry is another one, what came behind in the flight is undone.
            let Some(base) = base? else { return Ok(None) };
            put?;
            released?;
            (base, queues?)
        };
        transaction.commit().await.map_err(Trouble::of)?;
        Ok(Some((base, queues)))
    }

    /// What became of the batch, if a statement with its nonce was done.
    async fn done_before(&self, client: &impl GenericClient) -> Result<Option<Vec<Settlement>>, Trouble> {
        if !self.lost {
            return Ok(None);
        }
        const DONE: &str = "SELECT attempt, base FROM batch WHERE nonce = $1";
        let statement = client.prepare_cached(DONE).await.map_err(Trouble::of)?;
        let Some(row) = client.query_opt(&statement, &[&self.nonce]).await.map_err(Trouble::of)? else {
            return Ok(None);
        };
        let (attempt, base): (i32, i64) =
            (row.try_get(0).map_err(Trouble::of)?, row.try_get(1).map_err(Trouble::of)?);
        let attempt = usize::try_from(attempt).ok().filter(|it| *it < self.judged.len());
        let unknown = || Trouble::Refused(StoreError::Unavailable("a batch of an unknown attempt".into()));
        Ok(Some(self.committed(attempt.ok_or_else(unknown)?, base)))
    }

    /// The same with conflicts, dead letters, or meanings that last longer, which are seldom: in a transaction of
    /// several statements.
    async fn write_more(&self, client: &mut Client, delta: &Delta) -> Result<Option<i64>, Trouble> {
        let transaction = client.transaction().await.map_err(Trouble::of)?;
        let Some(base) = self.write_all(&transaction, delta).await? else { return Ok(None) };
        transaction.commit().await.map_err(Trouble::of)?;
        Ok(Some(base))
    }

    async fn write_all(&self, client: &impl GenericClient, delta: &Delta) -> Result<Option<i64>, Trouble> {
        let Some(base) = self.write(client, delta).await? else { return Ok(None) };
        original::lengthen(client, &delta.lengthened).await?;
        if delta.has_conflicts() {
            conflict::record(client, delta, base, self.now).await?;
        }
        if !delta.letters.is_empty() {
            bury(client, delta, self.batch, base).await.map_err(Trouble::Lost)?;
        }
        Ok(Some(base))
    }

    /// Writes what was judged, unless the registry is not the one that it hangs on.
    async fn write(&self, client: &impl GenericClient, delta: &Delta) -> Result<Option<i64>, Trouble> {
        let mut messages = message::Columns::default();
        for (number, place) in &delta.messages {
            let intake = &self.batch[*place];
            messages.push(*number, intake, delta.path_of(*number, intake.path), self.now);
        }
        let mut claims = claim::Columns::default();
        delta.claims.iter().for_each(|(key, claim)| claims.push(key, claim));
        let mut deliveries = delivery::Columns::default();
        delta.deliveries.iter().for_each(|delivery| deliveries.push(delivery));
        let attempt = i32::try_from(self.judged.len()).unwrap_or(i32::MAX) - 1;
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&self.nonce, &attempt];
        values.extend(messages.values());
        values.extend(claims.values());
        values.extend(deliveries.values());
        values.push(&self.registry_version);
        let mut originals = original::Columns::default();
        delta.originals.iter().for_each(|(key, original)| originals.push(key, original));
        values.extend(originals.values());
        values.push(messages.events());
        let statement = client.prepare_cached(&self.inner.write).await.map_err(Trouble::of)?;
        let row = client.query_opt(&statement, &values).await.map_err(Trouble::of)?;
        row.map(|row| row.try_get(0)).transpose().map_err(Trouble::of)
    }

    /// The batch is durable: tells who waits for it, and gives it its numbers.
    fn committed(&self, attempt: usize, base: i64) -> Vec<Settlement> {
        let (settlements, delta) = &self.judged[attempt];
        self.inner.settled.fetch_add(delta.messages.len() as u64, Ordering::Relaxed);
        self.inner.commits.fetch_add(1, Ordering::Relaxed);
        let mut arrived: HashMap<&QueueKey, usize> = HashMap::new();
        for delivery in &delta.deliveries {
            *arrived.entry(&delivery.queue).or_default() += 1;
        }
        for (queue, count) in arrived {
            self.inner.rooms.took(queue, count);
            self.inner.arrivals.wake_some(queue.as_str(), count);
        }
        let conflicts: Vec<_> = delta.conflicts.iter().map(|it| conflict::numbered(it, base).0).collect();
        tell_conflicts(conflicts.iter());
        self.inner.written.wake(delta.conflicts.iter().map(|it| it.conflict.owner.as_str()));
        let messages = delta.messages.iter().map(|(_, place)| &self.batch[*place].message);
        self.inner.written.wake(messages.map(|message| message.tenant.as_str()));
        let numbered = |it: &Settlement| Settlement {
            message: it.message.map(|number| Serial(base + number.0)),
            outcomes: it.outcomes.iter().map(|outcome| numbered(*outcome, base)).collect(),
            ordered: it.ordered.clone(),
        };
        settlements.iter().map(numbered).collect()
    }
}

/// Writes what is a dead letter from the start, with the numbers that it was given.
async fn bury(
    client: &impl GenericClient,
    delta: &Delta,
    batch: &[Intake],
    base: i64,
) -> Result<(), StoreError> {
    let numbered = delta.letters(batch).map(|(letter, message)| {
        let mut letter = letter.clone();
        letter.delivery.id = Serial(base + letter.delivery.id.0);
        letter.delivery.message = Serial(base + letter.delivery.message.0);
        let record = dead_lettered(message, &letter);
        (letter, record)
    });
    let (letters, records): (Vec<_>, Vec<_>) = numbered.unzip();
    dead_letter::insert(client, &letters).await?;
    telemetry::append(client, &records).await?;
    // The statement of the batch writes claims as they begin; of these more is known.
    let ended =
        |(_, claim): &&(ClaimKey, Claim)| claim.progress.as_ref().is_some_and(|it| it.ended_at.is_some());
    let ended: Vec<_> = delta.claims.iter().filter(ended).map(|new| numbered_claim(new, base)).collect();
    claim::update(client, &ended).await
}

fn numbered_claim((key, claim): &(ClaimKey, Claim), base: i64) -> (ClaimKey, Claim) {
    let mut claim = Claim { message: Serial(base + claim.message.0), ..claim.clone() };
    claim.progress.iter_mut().for_each(|it| it.delivery = Serial(base + it.delivery.0));
    (key.clone(), claim)
}

/// What settling a message would come to, by the claims and the queues as they are. Nothing is changed by that.
pub(super) async fn foresee(inner: &Inner, intake: Intake, now: Timestamp) -> Result<Settlement, StoreError> {
    let client = inner.pool.get().await?;
    let batch = [intake];
    let found = found(&client, &batch, now).await.map_err(Trouble::into_error)?;
    let rooms = inner.rooms.of(&client, queues(&batch)).await?;
    let version = Some(batch[0].message.registry_version);
    let (mut settlements, _) = judge(&batch, found, rooms, version, now);
    settlements.pop().ok_or(StoreError::Closed)
}

fn numbered(outcome: Outcome, base: i64) -> Outcome {
    match outcome {
        Outcome::Queued { delivery } => Outcome::Queued { delivery: Serial(base + delivery.0) },
        Outcome::Held { delivery } => Outcome::Held { delivery: Serial(base + delivery.0) },
        Outcome::Parked { delivery } => Outcome::Parked { delivery: Serial(base + delivery.0) },
        Outcome::Buried { delivery, reason } => {
            Outcome::Buried { delivery: Serial(base + delivery.0), reason }
        }
        Outcome::Conflict { conflict, is_new: true } => {
            Outcome::Conflict { conflict: Serial(base + conflict.0), is_new: true }
        }
        Outcome::Seen { delivery, is_new: true, status, first_seen_at, kept_until } => {
            let delivery = Serial(base + delivery.0);
            Outcome::Seen { delivery, is_new: true, status, first_seen_at, kept_until }
        }
        other => other,
    }
}

/// Whether more is to be written than the statement of a batch does, which is seldom.
fn has_more(delta: &Delta) -> bool {
    delta.has_conflicts() || !delta.lengthened.is_empty() || !delta.letters.is_empty()
}

fn is_queued(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Queued { .. } | Outcome::Buried { .. })
}

fn queues(batch: &[Intake]) -> impl Iterator<Item = &QueueKey> {
    batch.iter().flat_map(|intake| &intake.destinations).map(|route| &route.queue)
}

fn judge(
    batch: &[Intake],
    found: Found,
    rooms: HashMap<QueueKey, usize>,
    registry_version: Option<i64>,
    now: Timestamp,
) -> (Vec<Settlement>, Delta) {
    let mut working = Working::after(Serial(0));
    working.claims = found.claims.claims;
    working.unreadable = found.claims.unreadable;
    working.claimed = found.claimed;
    working.originals = found.originals;
    working.conflicts = found.conflicts;
    working.entities = found.entities.records;
    working.unreadable_entities = found.entities.unreadable;
    working.room = rooms;
    working.registry_version = registry_version;
    let mut delta = Delta::default();
    let judged = batch.iter().enumerate();
    let settlements =
        judged.map(|(place, intake)| settle::judge(&mut working, intake, place, now, &mut delta)).collect();
    (settlements, delta)
}

/// The statement that writes a batch: whole, or not at all.
pub(super) fn statement() -> String {
    const _: () = assert!(2 * bounds::COMMIT_MESSAGES_MAX < BLOCK_NUMBERS);
    const _: () = assert!(2 * bounds::SUBSCRIPTIONS_PER_TYPE_MAX < BLOCK_NUMBERS);
    format!(
        "WITH block AS MATERIALIZED ({BLOCK} WHERE $48::bigint IS NULL \
             OR $48 = (SELECT version FROM registry_version FOR SHARE)), \
         batch_in AS (INSERT INTO batch (nonce, attempt, base) SELECT $1, $2, base FROM block), \
         message_in AS ( \
             INSERT INTO message (seq, tenant, id, source, target, name, signed_target, sent_at, key_version, \
                 signature, correlation_id, traceparent, received_at, settled_at, registry_version, hash_version, \
                 domain_hash, path, payload, check_value, event) \
             SELECT base + number, tenant, id, source, target, name, signed_target, sent_at, key_version, \
                 signature, correlation_id, traceparent, received_at, settled_at, registry_version, hash_version, \
                 domain_hash, path, payload, check_value + base + number, event \
             FROM block, unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
                 $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[], \
                 $16::bigint[], $17::bigint[], $18::integer[], $19::bytea[], $20::text[], $21::bytea[], $22::bigint[], \
                 $56::text[]) \
                 AS new (number, tenant, id, source, target, name, signed_target, sent_at, key_version, signature, \
                 correlation_id, traceparent, received_at, settled_at, registry_version, hash_version, domain_hash, \
                 path, payload, check_value, event) \
         ), claim_in AS ({claims} \
         ), original_in AS ({originals}), delivery_in AS ({deliveries}) \
         SELECT base FROM block",
        originals = original::insertion(49, "block,", "base"),
        claims = claim::insertion(23),
        deliveries = delivery::insertion(34),
    )
}

/// Deletes what is known of batches that nobody can be asking about any more.
pub(super) async fn forget_old(client: &Client, limit: usize) -> Result<usize, StoreError> {
    const FORGET: &str = "DELETE FROM batch WHERE ctid = ANY (ARRAY( \
         SELECT ctid FROM batch WHERE at < now() - interval '1 hour' LIMIT $1 FOR UPDATE SKIP LOCKED))";
    let statement = client.prepare_cached(FORGET).await.map_err(sql)?;
    let forgotten = client.execute(&statement, &[&(limit as i64)]).await.map_err(sql)?;
    Ok(usize::try_from(forgotten).unwrap_or(usize::MAX))
}
