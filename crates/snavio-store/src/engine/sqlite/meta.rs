//! Single numbers of the store: table `meta (key, value)`. Keys: `epoch`, `registry_version`.

use rusqlite::Connection;

pub(super) fn get(connection: &Connection, key: &str) -> rusqlite::Result<i64> {
    connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
}

pub(super) fn set(connection: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("UPDATE meta SET value = ?2 WHERE key = ?1")?;
    statement.execute((key, value)).map(|_| ())
}
