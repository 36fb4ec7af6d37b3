//! The tables and their versions. Until the first release `migrations` holds one file, the schema, which is edited in
//! place; after it, each change of the layout is a file of its own. The first node to start runs them once and in order. Nodes of the version before go on beside it, as long as the layout says it serves
//! them (`oldest_reader`). Where it does not, they are told to leave first, and waited for.

use std::time::Duration;

use refinery::{Migration, Runner};
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::OpenError;
use crate::engine::migration_history;

/// The layout that this program writes; migrations after it are for newer ones.
pub(super) const LAYOUT: i32 = 1;
/// The oldest layout whose programs can work beside this one's.
const OLDEST_READER: i32 = 1;
/// Whoever migrates holds this advisory lock of its session: "snavio" and a number.
const MIGRATING: i64 = 0x736e_6176_696f_0001;

/// How long a migration waits for a lock. Everybody who wants the table waits behind it for as long.
const LOCK_PATIENCE: &str = "SET lock_timeout = '2s'";
/// Whom the layout serves from now on.
const RAISE: &str = "UPDATE layout SET oldest_reader = greatest(oldest_reader, $1)";
/// Whom the layout serves.
const SERVES_FROM: &str = "UPDATE layout SET oldest_reader = $1";
/// How long it leaves the way free before it tries again.
const LOCK_PAUSE: Duration = Duration::from_secs(2);
/// How long nodes that a migration does not serve are waited for, and locks that others hold.
const WAITING_MAX: Duration = Duration::from_secs(120);

mod embedded {
    refinery::embed_migrations!("src/engine/postgres/migrations");
}

/// Brings the database to this program's layout, unless it is there or beyond.
pub(super) async fn migrate(client: &mut Client) -> Result<(), OpenError> {
    let moves = Moves { runner: runner(), to: LAYOUT, oldest_reader: OLDEST_READER };
    moves.make(client, WAITING_MAX).await
}

/// The way to a layout.
struct Moves {
    runner: Runner,
    to: i32,
    /// The oldest layout that it serves.
    oldest_reader: i32,
}

impl Moves {
    async fn make(self, client: &mut Client, patience: Duration) -> Result<(), OpenError> {
        hold(client).await?;
        let (version, served) = (version(client).await?, oldest_reader(client).await?);
        let is_there = version.is_some_and(|version| {
            version > self.to || version == self.to && served.is_some_and(|it| it >= self.oldest_reader)
        });
        if !is_there {
            let moved = self.move_on(client, patience).await;
            if let (Err(_), Some(served)) = (&moved, served) {
                // Nothing was changed: whoever was told to leave may come back.
                client.execute(SERVES_FROM, &[&served]).await?;
            }
            moved?;
        }
        client.execute("SELECT pg_advisory_unlock($1)", &[&MIGRATING]).await?;
        outdated(client, self.to).await?.map_or(Ok(()), |why| Err(OpenError::Layout(why)))
    }

    async fn move_on(&self, client: &mut Client, patience: Duration) -> Result<(), OpenError> {
        self.send_others_away(client, patience).await?;
        client.batch_execute(LOCK_PATIENCE).await?;
        let run = self.run(client, Instant::now() + patience).await;
        client.batch_execute("RESET lock_timeout").await?;
        run?;
        client.execute(RAISE, &[&self.oldest_reader]).await?;
        Ok(())
    }

    /// Runs what is missing, all or nothing. Who waits for a lock holds up all who come after: so it waits a moment
    /// only, lets them pass, and tries again.
    async fn run(&self, client: &mut Client, until: Instant) -> Result<(), OpenError> {
        loop {
            check_history(client, self.runner.get_migrations()).await?;
            let runner = Runner::new(self.runner.get_migrations()).set_grouped(true);
            match runner.run_async(client).await {
                Err(error) if is_held_up(&error) && Instant::now() < until => {
                    tracing::warn!(cause = "locked", "a migration waits for a lock that others hold");
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(error) if is_held_up(&error) => return Err(OpenError::HeldUp(error)),
                done => return done.map(|_| ()).map_err(OpenError::Migration),
            }
        }
    }

    /// Tells nodes to leave that the layout will not serve, and waits until they have.
    async fn send_others_away(&self, client: &Client, patience: Duration) -> Result<(), OpenError> {
        if !is_there(client).await? {
            return Ok(());
        }
        client.execute(RAISE, &[&self.oldest_reader]).await?;
        let until = Instant::now() + patience;
        loop {
            let there = older_nodes(client, self.oldest_reader).await?;
            let Some(one) = there.first() else { return Ok(()) };
            if Instant::now() >= until {
                let to = self.to;
                return Err(OpenError::Layout(format!(
                    "layout {to} does not serve the node on {one}, which was told to leave and has not; stop it first"
                )));
            }
            tracing::warn!(
                nodes = there.join(", "),
                cause = "nodes of an older layout run",
                "waiting for nodes to leave that the new layout does not serve"
            );
            tokio::time::sleep(Duration::from_millis(500).min(patience)).await;
        }
    }
}

async fn check_history(client: &Client, known: &[Migration]) -> Result<(), OpenError> {
    let is_there =
        client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&migration_history::TABLE]).await?;
    if !is_there.try_get::<_, bool>(0)? {
        return Ok(());
    }
    let damaged = |problem: String| {
        let table = migration_history::TABLE;
        OpenError::Layout(format!(
            "the history of migrations ({table}) is damaged: {problem}; restore a backup"
        ))
    };
    let unread = |error: tokio_postgres::Error| damaged(error.to_string());
    let read = format!(
        "SELECT version, name, applied_on, checksum FROM {} ORDER BY version",
        migration_history::TABLE
    );
    for row in client.query(&read, &[]).await.map_err(unread)? {
        row.try_get::<_, String>(1).map_err(unread)?;
        let (version, applied_on) =
            (row.try_get(0).map_err(unread)?, row.try_get::<_, String>(2).map_err(unread)?);
        let checksum: String = row.try_get(3).map_err(unread)?;
        if let Some(problem) = migration_history::problem(version, &applied_on, &checksum) {
            return Err(damaged(problem));
        }
        if let Some(reason) = migration_history::mismatch(known, version, &checksum) {
            return Err(OpenError::Layout(reason));
        }
    }
    Ok(())
}

async fn oldest_reader(client: &Client) -> Result<Option<i32>, tokio_postgres::Error> {
    if !is_there(client).await? {
        return Ok(None);
    }
    client.query_one("SELECT oldest_reader FROM layout", &[]).await?.try_get(0).map(Some)
}

/// Where nodes listen that know only layouts before one.
async fn older_nodes(client: &Client, oldest_reader: i32) -> Result<Vec<String>, tokio_postgres::Error> {
    const OLDER: &str = "SELECT address FROM node WHERE layout < $1 AND seen_at > now() - interval '10 seconds' \
         ORDER BY address";
    client.query(OLDER, &[&oldest_reader]).await?.iter().map(|row| row.try_get(0)).collect()
}

/// Whether a migration was undone because it would have had to wait.
fn is_held_up(error: &refinery::Error) -> bool {
    let refinery::error::Kind::Connection(_, cause) = error.kind() else { return false };
    let cause = cause.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    matches!(cause, Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// Keeps others from opening the database until this connection goes: they wait as they do for a migration.
pub(super) async fn hold(client: &Client) -> Result<(), tokio_postgres::Error> {
    let free = client.query_one("SELECT pg_try_advisory_lock($1)", &[&MIGRATING]).await?;
    if free.try_get(0)? {
        return Ok(());
    }
    tracing::warn!("waiting for a migration or a move by another process");
    client.execute("SELECT pg_advisory_lock($1)", &[&MIGRATING]).await.map(|_| ())
}

/// Whether the database has the tables of any layout.
pub(super) async fn is_there(client: &Client) -> Result<bool, tokio_postgres::Error> {
    client.query_one("SELECT to_regclass('layout') IS NOT NULL", &[]).await?.try_get(0)
}

pub(super) async fn version(client: &Client) -> Result<Option<i32>, tokio_postgres::Error> {
    if !is_there(client).await? {
        return Ok(None);
    }
    client.query_one("SELECT version FROM layout", &[]).await?.try_get(0).map(Some)
}

/// Why a program of a layout cannot work with the database's, if so.
pub(super) async fn outdated(client: &Client, knows: i32) -> Result<Option<String>, tokio_postgres::Error> {
    let row = client.query_one("SELECT version, oldest_reader FROM layout", &[]).await?;
    Ok(verdict_for(knows, row.try_get(0)?, row.try_get(1)?))
}

/// Why a layout is none for this program, if so.
pub(super) fn verdict(version: i32, oldest_reader: i32) -> Option<String> {
    verdict_for(LAYOUT, version, oldest_reader)
}

fn verdict_for(knows: i32, version: i32, oldest_reader: i32) -> Option<String> {
    (oldest_reader > knows).then(|| {
        format!(
            "the database has layout {version}, which serves nodes from layout {oldest_reader} on; this one knows {knows}: upgrade it"
        )
    })
}

fn runner() -> Runner {
    embedded::migrations::runner()
}

#[cfg(test)]
mod tests;
