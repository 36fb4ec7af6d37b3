//! Connections to PostgreSQL, and what its errors mean.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use tokio::time::Instant;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::client::{self, Talk};
use super::promise::{Fitness, fitness};
use super::{OpenError, Options};
use crate::{Durability, StoreError};

/// How long making a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long the first connection may take, with everything that comes before its first statement.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// How long a caller may wait for a connection that others use.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Bounds of the server's patience: no statement here takes nearly as long while all is well, and what the server
/// gives up is told from what it did. It looks every second whether the node is still there: a caller who goes away
/// in the middle of a statement leaves it nothing to do. A node that vanishes between two statements keeps its entities
/// from others for less than a batch is tried; nothing here leaves a transaction idle but to compute.
pub(super) const SESSION: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '5s'; SET client_connection_check_interval = '1s'; \
     SET client_min_messages = 'error'; SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; \
     SET tcp_keepalives_count = 3";
/// The same for a connection that does one long thing: the server must notice when its machine is gone, with the
/// locks that it holds.
pub(super) const KEPT_ALIVE: &str =
    "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";
/// Connections beside those of batches that are kept for what a node does to stay one of its fleet: its heartbeat
/// and its leases, the registry, and sweeps.
const MEMBER_CONNECTIONS: usize = 2;

/// How long nobody tries to connect after a failure, growing: a database that comes back must not be met by all of
/// its nodes' requests at once.
const REST: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(1);

/// How long anything may take before its answer is taken for lost, though nobody has said so: longer than waiting for
/// a connection and the server's own patience together.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// The pool, by what it is asked for.
pub(super) struct Pool {
    shared: Connections,
    /// For batches, heartbeat and leases, however slow what others read may be.
    kept: Connections,
    talk: Arc<Talk>,
    /// When the server was last taken to be gone: no connection from before is used again.
    gone: Gone,
}

/// Since when and for how long connecting rests.
#[derive(Default)]
struct Resting {
    until: Option<Instant>,
    next: Duration,
}

impl Resting {
    /// Notes a failure, and rests twice as long as after the one before.
    fn failed(&mut self, now: Instant) {
        // Those that began before it rested tell nothing new.
        if self.until.is_none_or(|until| until <= now) {
            let rest = self.next.max(REST);
            *self = Self { until: Some(now + rest), next: (2 * rest).min(REST_MAX) };
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

impl Pool {
    /// A pool whose connections are held to being durable, if they are to be.
    pub(super) fn new(options: &Options, durable: bool) -> Result<Self, OpenError> {
        let gone = Arc::new(Mutex::new(None));
        let kept = options.batches_at_once + MEMBER_CONNECTIONS;
        let shared = options.connections_max.saturating_sub(kept).max(1);
        Ok(Self {
            shared: Connections::new(options, shared, durable, &gone)?,
            kept: Connections::new(options, kept, durable, &gone)?,
            talk: Arc::new(Talk::new(tls(options, &config(options)?)?)),
            gone,
        })
    }

    /// A connection, new or used before.
    pub(super) async fn get(&self) -> Result<client::Client, StoreError> {
        self.get_of(&self.shared).await
    }

    /// A connection for what must not wait for readers.
    pub(super) async fn get_kept(&self) -> Result<client::Client, StoreError> {
        self.get_of(&self.kept).await
    }

    async fn get_of(&self, connections: &Connections) -> Result<client::Client, StoreError> {
        Ok(client::Client::new(connections.get().await?, &self.talk))
    }

    /// Gives work with the database its time, and none of its connections to anybody after that.
    pub(super) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.answered(ANSWER_MAX, work).await.unwrap_or_else(|lost| Err(lost.into_error()))
    }

    /// Waits for an answer for so long.
    pub(super) async fn answered<T>(
        &self,
        time: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Trouble> {
        let asked = Instant::now();
        let answer = tokio::time::timeout(time, work).await;
        answer.map_err(|_| {
            // One that is slow and answers others is not gone.
            if !self.talk.has_answered_since(asked) {
                *self.gone.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now().into_std());
            }
            Trouble::Lost(StoreError::Unavailable("the database does not answer".into()))
        })
    }

    /// Hands out no more connections.
    pub(super) fn close(&self) {
        self.shared.pool.close();
        self.kept.pool.close();
    }

    /// Statements that were sent and awaited so far.
    pub(super) fn round_trips(&self) -> u64 {
        self.talk.round_trips()
    }
}

/// When the server was last taken to be gone.
type Gone = Arc<Mutex<Option<std::time::Instant>>>;

/// A part of the connections, which rests for itself.
struct Connections {
    pool: deadpool_postgres::Pool,
    resting: Mutex<Resting>,
}

impl Connections {
    fn new(options: &Options, most: usize, durable: bool, gone: &Gone) -> Result<Self, OpenError> {
        Ok(Self { pool: pool(options, most, durable, gone)?, resting: Mutex::default() })
    }

    async fn get(&self) -> Result<Object, StoreError> {
        if self.pool.status().available == 0 && !self.resting().is_over(Instant::now()) {
            return Err(StoreError::Unavailable("the database could not be reached a moment ago".into()));
        }
        let got = self.pool.get().await;
        match &got {
            // One that was there already says nothing about making one.
            Ok(object) if Object::metrics(object).recycle_count == 0 => *self.resting() = Resting::default(),
            Err(
                PoolError::Backend(_)
                | PoolError::PostCreateHook(_)
                | PoolError::Timeout(TimeoutType::Create),
            ) => self.resting().failed(Instant::now()),
            _ => {}
        }
        got.map_err(|error| match error {
            PoolError::Closed => StoreError::Closed,
            error => unavailable(error),
        })
    }

    fn resting(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// At most so many connections, each held to being durable if it is to be, and not used after the server was gone.
fn pool(
    options: &Options,
    most: usize,
    durable: bool,
    gone: &Gone,
) -> Result<deadpool_postgres::Pool, OpenError> {
    let config = config(options)?;
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match tls(options, &config)? {
        Some(tls) => Manager::from_config(config, tls, recycling),
        None => Manager::from_config(config, NoTls, recycling),
    };
    let settle_in = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
        Box::pin(async move {
            client.batch_execute(SESSION).await.map_err(HookError::Backend)?;
            // A server that took over from another is held to what the first one promised.
            match fitness(client).await.map_err(HookError::Backend)? {
                Fitness { is_read_only: true, .. } => Err(HookError::message("the database is read-only")),
                Fitness { durability: Durability::Relaxed(why), .. } if durable => {
                    tracing::error!(
                        why,
                        "a connection to a database that cannot keep the promise is not used"
                    );
                    Err(HookError::message(why))
                }
                _ => Ok(()),
            }
        })
    });
    let is_from_before = {
        let gone = Arc::clone(gone);
        Hook::sync_fn(move |_: &mut deadpool_postgres::ClientWrapper, metrics| {
            let gone = *gone.lock().unwrap_or_else(PoisonError::into_inner);
            if gone.is_some_and(|gone| metrics.created <= gone) {
                return Err(HookError::message("it got no answer"));
            }
            Ok(())
        })
    };
    let pool = deadpool_postgres::Pool::builder(manager)
        .max_size(most)
        .runtime(Runtime::Tokio1)
        .create_timeout(Some(CONNECT_MAX))
        .wait_timeout(Some(WAIT_MAX))
        .recycle_timeout(Some(CONNECT_MAX))
        .post_create(settle_in)
        .pre_recycle(is_from_before)
        .build();
    pool.map_err(|error| OpenError::Options(error.to_string()))
}

fn config(options: &Options) -> Result<tokio_postgres::Config, OpenError> {
    let mut config = parse(&options.url.0)?;
    config.application_name("snavio");
    config.connect_timeout(CONNECT_MAX);
    config.keepalives_idle(Duration::from_secs(15));
    config.tcp_user_timeout(Duration::from_secs(15));
    if options.ca_file.is_some() {
        // Whoever stands in between could otherwise say that the server has no TLS, and be believed.
        config.ssl_mode(SslMode::Require);
    }
    Ok(config)
}

/// Which database it is, by host and name: enough to find it, and nothing of its secrets.
pub(crate) fn place(options: &Options) -> Result<String, OpenError> {
    let config = parse(&options.url.0)?;
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let name = config.get_dbname().or(config.get_user()).unwrap_or_default();
    Ok(format!("PostgreSQL database {name:?} on {}", hosts.collect::<Vec<_>>().join(", ")))
}

/// Reads a URL. What tokio-postgres says about one that it cannot read names options, and an unwritten escape makes
/// options of a password's parts; so these are told apart first.
fn parse(url: &str) -> Result<tokio_postgres::Config, OpenError> {
    let because = |why: &str| Err(OpenError::Options(why.to_owned()));
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    if place.matches('@').count() > 1 {
        return because("store.url has more than one @; write %40 for one in the user's name or password");
    }
    if query.contains("sslmode=verify-") {
        return because(
            "set store.ca_file and leave sslmode out: connections are then encrypted, and certificate and name checked",
        );
    }
    match url.parse() {
        Err(_) if query.contains("password=") => {
            because("store.url cannot be read; write the password before the host, as user:password@host")
        }
        parsed => parsed.map_err(OpenError::Url),
    }
}

fn tls(options: &Options, config: &tokio_postgres::Config) -> Result<Option<MakeRustlsConnect>, OpenError> {
    let Some(file) = &options.ca_file else {
        return match config.get_ssl_mode() {
            SslMode::Disable | SslMode::Prefer => Ok(None),
            _ => Err(OpenError::Options(
                "sslmode=require needs store.ca_file, the certificates to trust".into(),
            )),
        };
    };
    let unusable = |error: &dyn std::fmt::Display| {
        OpenError::Options(format!("store.ca_file {} cannot be used: {error}", file.display()))
    };
    let mut trusted = rustls::RootCertStore::empty();
    for certificate in
        rustls_pki_types::pem::PemObject::pem_file_iter(file).map_err(|error| unusable(&error))?
    {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        trusted.add(certificate).map_err(|error| unusable(&error))?;
    }
    if trusted.is_empty() {
        return Err(unusable(&"it holds no certificate"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    Ok(Some(MakeRustlsConnect::new(config)))
}

/// A connection of one's own, for what must not share one: migrations.
pub(super) async fn connect(options: &Options) -> Result<Client, OpenError> {
    let config = config(options)?;
    match tls(options, &config)? {
        Some(tls) => shake_hands(&config, tls).await,
        None => shake_hands(&config, NoTls).await,
    }
}

async fn shake_hands<T>(config: &tokio_postgres::Config, tls: T) -> Result<Client, OpenError>
where
    T: MakeTlsConnect<Socket, Stream: Send + 'static>,
{
    let shaken = tokio::time::timeout(HANDSHAKE_MAX, config.connect(tls)).await;
    let (client, connection) = shaken.map_err(|_| OpenError::Silent(HANDSHAKE_MAX))??;
    tokio::spawn(connection);
    Ok(client)
}

/// What an error says about the statement that it answers.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nothing is known: the statement may have been done, and may still be under way.
    Lost(StoreError),
    /// It was not done because of what others did at the same time: it may be tried again.
    Crossed(StoreError),
    /// It was not done: a row of this key is there already.
    Taken,
    /// It was not done, and never will be: a value in it is none that the engine can hold.
    Unfit(StoreError),
    /// It was not done.
    Refused(StoreError),
}

impl Trouble {
    pub(super) fn of(error: tokio_postgres::Error) -> Self {
        // Whatever the server did not say itself leaves open what it did.
        let Some(code) = error.as_db_error().map(DbError::code) else {
            return Self::Lost(unavailable(error));
        };
        match (code.code().get(..2), code) {
            (_, &SqlState::UNIQUE_VIOLATION) => Self::Taken,
            (_, &SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN) => Self::Lost(unavailable(error)),
            (Some("40"), _) | (_, &SqlState::LOCK_NOT_AVAILABLE | &SqlState::QUERY_CANCELED) => {
                Self::Crossed(unavailable(error))
            }
            // The server is going down, or this connection is: a commit may have come before it.
            (Some("57" | "08" | "XX" | "58"), _) => Self::Lost(unavailable(error)),
            // A value that is none for its column. Other faults of the kind are the database's, not the message's.
            (
                _,
                &SqlState::CHARACTER_NOT_IN_REPERTOIRE
                | &SqlState::UNTRANSLATABLE_CHARACTER
                | &SqlState::STRING_DATA_RIGHT_TRUNCATION
                | &SqlState::NUMERIC_VALUE_OUT_OF_RANGE
                | &SqlState::PROGRAM_LIMIT_EXCEEDED,
            ) => Self::Unfit(unavailable(error)),
            _ => Self::Refused(unavailable(error)),
        }
    }

    /// The same of something that wrote nothing.
    pub(super) fn not_in_doubt(self) -> Self {
        match self {
            Self::Lost(StoreError::Lost(inner)) | Self::Refused(StoreError::Lost(inner)) => {
                Self::Refused(StoreError::Unavailable(inner))
            }
            Self::Lost(error) => Self::Refused(error),
            other => other,
        }
    }

    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Lost(error) => StoreError::Lost(Box::new(error)),
            Self::Crossed(error) | Self::Unfit(error) | Self::Refused(error) => error,
            Self::Taken => StoreError::Unavailable("a row of this key is there already".into()),
        }
    }
}

pub(super) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}

/// What a failed statement means to whoever asked for it.
pub(super) fn sql(error: tokio_postgres::Error) -> StoreError {
    Trouble::of(error).into_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENG-3
    #[test]
    fn a_url_that_cannot_be_read_is_told_with_its_cause_and_without_its_password() {
        for (url, words) in [
            ("postgres://me:s3cret@db/snavio?sslmod=require", "unknown option `sslmod`"),
            ("postgres://me:s3cret@db:54x32/snavio", "invalid value for option `port`"),
            ("postgres://me:s3cret@db/snavio?sslmode=sometimes", "invalid value for option `sslmode`"),
            ("postgres://me:s3cret@db/snavio?sslmode=verify-full", "set store.ca_file and leave sslmode out"),
            ("postgres://me:s3cret@db/snavio?sslmode=verify-ca", "set store.ca_file and leave sslmode out"),
            ("postgres://me:a@s3cret@db/snavio", "write %40"),
            ("postgres://me@db/snavio?password=a&s3cret=b", "before the host"),
        ] {
            let error = parse(url).expect_err(url);
            let cause = std::error::Error::source(&error).and_then(std::error::Error::source);
            let said = format!("{error}: {}", cause.map(ToString::to_string).unwrap_or_default());
            assert!(said.contains(words) && !said.contains("s3cret"), "{url}: {said}");
        }
        assert!(parse("postgres://me:s3%40cret@db/snavio?sslmode=require").is_ok());
    }

    /// ENG-3
    #[test]
    fn connecting_rests_longer_after_each_failure_up_to_a_second() {
        let mut resting = Resting::default();
        let mut now = Instant::now();
        let mut rests = Vec::new();
        for _ in 0..7 {
            assert!(resting.is_over(now));
            resting.failed(now);
            resting.failed(now);
            let rested = resting.until.unwrap() - now;
            assert!(!resting.is_over(now + rested - Duration::from_millis(1)));
            rests.push(rested.as_millis());
            now += rested;
        }
        assert_eq!(rests, [50, 100, 200, 400, 800, 1000, 1000]);
    }
}
