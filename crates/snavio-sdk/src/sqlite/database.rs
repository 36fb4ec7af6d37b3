//! One shared connection for a whole consumer. SQLite has only one writer at a time anyway.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::Mutex;

use super::failed;
use crate::once::{OnceError, WAIT_MAX};

/// A connection to the consumer's database, for use from async code. Clones share the connection.
#[derive(Clone)]
pub struct Database(Arc<Mutex<Connection>>);

impl Database {
    /// Opens a database file, or creates it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OnceError> {
        let connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(WAIT_MAX).map_err(failed)?;
        Ok(Self::over(connection))
    }

    /// Wraps a connection that the consumer has configured.
    pub fn over(connection: Connection) -> Self {
        Self(Arc::new(Mutex::new(connection)))
    }

    /// Runs `work` with the connection on a blocking thread. A panic of `work` continues in the caller. Work
    /// that has begun runs to its end, even if the caller drops the future.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, OnceError> + Send + 'static,
    ) -> Result<T, OnceError> {
        // A task that waits for the connection waits here and holds no thread.
        let mut connection = Arc::clone(&self.0).lock_owned().await;
        match tokio::task::spawn_blocking(move || work(&mut connection)).await {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(OnceError::Database(error.into())),
            },
        }
    }
}
