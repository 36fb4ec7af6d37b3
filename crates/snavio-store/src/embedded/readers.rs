//! Reading connections, beside the writer: a few of them, used for one bounded query each, so that none keeps
//! the write-ahead log from starting over.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::writer::lock;
use crate::StoreError;

/// Queries that may run at the same time.
const READERS: usize = 4;

pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn open(open: impl Fn() -> rusqlite::Result<Connection>) -> rusqlite::Result<Self> {
        let idle = (0..READERS).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { idle: Arc::new(Mutex::new(idle)), permits: Arc::new(Semaphore::new(READERS)) })
    }

    /// Runs a query on a thread that may block.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let idle = Arc::clone(&self.idle);
        let ran = tokio::task::spawn_blocking(move || {
            let connection = lock(&idle).pop().ok_or(StoreError::Closed)?;
            let result = query(&connection);
            lock(&idle).push(connection);
            drop(permit);
            result
        });
        ran.await.map_err(|error| StoreError::Unavailable(Box::new(error)))?
    }

    pub(super) fn close(&self) {
        self.permits.close();
        lock(&self.idle).clear();
    }
}
