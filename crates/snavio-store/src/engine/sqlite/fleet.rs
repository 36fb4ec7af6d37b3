//! A fleet of one: what it said last is kept in memory, and it leads whatever there is to lead.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension};

use snavio_model::name::TenantName;
use snavio_model::telemetry::Record;

use super::writer::{Transaction, Urgency, lock, sql};
use super::{EmbeddedStore, telemetry};
use crate::{Fleet, Heard, NodeSeen, NodeState, StoreError};

/// What the store's one node said last, and the tasks it was given.
#[derive(Default)]
pub(super) struct OnlyNode(Mutex<Option<(NodeState, Vec<String>)>>);

#[async_trait]
impl Fleet for EmbeddedStore {
    async fn pin(&self, name: &str, value: &str) -> Result<String, StoreError> {
        let (name, value) = (name.to_owned(), value.to_owned());
        let pin = move |transaction: &mut Transaction<'_>| pin(transaction, &name, &value);
        self.writer.run(Urgency::Ordinary, pin).await
    }

    async fn pinned(&self, name: &str) -> Result<Option<String>, StoreError> {
        let name = name.to_owned();
        self.readers.run(move |connection| pinned(connection, &name).map_err(sql)).await
    }

    async fn repin(&self, name: &str, from: &str, to: &str) -> Result<bool, StoreError> {
        let (name, from, to) = (name.to_owned(), from.to_owned(), to.to_owned());
        let repin = move |transaction: &mut Transaction<'_>| {
            const REPIN: &str = "UPDATE pin SET value = ?3 WHERE name = ?1 AND value = ?2";
            let repinned = transaction.connection.execute(REPIN, (&name, &from, &to)).map_err(sql)?;
            transaction.dirty = true;
            Ok(repinned == 1)
        };
        self.writer.run(Urgency::Ordinary, repin).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        let name = name.to_owned();
        self.readers.run(move |connection| note(connection, &name).map_err(sql)).await
    }

    async fn notes(&self, beginning: &str) -> Result<Vec<(String, String)>, StoreError> {
        let beginning = beginning.to_owned();
        self.readers.run(move |connection| notes(connection, &beginning).map_err(sql)).await
    }

    async fn notes_after(&self, after: &str, limit: usize) -> Result<Vec<(String, String)>, StoreError> {
        let after = after.to_owned();
        self.readers.run(move |connection| notes_after(connection, &after, limit).map_err(sql)).await
    }

    async fn set_note(&self, name: &str, value: &str, records: Vec<Record>) -> Result<(), StoreError> {
        let (name, value) = (name.to_owned(), value.to_owned());
        let tenants: Vec<_> = records.iter().map(|record| record.tenant.clone()).collect();
        let set = move |transaction: &mut Transaction<'_>| set_note(transaction, &name, &value, &records);
        self.writer.run(Urgency::Ordinary, set).await?;
        self.written.wake(tenants.iter().map(snavio_model::name::TenantName::as_str));
        Ok(())
    }

    async fn move_note(
        &self,
        name: &str,
        from: Option<&str>,
        to: &str,
        records: Vec<Record>,
    ) -> Result<bool, StoreError> {
        let (name, from, to) = (name.to_owned(), from.map(str::to_owned), to.to_owned());
        let tenants: Vec<_> = records.iter().map(|record| record.tenant.clone()).collect();
        let moving = move |transaction: &mut Transaction<'_>| {
            if note(transaction.connection, &name).map_err(sql)? != from {
                return Ok(false);
            }
            set_note(transaction, &name, &to, &records).map(|()| true)
        };
        let moved = self.writer.run(Urgency::Ordinary, moving).await?;
        if moved {
            self.written.wake(tenants.iter().map(TenantName::as_str));
        }
        Ok(moved)
    }

    async fn remove_note(&self, name: &str, value: &str) -> Result<bool, StoreError> {
        let (name, value) = (name.to_owned(), value.to_owned());
        let removing = move |transaction: &mut Transaction<'_>| {
            const REMOVE: &str = "DELETE FROM note WHERE name = ?1 AND value = ?2";
            let removed = transaction.connection.execute(REMOVE, (&name, &value)).map_err(sql)? == 1;
            transaction.dirty |= removed;
            Ok(removed)
        };
        self.writer.run(Urgency::Ordinary, removing).await
    }

    async fn announce(&self, node: &NodeState) -> Result<Heard, StoreError> {
        let mut only = lock(&self.only_node.0);
        let leads = only.take().map(|(_, leads)| leads).unwrap_or_default();
        *only = Some((node.clone(), leads));
        Ok(Heard::default())
    }

    async fn nodes(&self) -> Result<Vec<NodeSeen>, StoreError> {
        let only = lock(&self.only_node.0).clone();
        let seen = |(state, leads)| NodeSeen { state, silent_for: Duration::ZERO, leads };
        Ok(only.map(seen).into_iter().collect())
    }

    async fn leave(&self, _node: &str) -> Result<(), StoreError> {
        *lock(&self.only_node.0) = None;
        Ok(())
    }

    async fn lead(&self, task: &str, _node: &str, _term: Duration) -> Result<bool, StoreError> {
        if let Some((_, leads)) = &mut *lock(&self.only_node.0)
            && !leads.iter().any(|it| it == task)
        {
            leads.push(task.to_owned());
        }
        Ok(true)
    }
}

pub(super) fn note(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection.query_row("SELECT value FROM note WHERE name = ?1", [name], |row| row.get(0)).optional()
}

fn set_note(
    transaction: &mut Transaction<'_>,
    name: &str,
    value: &str,
    records: &[Record],
) -> Result<(), StoreError> {
    telemetry::append(transaction, records)?;
    write_note(transaction.connection, name, value).map_err(sql)?;
    transaction.dirty = true;
    Ok(())
}

pub(super) fn write_note(connection: &Connection, name: &str, value: &str) -> rusqlite::Result<()> {
    const SET: &str = "INSERT OR REPLACE INTO note (name, value) VALUES (?1, ?2)";
    connection.execute(SET, (name, value)).map(|_| ())
}

/// Whether there was one.
pub(super) fn forget_note(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.execute("DELETE FROM note WHERE name = ?1", [name]).map(|forgotten| forgotten == 1)
}

/// Text is compared byte by byte, and no name holds a character after this one.
pub(super) fn notes(connection: &Connection, beginning: &str) -> rusqlite::Result<Vec<(String, String)>> {
    const NOTES: &str =
        "SELECT name, value FROM note WHERE name >= ?1 AND name < ?1 || char(1114111) ORDER BY name";
    let mut statement = connection.prepare(NOTES)?;
    statement.query_map([beginning], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn notes_after(
    connection: &Connection,
    after: &str,
    limit: usize,
) -> rusqlite::Result<Vec<(String, String)>> {
    const NOTES: &str = "SELECT name, value FROM note WHERE name > ?1 ORDER BY name LIMIT ?2";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare(NOTES)?;
    statement.query_map((after, limit), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn pin(transaction: &mut Transaction<'_>, name: &str, value: &str) -> Result<String, StoreError> {
    if let Some(pinned) = pinned(transaction.connection, name).map_err(sql)? {
        return Ok(pinned);
    }
    let insert = "INSERT INTO pin (name, value) VALUES (?1, ?2)";
    transaction.connection.execute(insert, (name, value)).map_err(sql)?;
    transaction.dirty = true;
    Ok(value.to_owned())
}

fn pinned(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection.query_row("SELECT value FROM pin WHERE name = ?1", [name], |row| row.get(0)).optional()
}
