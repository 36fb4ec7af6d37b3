//! `snavio serve`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use snavio_server::Node;
use snavio_server::config::{Config, Sources};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::configuration::sources;
use crate::output::print_text;
use crate::{CommandResult, log};

/// Run a node.
///
/// Without any configuration the node uses an embedded store in ./snavio-data and listens on 127.0.0.1:8080.
/// On its first start it makes a platform key and an operator token.
#[derive(Args)]
#[command(after_help = "Example: snavio serve
Example: snavio serve --listen 127.0.0.1:9000 --data /var/lib/snavio
Example: snavio serve --store postgres://snavio@db.internal/snavio
Example: snavio serve --config /etc/snavio/snavio.toml --print-config")]
pub(crate) struct Serve {
    /// The configuration file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The address and port to listen on (sets server.listen).
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// The data folder of an embedded store (sets store.url to embedded:<folder>).
    #[arg(long, conflicts_with = "store")]
    data: Option<String>,
    /// The URL of the store (sets store.url), for example postgres://snavio@db.internal/snavio.
    #[arg(long)]
    store: Option<String>,
    /// The log filter (sets log.filter), for example info,snavio::message=debug.
    #[arg(long)]
    log: Option<String>,
    /// Print the effective configuration and exit.
    #[arg(long)]
    print_config: bool,
    /// Start although the clocks disagree.
    ///
    /// Over an embedded store the node then uses the wall clock, even if it is an hour or more behind the
    /// last commit of the store. Over a database it uses the clock of the database, even if the wall clock is
    /// more than 30 seconds away from it.
    #[arg(long)]
    accept_clock: bool,
}

impl Serve {
    pub(crate) async fn run(self) -> CommandResult {
        let sources = self.sources()?;
        if self.print_config {
            print_text(&sources.shown()?.to_string());
            return Ok(());
        }
        let config = Config::load(&sources)?;
        let log = log::start(&config)?;
        tokio::spawn(log.clone().keep_flushing());
        disable_huge_pages();
        let node = Node::start(&config, self.accept_clock, planted_bug()).await?;
        let stop = StopSignals::listen()?;
        let scheme = if config.server.tls.is_some() { "https" } else { "http" };
        print_if_read(&format!(
            "snavio {} is serving {scheme}://{}\noperator token: {}\n",
            env!("CARGO_PKG_VERSION"),
            node.address(),
            config.operator_token_file.display()
        ));
        let outdated = tokio::select! {
            () = stop.wait() => false,
            () = node.outdated() => true,
        };
        tracing::info!("stopping: finishing requests in progress");
        node.stop().await;
        log.flush();
        if outdated {
            return Err(Failure::new(
                "another node has upgraded the store to a layout that this version does not know; upgrade this one",
            ));
        }
        Ok(())
    }

    fn sources(&self) -> Result<Sources, Failure> {
        let flags = [
            ("server.listen", self.listen.map(|address| address.to_string())),
            ("store.url", self.store.clone().or_else(|| Some(format!("embedded:{}", self.data.as_ref()?)))),
            ("log.filter", self.log.clone()),
        ];
        sources(self.config.as_deref(), flags)
    }
}

/// Prints a text and ignores a failure to write it: a node must not end because its output is closed.
pub(crate) fn print_if_read(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Disables transparent huge pages. With them a heap of small, short-lived objects grows without end, since
/// one live byte keeps a page of two MiB.
fn disable_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "cannot disable huge pages: memory use may grow by a third");
    }
}

/// SIGTERM and SIGINT. A node listens for them before it prints that it serves: a signal that arrives right
/// after that line must stop the node in order, not kill it.
pub(crate) struct StopSignals {
    term: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(crate) async fn wait(mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The known bug that a test build has if SNAVIO_PLANT names one: it proves that the tests notice the bug.
#[cfg(feature = "plant")]
fn planted_bug() -> Option<snavio_server::Plant> {
    match std::env::var("SNAVIO_PLANT").ok()?.as_str() {
        "acknowledge-before-commit" => Some(snavio_server::Plant::AcknowledgeBeforeCommit),
        "skip-flush" => Some(snavio_server::Plant::SkipFlush),
        _ => None,
    }
}

#[cfg(not(feature = "plant"))]
fn planted_bug() -> Option<snavio_server::Plant> {
    None
}
