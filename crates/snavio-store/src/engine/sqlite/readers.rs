//! Reading connections, beside the writer: a few of them, used for one bounded query each, so that none keeps
//! the write-ahead log from starting over.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::writer::{lock, sql};
use crate::StoreError;

/// Queries that may run at the same time.
const READERS: u32 = 4;

pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn open(open: impl Fn() -> rusqlite::Result<Connection>) -> rusqlite::Result<Self> {
        let idle = (0..READERS).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { idle: Arc::new(Mutex::new(idle)), permits: Arc::new(Semaphore::new(READERS as usize)) })
    }

    /// Runs a query on a thread that may block, in one read transaction: however many statements it has, it
    /// sees one state of the store.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let idle = Arc::clone(&self.idle);
        let ran = tokio::task::spawn_blocking(move || {
            let connection = lock(&idle).pop().ok_or(StoreError::Closed)?;
            let borrowed = Borrowed { connection: Some(connection), idle, _permit: permit };
            let connection = borrowed.connection.as_ref().ok_or(StoreError::Closed)?;
            let _snapshot = connection.unchecked_transaction().map_err(sql)?;
            query(connection)
        });
        ran.await.map_err(|error| StoreError::Unavailable(Box::new(error)))?
    }

    /// Waits for the queries under way and closes the connections: the writer's must be the last one, because
    /// only one that may write can move the log into the database when it goes.
    pub(super) async fn close(&self) {
        if let Ok(all) = self.permits.acquire_many(READERS).await {
            all.forget();
        }
        self.let_go();
    }

    /// Closes the connections that are not in use, for whoever cannot wait for those that are.
    pub(super) fn let_go(&self) {
        self.permits.close();
        lock(&self.idle).clear();
    }
}

/// A connection in use. It goes back before its permit does, also when the query panics.
struct Borrowed {
    connection: Option<Connection>,
    idle: Arc<Mutex<Vec<Connection>>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        lock(&self.idle).extend(self.connection.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(folder: &std::path::Path) -> (Connection, Readers) {
        let file = folder.join("test.db");
        let writing = Connection::open(&file).unwrap();
        writing.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE seen (n INTEGER)").unwrap();
        (writing, Readers::open(|| Connection::open(&file)).unwrap())
    }

    fn count(connection: &Connection) -> Result<i64, StoreError> {
        connection.query_row("SELECT count(*) FROM seen", [], |row| row.get(0)).map_err(sql)
    }

    /// TEL-3: a page of two statements must not see the second's records without the first's.
    #[tokio::test]
    async fn a_query_of_several_statements_sees_one_state() {
        let folder = tempfile::tempdir().unwrap();
        let (writing, readers) = readers(folder.path());
        let query = move |connection: &Connection| {
            let before = count(connection)?;
            writing.execute("INSERT INTO seen (n) VALUES (1)", []).map_err(sql)?;
            Ok((before, count(connection)?))
        };
        assert_eq!(readers.run(query).await.unwrap(), (0, 0));
        assert_eq!(readers.run(count).await.unwrap(), 1, "the next query sees it");
    }

    #[tokio::test]
    async fn a_query_that_panics_gives_its_connection_back() {
        let folder = tempfile::tempdir().unwrap();
        let (_writing, readers) = readers(folder.path());
        for _ in 0..=READERS {
            let ended = readers.run(|_| -> Result<(), _> { panic!("a defect") }).await;
            assert!(matches!(ended, Err(StoreError::Unavailable(_))), "{ended:?}");
        }
        assert_eq!(readers.run(count).await.unwrap(), 0);
    }
}
