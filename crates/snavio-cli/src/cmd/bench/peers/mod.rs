//! The peers: each is installed if missing, started on a free port in a temporary folder, and driven with its
//! equivalent of a durable insert-if-absent.

pub(super) mod nats;
pub(super) mod postgres;
pub(super) mod redis;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::load::{Load, Wire};
use super::machine::Watch;
use super::process::Running;
use super::round::{Round, per};
use super::scenario::run_apart;
use super::{clock, machine, messages};
use crate::cmd::Failure;

/// How long a peer may take to listen.
const START_MAX: Duration = Duration::from_secs(30);
/// How long both clients of a peer are tried, to use the faster one.
pub(super) const TRIAL: Duration = Duration::from_secs(1);

/// What ours is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Peer {
    /// `SET NX EX`, flushed always and every second.
    Redis,
    /// JetStream, deduplicated by message id, flushed always and by its default.
    Nats,
    /// `INSERT … ON CONFLICT DO NOTHING`, single and in batches.
    Postgres,
}

impl Peer {
    pub(super) const ALL: [Self; 3] = [Self::Redis, Self::Nats, Self::Postgres];
}

/// A peer's server: its process, its folder, where it listens.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    process: Running,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Waits until the process listens.
    pub(super) fn of(
        process: Running,
        folder: tempfile::TempDir,
        address: SocketAddr,
    ) -> Result<Self, Failure> {
        let until = clock::now() + START_MAX;
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if clock::now() > until {
                return Err(Failure::new(format!("nothing listens on {address}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { address, process, _folder: folder })
    }

    /// One round with our own client.
    pub(super) async fn round<W: Wire + 'static>(
        &self,
        connections: usize,
        time: Duration,
        wire: W,
    ) -> Result<Round, Failure> {
        round(self.address, self.process.pid(), connections, time, wire).await
    }
}

/// One round of a server with our own client.
async fn round<W: Wire + 'static>(
    address: SocketAddr,
    pid: u32,
    connections: usize,
    time: Duration,
    wire: W,
) -> Result<Round, Failure> {
    let load = Load { addresses: vec![address], connections, time, pace: None, stop: None };
    let (used, watch) = (machine::family_time(&[pid]), Watch::start());
    let (ran, _) = run_apart(load, wire).await?;
    let mut round = Round::of(&ran);
    round.busy = watch.busy();
    let used = machine::family_time(&[pid]).saturating_sub(used);
    round.server_micros_per_message = per(used.as_secs_f64() * 1e6, round.messages);
    if round.accepted == 0 {
        return Err(Failure::new(format!("the peer took nothing: {:?}", round.refused)));
    }
    Ok(round)
}

/// A folder for a peer's data.
pub(super) fn folder() -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("snavio-bench-").tempdir()
}

/// An address that nobody listens on.
pub(super) fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// New ids, as our own messages have them.
pub(super) struct NewIds {
    ids: messages::Ids,
    bits: messages::Bits,
}

impl NewIds {
    pub(super) fn new(ids: messages::Ids) -> Self {
        Self { ids, bits: messages::Bits::new() }
    }

    pub(super) fn next(&mut self) -> uuid::Uuid {
        let millis = u64::try_from(clock::wall().0).unwrap_or(0);
        self.ids.make(millis, &mut self.bits)
    }
}
