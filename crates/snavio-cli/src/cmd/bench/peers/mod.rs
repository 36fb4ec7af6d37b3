//! The peers: other systems to compare with. The bench installs each if needed, starts it on a free port in a
//! temporary folder, and sends it the equivalent of a durable insert-if-absent.

pub(super) mod nats;
pub(super) mod postgres;
pub(super) mod redis;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::load::{Load, Wire};
use super::machine::LoadWatch;
use super::process::ServerProcess;
use super::round::{Round, divide};
use super::scenario::run_load;
use super::{clock, machine, messages};
use crate::cmd::Failure;

/// The longest time from the start of a peer until it listens.
const START_MAX: Duration = Duration::from_secs(30);
/// The length of the trial of each client of a peer. The faster client then runs the rounds.
pub(super) const TRIAL: Duration = Duration::from_secs(1);

/// A system to compare with.
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

/// The server of a peer, with its process, folder and address.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    process: ServerProcess,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Waits until the process listens.
    pub(super) fn of(
        process: ServerProcess,
        folder: tempfile::TempDir,
        address: SocketAddr,
    ) -> Result<Self, Failure> {
        let until = clock::now() + START_MAX;
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if clock::now() > until {
                return Err(Failure::new(format!(
                    "the server does not listen on {address} after {} s",
                    START_MAX.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { address, process, _folder: folder })
    }

    /// Measures one round with the load generator of the bench.
    pub(super) async fn round<W: Wire + 'static>(
        &self,
        connections: usize,
        time: Duration,
        wire: W,
    ) -> Result<Round, Failure> {
        round(self.address, self.process.pid(), connections, time, wire).await
    }
}

/// Measures one round of a server with the load generator of the bench.
async fn round<W: Wire + 'static>(
    address: SocketAddr,
    pid: u32,
    connections: usize,
    time: Duration,
    wire: W,
) -> Result<Round, Failure> {
    let load = Load { addresses: vec![address], connections, time, pace: None, stop: None };
    let (used, watch) = (machine::family_time(&[pid]), LoadWatch::start());
    let (result, _) = run_load(load, wire).await?;
    let mut round = Round::from_load(&result);
    round.busy = watch.busy();
    let used = machine::family_time(&[pid]).saturating_sub(used);
    round.server_micros_per_message = divide(used.as_secs_f64() * 1e6, round.messages);
    if round.accepted == 0 {
        return Err(Failure::new(format!("the peer accepted no message: {:?}", round.refused)));
    }
    Ok(round)
}

pub(super) fn make_folder() -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("snavio-bench-").tempdir()
}

/// An address with a free port.
pub(super) fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Makes new ids like those of the messages to Snavio.
pub(super) struct NewIds {
    ids: messages::Ids,
    bits: messages::RandomBits,
}

impl NewIds {
    pub(super) fn new(ids: messages::Ids) -> Self {
        Self { ids, bits: messages::RandomBits::new() }
    }

    pub(super) fn next(&mut self) -> uuid::Uuid {
        let millis = u64::try_from(clock::wall().0).unwrap_or(0);
        self.ids.make(millis, &mut self.bits)
    }
}
