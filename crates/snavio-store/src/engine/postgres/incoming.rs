//! Taking in another store's rows, numbers and all, into a database that has none: in one transaction, so that it
//! has all of them or stays empty. Nobody opens the database meanwhile, and nobody writes to it.

use snavio_model::id::Serial;
use snavio_model::time::Timestamp;
use tokio::sync::mpsc;
use tokio_postgres::Client;

use super::client::{GenericClient, Transaction};
use super::pool::{self, Pool, Trouble, sql};
use super::version::Version;
use super::{
    OpenError, Options, answer, audit, claim, conflict, dead_letter, delivery, entity, fleet, hold, lane,
    layout, message, original, registry, seal, segment, telemetry,
};
use crate::transfer::{MoveError, Moved, Page};
use crate::{Act, Deed, StoreError};

/// What must be empty, and stays locked until the end.
const TABLES: [&str; 16] = [
    "message",
    "claim",
    "original",
    "conflict",
    "answer",
    "delivery",
    "dead_letter",
    "telemetry",
    "registry_entry",
    "registry_change",
    "audit",
    "note",
    "seal",
    "hold",
    "segment",
    "entity",
];

/// A database that is to take in a store.
pub(crate) struct Incoming {
    pool: Pool,
    /// Holds the lock that nodes wait for before they look at anything.
    _holding: Client,
}

impl Incoming {
    /// Connects, brings the database to this version's layout, and keeps nodes from opening it.
    pub(crate) async fn open(options: &Options) -> Result<Self, OpenError> {
        let mut holding = pool::connect(options).await?;
        holding.batch_execute(pool::KEPT_ALIVE).await?;
        Version::ask(&holding).await?.verdict()?;
        layout::migrate(&mut holding).await?;
        layout::hold(&holding).await?;
        let pool = Pool::new(&Options { connections_max: 1, ..options.clone() }, false)?;
        Ok(Self { pool, _holding: holding })
    }

    /// Writes all pages of a store, which was called so, and commits.
    pub(crate) async fn write(
        &mut self,
        name: &str,
        mut pages: mpsc::Receiver<Page>,
    ) -> Result<Moved, MoveError> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await.map_err(sql)?;
        begin(&transaction).await?;
        let mut moved = Moved::default();
        loop {
            // Whoever reads stops before the end only for a reason of its own.
            let page = pages.recv().await.ok_or(StoreError::Closed)?;
            if let Page::End { damaged } = page {
                moved.damaged = damaged;
                break;
            }
            take(&transaction, page, &mut moved).await?;
        }
        lane::begin(&transaction).await?;
        record(&transaction, name, &moved).await?;
        transaction.commit().await.map_err(|error| MoveError::Unanswered(sql(error)))?;
        // Until the planner has looked, it takes the tables for empty.
        if let Err(error) = client.batch_execute("SET statement_timeout = 0; ANALYZE").await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "ANALYZE was not done; queries may be slow at first"
            );
        }
        Ok(moved)
    }
}

/// Makes sure that the database is nobody's, and stays so until the end.
async fn begin(transaction: &Transaction<'_>) -> Result<(), MoveError> {
    // The commit is flushed whatever the database's own setting; what asks for more than that is left alone.
    const PATIENCE: &str = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; \
         SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";
    const SERVING: &str = "SELECT address FROM node WHERE seen_at > now() - interval '10 seconds' LIMIT 1";
    transaction.batch_execute(PATIENCE).await.map_err(sql)?;
    let lock = format!("LOCK TABLE {}, registry_version, pin IN EXCLUSIVE MODE", TABLES.join(", "));
    transaction.batch_execute(&lock).await.map_err(sql)?;
    if let Some(node) = transaction.query_opt(SERVING, &[]).await.map_err(sql)? {
        return Err(MoveError::Served(node.try_get(0).map_err(sql)?));
    }
    for table in TABLES {
        let any = transaction.query_opt(&format!("SELECT FROM {table} LIMIT 1"), &[]).await.map_err(sql)?;
        if any.is_some() {
            return Err(MoveError::NotEmpty(table));
        }
    }
    Ok(())
}

async fn take(transaction: &Transaction<'_>, page: Page, moved: &mut Moved) -> Result<(), StoreError> {
    match page {
        Page::Head { above, registry_version, entries } => {
            raise_numbers(transaction, above).await?;
            registry::fill(transaction, registry_version, &entries).await?;
            moved.numbers_above = above.0;
            moved.registry_version = registry_version;
            moved.registry_entries = entries.len() as u64;
        }
        Page::Changes(changes) => {
            registry::log(transaction, &changes).await?;
            moved.registry_changes += changes.len() as u64;
        }
        Page::Seals(seals) => {
            seal::insert(transaction, &seals).await?;
            moved.seals += seals.len() as u64;
        }
        Page::Messages(messages) => {
            message::insert(transaction, &messages).await?;
            moved.messages += messages.len() as u64;
        }
        Page::Claims(claims) => {
            claim::insert(transaction, &claims).await?;
            moved.claims += claims.len() as u64;
        }
        Page::Asides(asides) => claim::put_asides(transaction, &asides).await?,
        Page::Entities(entities) => {
            let entities = entities.iter().map(|(key, record)| (key, record));
            entity::put(transaction, entities).await.map_err(Trouble::into_error)?;
        }
        Page::Holds(holds) => hold::insert(transaction, &holds).await?,
        Page::Segments(segments) => segment::insert(transaction, &segments).await?,
        Page::Originals(originals) => original::insert(transaction, &originals).await?,
        Page::Conflicts(conflicts) => {
            conflict::insert(transaction, &conflicts).await.map_err(sql)?;
            moved.conflicts += conflicts.len() as u64;
        }
        Page::Answers(answers) => answer::put(transaction, &answers).await?,
        // Nobody holds those without a lease: a receipt from before has a fence that no row has, and is fenced off.
        Page::Deliveries(deliveries) => {
            let (deliveries, mut leases): (Vec<_>, Vec<_>) = deliveries.into_iter().unzip();
            delivery::insert(transaction, &deliveries).await?;
            moved.deliveries += deliveries.len() as u64;
            leases.retain(|it| it.held.is_some() || it.fence.is_some());
            delivery::put_leases(transaction, &leases).await?;
        }
        Page::DeadLetters(letters) => {
            dead_letter::insert(transaction, &letters).await?;
            moved.dead_letters += letters.len() as u64;
        }
        Page::Telemetry(records) => {
            telemetry::insert(transaction, &records).await?;
            moved.telemetry += records.len() as u64;
        }
        Page::Audit(entries) => {
            audit::insert(transaction, &entries).await?;
            moved.audit += entries.len() as u64;
        }
        Page::Notes(notes) => {
            for (name, value) in &notes {
                fleet::set_note(transaction, name, value).await?;
            }
        }
        Page::Pins(pins) => {
            for (name, value) in &pins {
                pin(transaction, name, value).await?;
            }
        }
        Page::End { .. } => {}
    }
    Ok(())
}

/// Serials and fences go on above every number of the old store. Sequences keep no transaction's promises: raised
/// for a move that comes to nothing, they stay so, which costs nothing but numbers.
async fn raise_numbers(transaction: &Transaction<'_>, above: Serial) -> Result<(), StoreError> {
    // Called: a reader takes everything up to the last number given for complete.
    const RAISE: &str = "SELECT setval('serial', greatest($1, (SELECT last_value FROM serial)), true), \
         setval('fence', greatest($1, (SELECT last_value FROM fence)), true)";
    transaction.query_one(RAISE, &[&above.0]).await.map(|_| ()).map_err(sql)
}

/// Takes a fact over. One that a node has written since, and otherwise, cannot be both.
async fn pin(transaction: &Transaction<'_>, name: &str, value: &str) -> Result<(), StoreError> {
    let pinned = fleet::pin(transaction, name, value).await?;
    if pinned == value {
        return Ok(());
    }
    let problem = format!(
        "{name} of the database is {pinned}, and of the store {value}: a node with other secrets, or \
         another archive, has opened it; use a database that none has"
    );
    Err(StoreError::Unavailable(problem.into()))
}

async fn record(transaction: &Transaction<'_>, name: &str, moved: &Moved) -> Result<(), StoreError> {
    const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let now = transaction.query_one(NOW, &[]).await.and_then(|row| row.try_get(0)).map_err(sql)?;
    let act = Act { who: "operator".to_owned(), why: String::new(), at: Timestamp(now) };
    let outcome = format!(
        "{} messages, {} claims, {} deliveries, {} dead letters, registry version {}, numbers above {}, \
         left out: {}",
        moved.messages,
        moved.claims,
        moved.deliveries,
        moved.dead_letters,
        moved.registry_version,
        moved.numbers_above,
        if moved.damaged.is_empty() { "nothing".to_owned() } else { moved.damaged.join("; ") },
    );
    audit::append(
        transaction,
        &act,
        &[Deed { action: "store.move", object: format!("embedded:{name}"), outcome }],
    )
    .await
}
