//! Connections to PostgreSQL, and what its errors mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, PoolError, RecyclingMethod, Runtime};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::client;
use super::{OpenError, Options};
use crate::StoreError;

/// How long making a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long a caller may wait for a connection that others use.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Bounds of the server's patience: no statement here takes nearly as long while all is well, and what the server
/// gives up is told from what it did.
const SESSION: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '15s'; SET client_min_messages = 'error'";

/// The pool, by what it is asked for.
#[derive(Clone)]
pub(super) struct Pool {
    pool: deadpool_postgres::Pool,
    round_trips: Arc<AtomicU64>,
}

impl Pool {
    pub(super) fn new(options: &Options) -> Result<Self, OpenError> {
        let config = config(options)?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match tls(options, &config)? {
            Some(tls) => Manager::from_config(config, tls, recycling),
            None => Manager::from_config(config, NoTls, recycling),
        };
        let settle_in = Hook::async_fn(|client: &mut deadpool_postgres::ClientWrapper, _| {
            Box::pin(async move { client.batch_execute(SESSION).await.map_err(HookError::Backend) })
        });
        let pool = deadpool_postgres::Pool::builder(manager)
            .max_size(options.connections_max)
            .runtime(Runtime::Tokio1)
            .create_timeout(Some(CONNECT_MAX))
            .wait_timeout(Some(WAIT_MAX))
            .recycle_timeout(Some(CONNECT_MAX))
            .post_create(settle_in)
            .build();
        let pool = pool.map_err(|error| OpenError::Options(error.to_string()))?;
        Ok(Self { pool, round_trips: Arc::default() })
    }

    /// A connection, new or used before.
    pub(super) async fn get(&self) -> Result<client::Client, StoreError> {
        let object = self.pool.get().await.map_err(|error| match error {
            PoolError::Closed => StoreError::Closed,
            error => unavailable(error),
        })?;
        Ok(client::Client::new(object, &self.round_trips))
    }

    /// Hands out no more connections.
    pub(super) fn close(&self) {
        self.pool.close();
    }

    /// Statements that were sent and awaited so far.
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }
}

fn config(options: &Options) -> Result<tokio_postgres::Config, OpenError> {
    let parsed: Result<tokio_postgres::Config, _> = options.url.parse();
    let mut config = parsed.map_err(|error| OpenError::Options(error.to_string()))?;
    config.application_name("snavio");
    config.connect_timeout(CONNECT_MAX);
    config.keepalives_idle(Duration::from_secs(15));
    config.tcp_user_timeout(Duration::from_secs(15));
    Ok(config)
}

fn tls(options: &Options, config: &tokio_postgres::Config) -> Result<Option<MakeRustlsConnect>, OpenError> {
    let Some(file) = &options.ca_file else {
        return match config.get_ssl_mode() {
            SslMode::Disable | SslMode::Prefer => Ok(None),
            _ => Err(OpenError::Options("sslmode=require needs store.ca_file, the certificates to trust".into())),
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
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
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
    let client = match tls(options, &config)? {
        Some(tls) => {
            let (client, connection) = config.connect(tls).await?;
            tokio::spawn(connection);
            client
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            client
        }
    };
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
        let Some(code) = error.as_db_error().map(DbError::code) else {
            // An argument that does not fit its parameter is found out before anything is sent.
            return if error.is_closed() || std::error::Error::source(&error).is_some_and(is_of_the_wire) {
                Self::Lost(unavailable(error))
            } else {
                Self::Refused(unavailable(error))
            };
        };
        match (code.code().get(..2), code) {
            (_, &SqlState::UNIQUE_VIOLATION) => Self::Taken,
            (Some("40"), _) | (_, &SqlState::LOCK_NOT_AVAILABLE | &SqlState::QUERY_CANCELED) => {
                Self::Crossed(unavailable(error))
            }
            // The server is going down, or this connection is: a commit may have come before it.
            (Some("57" | "08" | "XX" | "58"), _) => Self::Lost(unavailable(error)),
            (Some("22" | "23" | "54"), _) => Self::Unfit(unavailable(error)),
            _ => Self::Refused(unavailable(error)),
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

fn is_of_the_wire(source: &(dyn std::error::Error + 'static)) -> bool {
    source.is::<std::io::Error>()
}

pub(super) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}

/// What a failed statement means where nothing hangs on the difference.
pub(super) fn sql(error: tokio_postgres::Error) -> StoreError {
    unavailable(error)
}
