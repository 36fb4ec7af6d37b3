//! Redis: `SET key value NX EX 300` with an append-only file.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use async_trait::async_trait;

use super::super::contest::Contestant;
use super::super::install;
use super::super::latency::Percentiles;
use super::super::load::{Tally, Wire};
use super::super::machine::LoadWatch;
use super::super::messages::{Ids, payload};
use super::super::process::ServerProcess;
use super::super::round::Round;
use super::super::scenario::run_blocking;
use super::{NewIds, Server, TRIAL, free_address, make_folder};
use crate::cmd::Failure;

/// The range of keys for redis-benchmark: close to the maximum of its counter.
const KEYS: &str = "2000000000";

/// When the server flushes its append-only file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Flush {
    Always,
    EverySecond,
}

impl Flush {
    fn setting(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
        }
    }
}

/// A Redis under load.
pub(in super::super) struct Redis {
    server: Server,
    flush: Flush,
    ids: Ids,
    payload: Vec<u8>,
    connections: usize,
    time: Duration,
    /// Messages a second with the bench's client and with redis-benchmark, measured at the start.
    tried: (f64, f64),
}

impl Redis {
    pub(in super::super) async fn start(
        flush: Flush,
        ids: Ids,
        payload_bytes: usize,
        connections: usize,
        time: Duration,
    ) -> Result<Self, Failure> {
        let program = install::program("redis-server", "redis-server")?;
        let (folder, address) = (make_folder()?, free_address()?);
        let port = address.port().to_string();
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "yes"]);
        command.args(["--appendfsync", flush.setting(), "--dir"]).arg(folder.path());
        let server = Server::of(ServerProcess::start(&mut command)?, folder, address)?;
        let payload = payload(payload_bytes);
        let mut redis = Self { server, flush, ids, payload, connections, time, tried: (0.0, 0.0) };
        let ours = redis.with_our_client(TRIAL.min(time)).await?.per_second;
        let theirs = redis.try_their_client((ours * TRIAL.min(time).as_secs_f64()) as u64).await?;
        redis.tried = (ours, theirs);
        Ok(redis)
    }

    async fn with_our_client(&self, time: Duration) -> Result<Round, Failure> {
        let wire = SetIfAbsent { ids: NewIds::new(self.ids), payload: self.payload.clone() };
        self.server.round(self.connections, time, wire).await
    }

    /// The rate of redis-benchmark, or 0 if fewer keys exist afterwards than it claims to have set: it counts
    /// a request that set no key like one that did.
    async fn try_their_client(&self, requests: u64) -> Result<f64, Failure> {
        let address = self.server.address;
        let before = run_blocking(move || count_keys(address)).await??;
        let round = self.with_their_client(requests).await?;
        let set = run_blocking(move || count_keys(address)).await??.saturating_sub(before);
        Ok(if set * 100 >= round.messages * 99 { round.per_second } else { 0.0 })
    }

    async fn with_their_client(&self, requests: u64) -> Result<Round, Failure> {
        let payload = String::from_utf8_lossy(&self.payload).into_owned();
        let mut command = Command::new(install::program("redis-benchmark", "redis-tools")?);
        command.args(["-h", "127.0.0.1", "-p", &self.server.address.port().to_string(), "--csv"]);
        command.args(["-c", &self.connections.to_string(), "-n", &requests.max(1000).to_string()]);
        command.args(["-r", KEYS, "SET", "__rand_int__", &payload, "NX", "EX", "300"]);
        let watch = LoadWatch::start();
        let csv = run_blocking(move || install::run(&mut command)).await??;
        let mut round = read_csv(&csv, requests.max(1000))
            .ok_or_else(|| Failure::new(format!("cannot read the output of redis-benchmark: {csv}")))?;
        round.busy = watch.busy();
        Ok(round)
    }
}

fn count_keys(address: SocketAddr) -> Result<u64, Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"DBSIZE\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let count = line.trim().strip_prefix(':').and_then(|count| count.parse().ok());
    count.ok_or_else(|| Failure::new(format!("cannot read the answer to DBSIZE: {line}")))
}

/// Reads `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95…","p99…","max…"`.
fn read_csv(text: &str, requests: u64) -> Option<Round> {
    let line = text.lines().rfind(|line| line.starts_with('"') && !line.contains("rps"))?;
    // The first column is the command, which may contain commas. The figures are the last seven columns.
    let mut fields = line.rsplitn(8, "\",\"").map(|field| field.trim_matches('"').parse::<f64>().ok());
    let mut next = || fields.next().flatten();
    let micros = |millis: f64| (millis * 1000.0) as u64;
    let (max, p99, _p95, p50) = (micros(next()?), micros(next()?), next()?, micros(next()?));
    let (_min, _mean, per_second) = (next()?, next()?, next()?);
    Some(Round {
        seconds: requests as f64 / per_second,
        messages: requests,
        accepted: requests,
        per_second,
        latency_micros: Percentiles { p50, p99, max, ..Percentiles::default() },
        ..Round::default()
    })
}

#[async_trait]
impl Contestant for Redis {
    fn what(&self) -> String {
        format!("Redis, SET NX EX, appendfsync {}", self.flush.setting())
    }

    fn how(&self) -> String {
        let (ours, theirs) = self.tried;
        let used = if ours >= theirs { "our client" } else { "redis-benchmark" };
        format!(
            "appendonly yes, appendfsync {}, save '', {} connections; driven by {used} (tried: ours {ours:.0}, redis-benchmark {theirs:.0} a second)",
            self.flush.setting(),
            self.connections
        )
    }

    async fn round(&mut self) -> Result<Round, Failure> {
        let (ours, theirs) = self.tried;
        if ours >= theirs {
            return self.with_our_client(self.time).await;
        }
        self.with_their_client((theirs * self.time.as_secs_f64()) as u64).await
    }
}

/// The client side of `SET … NX EX 300` over the Redis protocol.
struct SetIfAbsent {
    ids: NewIds,
    payload: Vec<u8>,
}

impl Wire for SetIfAbsent {
    fn request(&mut self, _: usize, out: &mut Vec<u8>) -> bool {
        let mut buffer = uuid::Uuid::encode_buffer();
        let id: &str = self.ids.next().hyphenated().encode_lower(&mut buffer);
        out.extend_from_slice(b"*6\r\n$3\r\nSET\r\n$36\r\n");
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(format!("\r\n${}\r\n", self.payload.len()).as_bytes());
        out.extend_from_slice(&self.payload);
        out.extend_from_slice(b"\r\n$2\r\nNX\r\n$2\r\nEX\r\n$3\r\n300\r\n");
        true
    }

    fn answer(&mut self, _: usize, received: &[u8], tally: &mut Tally) -> std::io::Result<Option<usize>> {
        let Some(end) = received.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        match &received[..end] {
            b"+OK" => tally.count(202, 1),
            b"$-1" => tally.count(200, 1),
            _ => tally.count(500, 1),
        }
        Ok(Some(end + 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmark_figures_are_the_last_columns() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET k {\"a\",\"b\"} NX\",\"39000.5\",\"1.1\",\"0.2\",\"1.0\",\"2.0\",\"3.5\",\"9.9\"\n";
        let round = read_csv(text, 39_000).unwrap();
        assert_eq!(
            (round.per_second, round.latency_micros.p50, round.latency_micros.p99),
            (39000.5, 1000, 3500)
        );
    }
}
