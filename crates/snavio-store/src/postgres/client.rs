//! A connection of the pool that counts its round trips: what a statement costs a fleet is mostly the way there and
//! back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deadpool_postgres::{GenericClient as Uncounted, Object};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, IsolationLevel, Row, Statement, ToStatement};

/// What statements are run with: a connection, or a transaction on one. Preparing a statement is not counted: a
/// connection does it once.
pub(super) trait GenericClient: Sync {
    type Wire: Uncounted;

    fn wire(&self) -> &Self::Wire;

    fn round_trips(&self) -> &AtomicU64;

    fn counted(&self) -> &Self::Wire {
        self.round_trips().fetch_add(1, Ordering::Relaxed);
        self.wire()
    }

    fn prepare_cached(&self, query: &str) -> impl Future<Output = Result<Statement, Error>> + Send {
        async move { self.wire().prepare_cached(query).await }
    }

    fn execute<T: ?Sized + ToStatement + Sync + Send>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        async move { self.counted().execute(statement, values).await }
    }

    fn batch_execute(&self, statements: &str) -> impl Future<Output = Result<(), Error>> + Send {
        async move { self.counted().batch_execute(statements).await }
    }

    fn query<T: ?Sized + ToStatement + Sync + Send>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send {
        async move { self.counted().query(statement, values).await }
    }

    fn query_one<T: ?Sized + ToStatement + Sync + Send>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Row, Error>> + Send {
        async move { self.counted().query_one(statement, values).await }
    }

    fn query_opt<T: ?Sized + ToStatement + Sync + Send>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Option<Row>, Error>> + Send {
        async move { self.counted().query_opt(statement, values).await }
    }
}

/// A connection of the pool, until it is dropped.
pub(super) struct Client {
    object: Object,
    round_trips: Arc<AtomicU64>,
}

impl Client {
    pub(super) fn new(object: Object, round_trips: &Arc<AtomicU64>) -> Self {
        Self { object, round_trips: Arc::clone(round_trips) }
    }

    pub(super) async fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        let Self { object, round_trips } = self;
        round_trips.fetch_add(1, Ordering::Relaxed);
        Ok(Transaction { transaction: object.transaction().await?, round_trips })
    }

    /// A transaction whose statements all see the same state.
    pub(super) async fn one_state(&mut self) -> Result<Transaction<'_>, Error> {
        let Self { object, round_trips } = self;
        round_trips.fetch_add(1, Ordering::Relaxed);
        let one_state = object.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        Ok(Transaction { transaction: one_state.read_only(true).start().await?, round_trips })
    }
}

impl GenericClient for Client {
    type Wire = Object;

    fn wire(&self) -> &Object {
        &self.object
    }

    fn round_trips(&self) -> &AtomicU64 {
        &self.round_trips
    }
}

/// A transaction, undone unless it is committed.
pub(super) struct Transaction<'a> {
    transaction: deadpool_postgres::Transaction<'a>,
    round_trips: &'a AtomicU64,
}

impl Transaction<'_> {
    pub(super) async fn commit(self) -> Result<(), Error> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        self.transaction.commit().await
    }
}

impl<'a> GenericClient for Transaction<'a> {
    type Wire = deadpool_postgres::Transaction<'a>;

    fn wire(&self) -> &Self::Wire {
        &self.transaction
    }

    fn round_trips(&self) -> &AtomicU64 {
        self.round_trips
    }
}
