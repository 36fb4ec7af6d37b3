//! The memory parts: under full load over time, and with many idle connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use super::messages::Ids;
use super::node::Policy;
use super::round::Spread;
use super::scenario::{Cell, Driver, run_blocking};
use super::{clock, machine};
use crate::cmd::Failure;

/// The interval between two samples of the server's memory.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// The most samples in the periods at the start and at the end, which are compared.
const STRETCH_SAMPLES: usize = 60;
/// Connections that empty the queue between two rounds, so that memory does not grow by waiting deliveries.
const CONSUMERS: usize = 16;
/// Open files of the bench and of the server other than these connections.
const OTHER_FILES: u64 = 1_000;

/// The server's resident memory under load, in MiB.
#[derive(Debug, Serialize)]
pub(super) struct MemoryOverTime {
    pub(super) seconds: f64,
    pub(super) messages: u64,
    pub(super) at_start_mib: f64,
    pub(super) first: Spread,
    pub(super) last: Spread,
    /// The number of samples in `first` and in `last`.
    pub(super) stretch_samples: usize,
    pub(super) samples_mib: Vec<f64>,
}

/// Loads the node for `time`. After each round it consumes the waiting deliveries.
pub(super) async fn measure_over_time(
    driver: &mut Driver,
    time: Duration,
) -> Result<MemoryOverTime, Failure> {
    let pid = driver.target.pid().ok_or_else(unknown_process)?;
    let at_start = resident_mib(pid)?;
    let cell = Cell { policy: Policy::Strict, batch: 10, connections: 64, ids: Ids::Ordered, consume: true };
    let stop = Arc::new(AtomicBool::new(false));
    let sampler = tokio::spawn(sample(pid, Arc::clone(&stop)));
    let began = clock::now();
    let mut messages = 0;
    while began.elapsed() < time {
        messages += driver.round(&cell).await?.accepted;
        driver.consume(cell.policy, CONSUMERS).await?;
    }
    stop.store(true, Ordering::Relaxed);
    let samples = sampler.await.map_err(|error| Failure::caused_by("memory was not sampled", &error))?;
    let stretch = STRETCH_SAMPLES.min(samples.len() / 4).max(1).min(samples.len());
    let spread = |samples: &[f64]| Spread::of(samples.iter().copied()).unwrap_or_default();
    Ok(MemoryOverTime {
        seconds: began.elapsed().as_secs_f64(),
        messages,
        at_start_mib: at_start,
        first: spread(&samples[..stretch]),
        last: spread(&samples[samples.len() - stretch..]),
        stretch_samples: stretch,
        samples_mib: samples,
    })
}

fn unknown_process() -> Failure {
    Failure::new("the process of the node at --url is not known: give its id with --server-pid")
}

async fn sample(pid: u32, stop: Arc<AtomicBool>) -> Vec<f64> {
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        samples.extend(resident_mib(pid).ok());
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
    samples
}

fn resident_mib(pid: u32) -> Result<f64, Failure> {
    let bytes = machine::resident_bytes(pid);
    let bytes = bytes.ok_or_else(|| Failure::new(format!("the server process {pid} has ended")))?;
    Ok(bytes as f64 / f64::from(1 << 20))
}

/// The memory of idle connections.
#[derive(Debug, Serialize)]
pub(super) struct IdleConnections {
    pub(super) connections: usize,
    /// The number of connections that were still open at the end.
    pub(super) open: usize,
    pub(super) before_mib: f64,
    pub(super) with_mib: f64,
    pub(super) kib_per_connection: f64,
}

/// Raises the limit on open files of this process, and of the servers that it starts afterwards, for `count`
/// connections.
pub(super) fn allow_connections(count: usize) -> Result<(), Failure> {
    let wanted = count as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|most| most < wanted) {
        return Err(Failure::new(format!(
            "{count} connections need {wanted} open files, which is above the hard limit: raise it (ulimit -Hn {wanted})"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    Ok(())
}

/// Opens connections that send one request for `/livez` and then stay idle.
pub(super) async fn measure_idle_connections(
    driver: &Driver,
    count: usize,
) -> Result<IdleConnections, Failure> {
    let pid = driver.target.pid().ok_or_else(unknown_process)?;
    let before = resident_mib(pid)?;
    let (address, host) = (driver.target.address, driver.target.host.clone());
    let open = move || (0..count).map(|_| open_idle(address, &host)).collect::<std::io::Result<Vec<_>>>();
    let streams = run_blocking(open).await?;
    let streams =
        streams.map_err(|error| Failure::caused_by(format!("cannot open {count} connections"), &error))?;
    tokio::time::sleep(SAMPLE_EVERY).await;
    let with = resident_mib(pid)?;
    let open = streams.iter().filter(|stream| is_open(stream)).count();
    Ok(IdleConnections {
        connections: count,
        open,
        before_mib: before,
        with_mib: with,
        kib_per_connection: (with - before) * 1024.0 / count.max(1) as f64,
    })
}

fn open_idle(address: std::net::SocketAddr, host: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("GET /livez HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes())?;
    let mut received = Vec::new();
    while super::http::answer(&received)?.is_none() {
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&buffer[..count]);
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn is_open(stream: &TcpStream) -> bool {
    let waiting = stream.peek(&mut [0]);
    waiting.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}
