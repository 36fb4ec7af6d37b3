//! One connection for a whole consumer: SQLite has one writer at a time anyway.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::Mutex;

use super::failed;
use crate::once::{OnceError, WAIT_MAX};

/// A connection to the consumer's database, for use from async code. Clones share it.
#[derive(Clone)]
pub struct Database(Arc<Mutex<Connection>>);

impl Database {
    /// Opens a file, or makes it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OnceError> {
        let connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(WAIT_MAX).map_err(failed)?;
        Ok(Self::over(connection))
    }

    /// Takes over a connection that the consumer has set up as it likes.
    pub fn over(connection: Connection) -> Self {
        Self(Arc::new(Mutex::new(connection)))
    }

    /// Works with the connection on a thread that may wait. A panic of the work goes on in the caller; work that has
    /// begun ends by itself, also when the caller does not wait for it any more.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, OnceError> + Send + 'static,
    ) -> Result<T, OnceError> {
        // Whoever waits for the connection waits here, without a thread.
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
