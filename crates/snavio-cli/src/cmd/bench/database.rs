//! A PostgreSQL server that the bench installs if needed, starts in a temporary folder, and ends with itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use snavio_testbed::Postgres;

use super::process::Background;
use super::scenario::run_blocking;
use super::{install, machine};
use crate::cmd::Failure;

/// A running server.
pub(super) struct Database {
    server: Arc<Postgres>,
    process: Background,
}

impl Database {
    /// Starts a server with these settings in addition to the usual ones.
    pub(super) async fn start(settings: &'static [&'static str]) -> Result<Self, Failure> {
        let start = move || {
            install::program("initdb", "postgresql")?;
            let server = Postgres::start(settings)?;
            let pid = server.pid().ok_or_else(|| Failure::new("PostgreSQL ended at once"))?;
            Ok(Self { server: Arc::new(server), process: Background::of(pid) })
        };
        run_blocking(start).await?
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.server.port()).into()
    }

    /// The settings of the server, on one line.
    pub(super) fn settings(&self) -> String {
        self.server.settings().join(", ")
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Processor time of all processes of the server.
    pub(super) fn processor_time(&self) -> Duration {
        machine::family_time(&[self.pid()])
    }

    pub(super) fn url(&self, name: &str) -> String {
        self.server.url(name)
    }

    /// Makes an empty database.
    pub(super) async fn make(&self, name: &str) -> Result<(), Failure> {
        self.query("postgres", format!("CREATE DATABASE {name}")).await.map(|_| ())
    }

    /// Runs statements in a database and returns their output.
    pub(super) async fn query(
        &self,
        name: &'static str,
        statements: impl Into<String>,
    ) -> Result<String, Failure> {
        let (server, statements) = (Arc::clone(&self.server), statements.into());
        Ok(run_blocking(move || server.ask(name, &statements)).await??)
    }
}
