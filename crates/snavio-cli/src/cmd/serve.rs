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
use crate::{Ended, log};

/// Run a node.
///
/// Without any configuration: an embedded store in ./snavio-data, listening on 127.0.0.1:8080, a platform key
/// and an operator token made on first start.
///
/// Example: snavio serve --listen 127.0.0.1:9000 --data /var/lib/snavio
///
/// Example: snavio serve --store postgres://snavio@db.internal/snavio
#[derive(Args)]
pub(crate) struct Serve {
    /// The configuration file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where to listen (server.listen), as address:port.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// The data folder (store.url = embedded:<folder>).
    #[arg(long, conflicts_with = "store")]
    data: Option<String>,
    /// The engine (store.url), for example postgres://snavio@db.internal/snavio.
    #[arg(long)]
    store: Option<String>,
    /// What to log (log.filter), for example info,snavio::message=debug.
    #[arg(long)]
    log: Option<String>,
    /// Print the effective configuration and end.
    #[arg(long)]
    print_config: bool,
    /// Go by the wall clock although it is behind the store's last commit, needed when it is so by an hour; over a
    /// database go by its clock although the wall clock is more than 30 seconds away.
    #[arg(long)]
    accept_clock: bool,
}

impl Serve {
    pub(crate) async fn run(self) -> Ended {
        let sources = self.sources()?;
        if self.print_config {
            print_text(&sources.shown()?.to_string());
            return Ok(());
        }
        let config = Config::load(&sources)?;
        let log = log::start(&config)?;
        tokio::spawn(log.clone().keep_flushing());
        without_huge_pages();
        let node = Node::start(&config, self.accept_clock, planted()).await?;
        let stop = StopSignals::listen()?;
        let scheme = if config.server.tls.is_some() { "https" } else { "http" };
        say(&format!(
            "snavio {} is serving {scheme}://{}\noperator token: {}\n",
            env!("CARGO_PKG_VERSION"),
            node.address(),
            config.operator_token_file.display()
        ));
        let outdated = tokio::select! {
            () = stop.wait() => false,
            () = node.outdated() => true,
        };
        tracing::info!("stopping: finishing what is under way");
        node.stop().await;
        log.flush();
        if outdated {
            return Err(Failure::new(
                "another node has brought the store to a layout that this version does not know; upgrade this one",
            ));
        }
        Ok(())
    }

    fn sources(&self) -> Result<Sources, Failure> {
        let flags = [
            ("server.listen", self.listen.map(|it| it.to_string())),
            ("store.url", self.store.clone().or_else(|| Some(format!("embedded:{}", self.data.as_ref()?)))),
            ("log.filter", self.log.clone()),
        ];
        sources(self.config.as_deref(), flags)
    }
}

/// Prints to whoever still reads: a node must not end because nobody does.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Huge pages make a heap of small, short-lived things grow without end: one live byte keeps two MiB.
fn without_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "huge pages stay on: memory may grow by a third");
    }
}

/// What tells a process to stop. Listened for before a node says that it serves: whoever stops it at once must
/// not kill it.
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

/// A test build can be told to have a known bug, so that the tests prove they would notice it.
#[cfg(feature = "plant")]
fn planted() -> Option<snavio_server::Plant> {
    match std::env::var("SNAVIO_PLANT").ok()?.as_str() {
        "acknowledge-before-commit" => Some(snavio_server::Plant::AcknowledgeBeforeCommit),
        "skip-flush" => Some(snavio_server::Plant::SkipFlush),
        _ => None,
    }
}

#[cfg(not(feature = "plant"))]
fn planted() -> Option<snavio_server::Plant> {
    None
}
