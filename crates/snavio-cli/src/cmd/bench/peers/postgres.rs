//! PostgreSQL: `INSERT … ON CONFLICT DO NOTHING` into a bare table, prepared, single or in batches.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use async_trait::async_trait;

use super::super::contest::Contestant;
use super::super::database::Database;
use super::super::load::{Tally, Wire};
use super::super::messages::{Ids, payload};
use super::super::pgbench::{Inserts, TABLE};
use super::super::round::Round;
use super::{NewIds, TRIAL};
use crate::cmd::Failure;

/// Settings that differ from the defaults. None of them makes a commit less durable.
const SETTINGS: [&str; 2] = ["max_connections=200", "shared_buffers=512MB"];
const SINGLE: &str = "INSERT INTO claim (id, payload) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const BATCH: &str =
    "INSERT INTO claim (id, payload) SELECT * FROM unnest($1::uuid[], $2::text[]) ON CONFLICT DO NOTHING";

/// A PostgreSQL under load.
pub(in super::super) struct Postgres {
    server: Database,
    ids: Ids,
    inserts: Inserts,
    time: Duration,
    /// Rows a second with the bench's client and with pgbench, measured at the start.
    tried: (f64, f64),
}

impl Postgres {
    pub(in super::super) async fn start(
        ids: Ids,
        payload_bytes: usize,
        batch: usize,
        connections: usize,
        time: Duration,
    ) -> Result<Self, Failure> {
        let server = Database::start(&SETTINGS).await?;
        server.query("postgres", TABLE).await?;
        let inserts = Inserts { payload: payload(payload_bytes), batch, clients: connections };
        let mut postgres = Self { server, ids, inserts, time, tried: (0.0, 0.0) };
        let ours = postgres.with_our_client(TRIAL.min(time)).await?.per_second;
        let theirs = postgres.with_their_client(TRIAL.max(Duration::from_secs(1))).await?.per_second;
        postgres.tried = (ours, theirs);
        Ok(postgres)
    }

    async fn with_our_client(&self, time: Duration) -> Result<Round, Failure> {
        let Inserts { payload, batch, clients } = self.inserts.clone();
        let wire = Insert { ids: NewIds::new(self.ids), payload, batch };
        super::round(self.server.address(), self.server.pid(), clients, time, wire).await
    }

    async fn with_their_client(&self, time: Duration) -> Result<Round, Failure> {
        self.inserts.round(&self.server, "postgres", time).await
    }
}

#[async_trait]
impl Contestant for Postgres {
    fn what(&self) -> String {
        format!("PostgreSQL, {}, {} connections", self.inserts.name(), self.inserts.clients)
    }

    fn how(&self) -> String {
        let (ours, theirs) = self.tried;
        let used = if ours >= theirs { "our client" } else { "pgbench -M prepared" };
        format!(
            "uuid primary key and a text payload, prepared ON CONFLICT DO NOTHING, {}; driven by {used} (tried: ours {ours:.0}, pgbench {theirs:.0} rows a second)",
            self.server.settings()
        )
    }

    async fn round(&mut self) -> Result<Round, Failure> {
        let (ours, theirs) = self.tried;
        if ours >= theirs {
            return self.with_our_client(self.time).await;
        }
        self.with_their_client(self.time).await
    }
}

/// The client side of prepared inserts over the PostgreSQL protocol, version 3.
struct Insert {
    ids: NewIds,
    payload: Vec<u8>,
    batch: usize,
}

const UUID_OID: i32 = 2950;
const TEXT_OID: i32 = 25;

impl Wire for Insert {
    fn greet(&mut self, stream: &mut TcpStream) -> std::io::Result<()> {
        start_up(stream)?;
        let mut out = Vec::new();
        message(&mut out, b'P', |body| {
            text(body, "insert");
            text(body, if self.batch == 1 { SINGLE } else { BATCH });
            body.extend_from_slice(&0_i16.to_be_bytes());
        });
        message(&mut out, b'S', |_| {});
        stream.write_all(&out)?;
        read_until_ready(stream)
    }

    fn request(&mut self, _: usize, out: &mut Vec<u8>) -> bool {
        message(out, b'B', |body| {
            text(body, "");
            text(body, "insert");
            // One format code for all parameters, the code for binary, and the number of parameters.
            [1_i16, 1, 2].iter().for_each(|number| body.extend_from_slice(&number.to_be_bytes()));
            if self.batch == 1 {
                value(body, self.ids.next().as_bytes());
                value(body, &self.payload);
            } else {
                let ids: Vec<_> = (0..self.batch).map(|_| self.ids.next()).collect();
                array(body, UUID_OID, ids.iter().map(|id| id.as_bytes().as_slice()));
                array(body, TEXT_OID, ids.iter().map(|_| self.payload.as_slice()));
            }
            body.extend_from_slice(&0_i16.to_be_bytes());
        });
        message(out, b'E', |body| {
            text(body, "");
            body.extend_from_slice(&0_i32.to_be_bytes());
        });
        message(out, b'S', |_| {});
        true
    }

    fn answer(&mut self, _: usize, received: &[u8], tally: &mut Tally) -> std::io::Result<Option<usize>> {
        let Some(end) = ready_at(received) else { return Ok(None) };
        let batch = self.batch as u64;
        match messages(&received[..end]).find(|(kind, _)| matches!(kind, b'C' | b'E')) {
            Some((b'C', body)) => {
                let inserted = inserted_rows(body).unwrap_or(0).min(batch);
                tally.count(202, inserted);
                tally.count(200, batch - inserted);
            }
            _ => tally.count(500, batch),
        }
        Ok(Some(end))
    }
}

/// Reads the number of rows in the answer `INSERT 0 <rows>`.
fn inserted_rows(body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body).ok()?.trim_end_matches('\0');
    text.rsplit(' ').next()?.parse().ok()
}

fn start_up(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut body = 196_608_i32.to_be_bytes().to_vec();
    for part in ["user", "postgres", "database", "postgres", ""] {
        text(&mut body, part);
    }
    stream.write_all(&length(body.len()))?;
    stream.write_all(&body)?;
    read_until_ready(stream)
}

fn read_until_ready(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while ready_at(&received).is_none() {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&buffer[..count]),
        }
    }
    match messages(&received).find(|(kind, _)| *kind == b'E') {
        Some((_, body)) => Err(std::io::Error::other(String::from_utf8_lossy(body).into_owned())),
        None => Ok(()),
    }
}

/// The end of the first `ReadyForQuery`.
fn ready_at(received: &[u8]) -> Option<usize> {
    let mut end = 0;
    for (kind, body) in messages(received) {
        end += 5 + body.len();
        if kind == b'Z' {
            return Some(end);
        }
    }
    None
}

/// The complete messages at the front of the received bytes.
fn messages(mut received: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, rest) = received.split_first()?;
        let length = i32::from_be_bytes(rest.first_chunk().copied()?);
        let body = rest.get(4..usize::try_from(length).ok()?)?;
        received = &rest[4 + body.len()..];
        Some((*kind, body))
    })
}

fn message(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let written = out.len() - start;
    out[start..start + 4].copy_from_slice(&length(written - 4));
}

/// The length field of a message: it includes its own four bytes.
fn length(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes + 4).unwrap_or(i32::MAX).to_be_bytes()
}

fn text(body: &mut Vec<u8>, text: &str) {
    body.extend_from_slice(text.as_bytes());
    body.push(0);
}

fn value(body: &mut Vec<u8>, value: &[u8]) {
    body.extend_from_slice(&i32::try_from(value.len()).unwrap_or(i32::MAX).to_be_bytes());
    body.extend_from_slice(value);
}

/// An array of one dimension without nulls.
fn array<'a>(body: &mut Vec<u8>, oid: i32, values: impl ExactSizeIterator<Item = &'a [u8]>) {
    let count = i32::try_from(values.len()).unwrap_or(i32::MAX);
    let mut bytes = Vec::new();
    [1, 0, oid, count, 1].iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
    values.for_each(|element| value(&mut bytes, element));
    value(body, &bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_ends_when_the_server_is_ready() {
        let mut received = Vec::new();
        message(&mut received, b'2', |_| {});
        message(&mut received, b'C', |body| text(body, "INSERT 0 97"));
        message(&mut received, b'Z', |body| body.push(b'I'));
        let mut insert = Insert { ids: NewIds::new(Ids::Ordered), payload: Vec::new(), batch: 100 };
        let mut tally = Tally::default();
        for end in 0..received.len() {
            assert_eq!(insert.answer(0, &received[..end], &mut tally).unwrap(), None);
        }
        assert_eq!(insert.answer(0, &received, &mut tally).unwrap(), Some(received.len()));
        assert_eq!((tally.accepted, tally.duplicate), (97, 3));
    }
}
