//! The nodes of the fleet: tables `node`, `lease` and `pin`. Times are the database's own.

use std::time::Duration;

use async_trait::async_trait;
use snavio_model::telemetry::Record;
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::sql;
use super::{PostgresStore, layout, telemetry};
use crate::{Fleet, Heard, NodeSeen, NodeState, StoreError};

#[async_trait]
impl Fleet for PostgresStore {
    async fn pin(&self, name: &str, value: &str) -> Result<String, StoreError> {
        self.within(async { pin(&self.client().await?, name, value).await }).await
    }

    async fn pinned(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.within(async { pinned(&self.client().await?, name).await }).await
    }

    async fn repin(&self, name: &str, from: &str, to: &str) -> Result<bool, StoreError> {
        self.within(async { repin(&self.client().await?, name, from, to).await }).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.within(async { note(&self.client().await?, name).await }).await
    }

    async fn notes(&self, beginning: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.within(async { notes(&self.client().await?, beginning).await }).await
    }

    async fn notes_after(&self, after: &str, limit: usize) -> Result<Vec<(String, String)>, StoreError> {
        self.within(async { notes_after(&self.client().await?, after, limit).await }).await
    }

    async fn set_note(&self, name: &str, value: &str, records: Vec<Record>) -> Result<(), StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            telemetry::append(&transaction, &records).await?;
            set_note(&transaction, name, value).await?;
            transaction.commit().await.map_err(sql)
        };
        self.within(work).await?;
        self.inner.written.wake(records.iter().map(|record| record.tenant.as_str()));
        Ok(())
    }

    async fn move_note(
        &self,
        name: &str,
        from: Option<&str>,
        to: &str,
        records: Vec<Record>,
    ) -> Result<bool, StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            if !move_note(&transaction, name, from, to).await? {
                return Ok(false);
            }
            telemetry::append(&transaction, &records).await?;
            transaction.commit().await.map_err(sql)?;
            Ok(true)
        };
        let moved = self.within(work).await?;
        if moved {
            self.inner.written.wake(records.iter().map(|record| record.tenant.as_str()));
        }
        Ok(moved)
    }

    async fn remove_note(&self, name: &str, value: &str) -> Result<bool, StoreError> {
        self.within(async { remove_note(&self.client().await?, name, value).await }).await
    }

    async fn announce(&self, node: &NodeState) -> Result<Heard, StoreError> {
        self.within(async { announce(&self.inner.pool.get_kept().await?, node).await }).await
    }

    async fn nodes(&self) -> Result<Vec<NodeSeen>, StoreError> {
        self.within(async { nodes(&self.client().await?).await }).await
    }

    async fn leave(&self, node: &str) -> Result<(), StoreError> {
        self.within(async { leave(&self.inner.pool.get_kept().await?, node).await }).await
    }

    async fn lead(&self, task: &str, node: &str, term: Duration) -> Result<bool, StoreError> {
        self.within(async { lead(&self.inner.pool.get_kept().await?, task, node, term).await }).await
    }
}

pub(super) async fn pin(client: &impl GenericClient, name: &str, value: &str) -> Result<String, StoreError> {
    const PIN: &str = "INSERT INTO pin (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    client.execute(PIN, &[&name, &value]).await.map_err(sql)?;
    Ok(pinned(client, name).await?.unwrap_or_else(|| value.to_owned()))
}

pub(super) async fn pinned(client: &impl GenericClient, name: &str) -> Result<Option<String>, StoreError> {
    let pinned = client.query_opt("SELECT value FROM pin WHERE name = $1", &[&name]).await.map_err(sql)?;
    pinned.map(|row| row.try_get(0)).transpose().map_err(sql)
}

async fn repin(client: &impl GenericClient, name: &str, from: &str, to: &str) -> Result<bool, StoreError> {
    const REPIN: &str = "UPDATE pin SET value = $3 WHERE name = $1 AND value = $2";
    Ok(client.execute(REPIN, &[&name, &from, &to]).await.map_err(sql)? == 1)
}

pub(super) async fn note(client: &impl GenericClient, name: &str) -> Result<Option<String>, StoreError> {
    let noted = client.query_opt("SELECT value FROM note WHERE name = $1", &[&name]).await.map_err(sql)?;
    noted.map(|row| row.try_get(0)).transpose().map_err(sql)
}

pub(super) async fn notes(
    client: &impl GenericClient,
    beginning: &str,
) -> Result<Vec<(String, String)>, StoreError> {
    const NOTES: &str = "SELECT name, value FROM note WHERE starts_with(name, $1) ORDER BY name";
    let rows = client.query(NOTES, &[&beginning]).await.map_err(sql)?;
    let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

async fn notes_after(
    client: &impl GenericClient,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, String)>, StoreError> {
    const NOTES: &str = "SELECT name, value FROM note WHERE name > $1 ORDER BY name LIMIT $2";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = client.query(NOTES, &[&after, &limit]).await.map_err(sql)?;
    let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

async fn remove_note(client: &impl GenericClient, name: &str, value: &str) -> Result<bool, StoreError> {
    const REMOVE: &str = "DELETE FROM note WHERE name = $1 AND value = $2";
    client.execute(REMOVE, &[&name, &value]).await.map(|rows| rows == 1).map_err(sql)
}

pub(super) async fn set_note(client: &impl GenericClient, name: &str, value: &str) -> Result<(), StoreError> {
    const SET: &str = "INSERT INTO note (name, value) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    client.execute(SET, &[&name, &value]).await.map(|_| ()).map_err(sql)
}

pub(super) async fn move_note(
    client: &impl GenericClient,
    name: &str,
    from: Option<&str>,
    to: &str,
) -> Result<bool, StoreError> {
    const BEGIN: &str = "INSERT INTO note (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    const MOVE: &str = "UPDATE note SET value = $2 WHERE name = $1 AND value = $3";
    let moved = match from {
        None => client.execute(BEGIN, &[&name, &to]).await,
        Some(from) => client.execute(MOVE, &[&name, &to, &from]).await,
    };
    moved.map(|rows| rows == 1).map_err(sql)
}

pub(super) async fn announce(client: &impl GenericClient, node: &NodeState) -> Result<Heard, StoreError> {
    const ANNOUNCE: &str = "WITH announced AS ( \
             INSERT INTO node (id, address, software, registry_version, waiting, draining, started_at, now_at, layout) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (id) DO UPDATE SET registry_version = excluded.registry_version, \
                 waiting = excluded.waiting, draining = excluded.draining, now_at = excluded.now_at, \
                 seen_at = clock_timestamp()) \
         SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, version, oldest_reader FROM layout";
    let statement = client.prepare_cached(ANNOUNCE).await.map_err(sql)?;
    let waiting = i64::try_from(node.waiting).unwrap_or(i64::MAX);
    let values: [&(dyn ToSql + Sync); 9] = [
        &node.id,
        &node.address,
        &node.software,
        &node.registry_version,
        &waiting,
        &node.draining,
        &node.started_at.0,
        &node.now.0,
        &layout::LAYOUT,
    ];
    let row = client.query_one(&statement, &values).await.map_err(sql)?;
    let number = |column: usize| row.try_get::<_, i32>(column).map_err(sql);
    let now = Timestamp(row.try_get(0).map_err(sql)?);
    Ok(Heard { now: Some(now), outdated: layout::verdict(number(1)?, number(2)?) })
}

pub(super) async fn nodes(client: &impl GenericClient) -> Result<Vec<NodeSeen>, StoreError> {
    const NODES: &str = "SELECT id, address, software, registry_version, waiting, draining, started_at, \
             coalesce(now_at, (extract(epoch FROM seen_at) * 1000)::bigint), \
             (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint, \
             ARRAY(SELECT task FROM lease WHERE lease.node = node.id AND until > now() ORDER BY task) \
         FROM node ORDER BY started_at, id";
    let statement = client.prepare_cached(NODES).await.map_err(sql)?;
    let rows = client.query(&statement, &[]).await.map_err(sql)?;
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

fn read(row: &Row) -> Result<NodeSeen, tokio_postgres::Error> {
    let state = NodeState {
        id: row.try_get(0)?,
        address: row.try_get(1)?,
        software: row.try_get(2)?,
        registry_version: row.try_get(3)?,
        waiting: row.try_get::<_, i64>(4)?.unsigned_abs(),
        draining: row.try_get(5)?,
        started_at: Timestamp(row.try_get(6)?),
        now: Timestamp(row.try_get(7)?),
    };
    let silent = u64::try_from(row.try_get::<_, i64>(8)?).unwrap_or(0);
    Ok(NodeSeen { state, silent_for: Duration::from_millis(silent), leads: row.try_get(9)? })
}

pub(super) async fn leave(client: &impl GenericClient, node: &str) -> Result<(), StoreError> {
    const LEAVE: &str = "WITH freed AS (DELETE FROM lease WHERE node = $1) DELETE FROM node WHERE id = $1";
    client.execute(LEAVE, &[&node]).await.map(|_| ()).map_err(sql)
}

/// Forgets nodes that have not been heard of for long.
pub(super) async fn forget_silent(client: &impl GenericClient) -> Result<(), StoreError> {
    let forget = "DELETE FROM node WHERE seen_at < now() - interval '1 hour'";
    client.execute(forget, &[]).await.map(|_| ()).map_err(sql)
}

pub(super) async fn lead(
    client: &impl GenericClient,
    task: &str,
    node: &str,
    term: Duration,
) -> Result<bool, StoreError> {
    const LEAD: &str = "INSERT INTO lease (task, node, until) \
         VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond') \
         ON CONFLICT (task) DO UPDATE SET node = excluded.node, until = excluded.until \
         WHERE lease.node = excluded.node OR lease.until <= clock_timestamp()";
    let statement = client.prepare_cached(LEAD).await.map_err(sql)?;
    let term = i64::try_from(term.as_millis()).unwrap_or(i64::MAX) as f64;
    let taken = client.execute(&statement, &[&task, &node, &term]).await.map_err(sql)?;
    Ok(taken == 1)
}
