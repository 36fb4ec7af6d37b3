//! The tables and their versions. Until the first release `migrations` holds one file, the schema, which is edited in
//! place; after it, each change of the layout is a file of its own, run once and in order.

use refinery::{Migration, Runner};
use rusqlite::{Connection, OptionalExtension};

use crate::engine::migration_history;

mod embedded {
    refinery::embed_migrations!("src/engine/sqlite/migrations");
}

/// Brings a store to this version's layout. One transaction for the layout and the note that it was made: a kill
/// in between must leave neither.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), MigrateError> {
    migrate_by(connection, runner())
}

fn migrate_by(connection: &mut Connection, runner: Runner) -> Result<(), MigrateError> {
    check_history(connection, runner.get_migrations())?;
    Ok(runner.set_grouped(true).run(connection).map(|_| ())?)
}

/// Why a store was not brought to this version's layout.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A row of the history cannot have been written by Snavio.
    #[error("the history of migrations (refinery_schema_history) is damaged: {0}; restore a backup")]
    History(String),
    /// The history cannot be read.
    #[error("the history of migrations (refinery_schema_history) cannot be read; restore a backup")]
    Unread(#[from] rusqlite::Error),
    /// Another version of Snavio made the layout, and this one cannot read it.
    #[error("{0}")]
    Foreign(String),
    /// A migration failed.
    #[error(transparent)]
    Run(#[from] refinery::Error),
}

fn check_history(connection: &Connection, known: &[Migration]) -> Result<(), MigrateError> {
    let find = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?1";
    if connection.query_row(find, [migration_history::TABLE], |_| Ok(())).optional()?.is_none() {
        return Ok(());
    }
    let read = format!(
        "SELECT version, name, applied_on, checksum FROM {} ORDER BY version",
        migration_history::TABLE
    );
    let mut statement = connection.prepare(&read)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let _: String = row.get(1)?;
        let (version, applied_on, checksum): (_, String, String) = (row.get(0)?, row.get(2)?, row.get(3)?);
        if let Some(problem) = migration_history::problem(version, &applied_on, &checksum) {
            return Err(MigrateError::History(problem));
        }
        if let Some(reason) = migration_history::mismatch(known, version, &checksum) {
            return Err(MigrateError::Foreign(reason));
        }
    }
    Ok(())
}

/// Whether a store has this version's layout, so that its rows can be read as this version writes them.
pub(super) fn is_current(connection: &Connection) -> rusqlite::Result<bool> {
    let newest = runner().get_migrations().iter().map(|it| i64::from(it.version())).max();
    let made = "SELECT max(version) FROM refinery_schema_history";
    Ok(connection.query_row(made, [], |row| row.get::<_, Option<i64>>(0))? == newest)
}

fn runner() -> Runner {
    embedded::migrations::runner()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENG-2: a migration after the first release runs once, and keeps the rows of the layout before.
    #[test]
    fn older_layout_is_upgraded_once() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        connection.execute("INSERT INTO note (name, value) VALUES ('a', 'kept')", []).unwrap();
        let next = || {
            let mut all = runner().get_migrations().clone();
            let change = "ALTER TABLE note ADD COLUMN newer TEXT NOT NULL DEFAULT 'new'";
            all.push(Migration::unapplied("V2__next", change).unwrap());
            Runner::new(&all)
        };
        for _ in 0..2 {
            migrate_by(&mut connection, next()).unwrap();
            let row = "SELECT value || ' ' || newer FROM note WHERE name = 'a'";
            let row: String = connection.query_row(row, [], |row| row.get(0)).unwrap();
            assert_eq!(row, "kept new");
        }
        let refused = migrate(&mut connection).unwrap_err().to_string();
        assert!(refused.contains("the store has layout 2"), "{refused}");
    }
}
