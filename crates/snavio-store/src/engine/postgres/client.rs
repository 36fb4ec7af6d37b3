//! A connection of the pool that counts its round trips, because what a statement costs a fleet is mostly the way
//! there and back. When somebody goes away in the middle of a statement, it is ended, and the connection with it:
//! whoever had it next would wait for an answer, or be stopped by a word, that is not meant for them.
//!
//! Statements that are polled together are sent one after the other, in the order of their first poll, without a wait
//! in between; the server runs them in that order, each on what the one before it left. Such a flight is one round
//! trip ([`Flight`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::{GenericClient as Uncounted, Object};
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, IsolationLevel, NoTls, Row, Statement, ToStatement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What all connections of a pool have to say of themselves.
pub(super) struct Talk {
    began: Instant,
    round_trips: AtomicU64,
    /// When the server last answered anything, in milliseconds since `began`.
    answered: AtomicU64,
    tls: Option<MakeRustlsConnect>,
}

/// How long the server may take to hear that a statement is not wanted any more, and then to end it.
const ENDING_MAX: Duration = Duration::from_secs(12);

impl Talk {
    pub(super) fn new(tls: Option<MakeRustlsConnect>) -> Self {
        Self { began: Instant::now(), round_trips: AtomicU64::new(0), answered: AtomicU64::new(0), tls }
    }

    /// Ends the statement that is under way on a connection whose place in the pool stays taken until then: however
    /// many go away, the server has no more to do than for as many as may be there.
    async fn end(self: Arc<Self>, object: Object) {
        let ending = async {
            let cancel = object.cancel_token();
            let asked = match self.tls.clone() {
                Some(tls) => cancel.cancel_query(tls).await,
                None => cancel.cancel_query(NoTls).await,
            };
            // Its answer comes after that of what was cancelled.
            if asked.is_ok() {
                let _ = object.simple_query("").await;
            }
        };
        let _ = tokio::time::timeout(ENDING_MAX, ending).await;
        // The word to cancel may come late, and would stop what is asked next.
        drop(Object::take(object));
    }

    /// How often statements were sent and awaited so far, alone or in flights.
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Whether the server has answered anything since.
    pub(super) fn has_answered_since(&self, since: Instant) -> bool {
        let since = since.saturating_duration_since(self.began).as_millis();
        u128::from(self.answered.load(Ordering::Relaxed)) >= since
    }

    fn answer(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.answered.fetch_max(now, Ordering::Relaxed);
    }
}

/// A connection's part in it.
pub(super) struct Line {
    talk: Arc<Talk>,
    /// Statements that are under way.
    busy: AtomicUsize,
}

impl Line {
    /// Waits for the answer to a statement. Who stops waiting leaves the line busy.
    async fn answer<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let answered = answer.await;
        self.busy.fetch_sub(1, Ordering::Relaxed);
        // An error that the server told is an answer too.
        if answered.as_ref().err().is_none_or(|error| error.as_db_error().is_some()) {
            self.talk.answer();
        }
        answered
    }

    async fn round_trip<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        // What is sent while others are under way flies with them.
        if self.busy.load(Ordering::Relaxed) == 0 {
            self.talk.round_trips.fetch_add(1, Ordering::Relaxed);
        }
        self.answer(answer).await
    }
}

/// What statements are run with: a connection, or a transaction on one. Preparing a statement is not counted: a
/// connection does it once.
pub(super) trait GenericClient: Sync {
    type Wire: Uncounted;

    fn wire(&self) -> &Self::Wire;

    fn line(&self) -> &Line;

    /// Prepares the statements that are to fly together.
    fn flight(&self, queries: &[&str]) -> impl Future<Output = Result<Flight<'_, Self>, Error>> + Send
    where
        Self: Sized,
    {
        async move {
            let mut prepared = Vec::with_capacity(queries.len());
            for query in queries {
                prepared.push(((*query).to_owned(), self.prepare_cached(query).await?));
            }
            Ok(Flight { client: self, prepared })
        }
    }

    fn prepare_cached(&self, query: &str) -> impl Future<Output = Result<Statement, Error>> + Send {
        async move { self.line().answer(self.wire().prepare_cached(query)).await }
    }

    fn execute<T: ?Sized + ToStatement + Sync + Send>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        async move { self.line().round_trip(self.wire().execute(statement, values)).await }
    }

    fn batch_execute(&self, statements: &str) -> impl Future<Output = Result<(), Error>> + Send {
        async move { self.line().round_trip(self.wire().batch_execute(statements)).await }
    }

    fn query<T: ?Sized + ToStatement + Sync + Send>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send {
        async move { self.line().round_trip(self.wire().query(statement, values)).await }
    }

    fn query_one<T: ?Sized + ToStatement + Sync + Send>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Row, Error>> + Send {
        async move { self.line().round_trip(self.wire().query_one(statement, values)).await }
    }

    fn query_opt<T: ?Sized + ToStatement + Sync + Send>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> impl Future<Output = Result<Option<Row>, Error>> + Send {
        async move { self.line().round_trip(self.wire().query_opt(statement, values)).await }
    }
}

/// A connection of the pool, until it is dropped.
pub(super) struct Client {
    /// There until it is dropped.
    object: Option<Object>,
    line: Line,
}

impl Client {
    pub(super) fn new(object: Object, talk: &Arc<Talk>) -> Self {
        let line = Line { talk: Arc::clone(talk), busy: AtomicUsize::new(0) };
        Self { object: Some(object), line }
    }

    pub(super) async fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        let Self { object, line } = self;
        let object = object.as_mut().expect("it is there until it is dropped");
        Ok(Transaction { transaction: line.round_trip(object.transaction()).await?, line })
    }

    /// A transaction whose statements all see the same state.
    pub(super) async fn one_state(&mut self) -> Result<Transaction<'_>, Error> {
        let Self { object, line } = self;
        let object = object.as_mut().expect("it is there until it is dropped");
        let one_state = object.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        Ok(Transaction { transaction: line.round_trip(one_state.read_only(true).start()).await?, line })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(object) = self.object.take().filter(|_| self.line.busy.load(Ordering::Relaxed) > 0) {
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(Arc::clone(&self.line.talk).end(object))),
                Err(_) => drop(Object::take(object)),
            }
        }
    }
}

impl GenericClient for Client {
    type Wire = Object;

    fn wire(&self) -> &Object {
        self.object.as_ref().expect("it is there until it is dropped")
    }

    fn line(&self) -> &Line {
        &self.line
    }
}

/// A transaction, undone unless it is committed.
pub(super) struct Transaction<'a> {
    transaction: deadpool_postgres::Transaction<'a>,
    line: &'a Line,
}

impl Transaction<'_> {
    pub(super) async fn commit(self) -> Result<(), Error> {
        self.line.round_trip(self.transaction.commit()).await
    }
}

/// What statements are run with that are sent together: they are prepared before the first of them is sent, since one
/// that had to wait for that would come after those behind it.
///
/// All of a flight are awaited (`futures_util::future::join` and its like, which poll in order), and then looked at in
/// the order in which they were sent: within a transaction the first that fails says why, and all behind it only that
/// one failed.
pub(super) struct Flight<'a, C> {
    client: &'a C,
    prepared: Vec<(String, Statement)>,
}

impl<C: GenericClient> GenericClient for Flight<'_, C> {
    type Wire = C::Wire;

    fn wire(&self) -> &Self::Wire {
        self.client.wire()
    }

    fn line(&self) -> &Line {
        self.client.line()
    }

    /// Takes no time.
    async fn prepare_cached(&self, query: &str) -> Result<Statement, Error> {
        let prepared = self.prepared.iter().find(|(text, _)| text == query);
        let (_, statement) = prepared.expect("a flight names its statements");
        Ok(statement.clone())
    }
}

impl<'a> GenericClient for Transaction<'a> {
    type Wire = deadpool_postgres::Transaction<'a>;

    fn wire(&self) -> &Self::Wire {
        &self.transaction
    }

    fn line(&self) -> &Line {
        self.line
    }
}
