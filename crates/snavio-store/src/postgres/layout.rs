//! The tables and their versions: every change of the layout is a file in `migrations`, run once and in order, by
//! whichever node comes first. Nodes of the version before go on beside it, as long as the layout says it serves
//! them (`oldest_reader`).

use refinery::Runner;
use tokio_postgres::Client;

use super::OpenError;

/// The layout that this program writes; migrations after it are for newer ones.
const LAYOUT: i32 = 1;
/// Whoever migrates holds this advisory lock of its session: "snavio" and a number.
const MIGRATING: i64 = 0x736e_6176_696f_0001;

mod embedded {
    refinery::embed_migrations!("src/postgres/migrations");
}

/// Brings the database to this program's layout, unless it is there or beyond.
pub(super) async fn migrate(client: &mut Client) -> Result<(), OpenError> {
    hold(client).await?;
    if version(client).await?.is_none_or(|version| version < LAYOUT) {
        runner().set_grouped(true).run_async(client).await?;
    }
    client.execute("SELECT pg_advisory_unlock($1)", &[&MIGRATING]).await?;
    outdated(client).await?.map_or(Ok(()), |why| Err(OpenError::Layout(why)))
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

/// Why this program cannot work with the database's layout, if so.
pub(super) async fn outdated(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    let row = client.query_one("SELECT version, oldest_reader FROM layout", &[]).await?;
    Ok(verdict(row.try_get(0)?, row.try_get(1)?))
}

/// Why a layout is none for this program, if so.
pub(super) fn verdict(version: i32, oldest_reader: i32) -> Option<String> {
    (oldest_reader > LAYOUT).then(|| {
        format!(
            "the database has layout {version}, which serves nodes from layout {oldest_reader} on; this one knows {LAYOUT}: upgrade it"
        )
    })
}

fn runner() -> Runner {
    embedded::migrations::runner()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENG-3
    #[test]
    fn a_newer_layout_is_worked_with_as_long_as_it_serves_this_program() {
        assert_eq!(verdict(LAYOUT, LAYOUT), None);
        assert_eq!(verdict(LAYOUT + 7, LAYOUT), None);
        assert!(verdict(LAYOUT + 7, LAYOUT + 1).is_some_and(|why| why.contains("upgrade")));
    }

    #[test]
    fn the_newest_migration_is_the_layout() {
        let newest = runner().get_migrations().iter().map(refinery::Migration::version).max();
        assert_eq!(newest, Some(LAYOUT));
    }
}
