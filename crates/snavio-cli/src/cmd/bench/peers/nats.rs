//! NATS JetStream: a publish with `Nats-Msg-Id`, which the server answers after it has stored the message.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use async_trait::async_trait;
use memchr::memmem;
use rustix::process::Signal;

use super::super::contest::Contestant;
use super::super::http::number;
use super::super::install;
use super::super::load::{Tally, Wire};
use super::super::messages::{Ids, payload};
use super::super::process::ServerProcess;
use super::super::round::Round;
use super::super::scenario::run_blocking;
use super::{NewIds, Server, free_address, make_folder};
use crate::cmd::Failure;

/// When the server flushes the file of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Sync {
    Always,
    Default,
}

/// A JetStream under load.
pub(in super::super) struct JetStream {
    server: Server,
    sync: Sync,
    ids: Ids,
    payload: Vec<u8>,
    connections: usize,
    time: Duration,
}

impl JetStream {
    pub(in super::super) async fn start(
        sync: Sync,
        ids: Ids,
        payload_bytes: usize,
        connections: usize,
        time: Duration,
    ) -> Result<Self, Failure> {
        let program = run_blocking(install::nats_server).await??;
        let (folder, address) = (make_folder()?, free_address()?);
        let interval = match sync {
            Sync::Always => "sync_interval: always",
            Sync::Default => "",
        };
        let store = folder.path().display();
        let settings =
            format!("listen: \"{address}\"\njetstream {{\n  store_dir: \"{store}\"\n  {interval}\n}}\n");
        let file = folder.path().join("nats.conf");
        std::fs::write(&file, settings)?;
        let process =
            ServerProcess::start(Command::new(program).arg("-c").arg(&file))?.with_end_signal(Signal::INT);
        let server = Server::of(process, folder, address)?;
        run_blocking(move || make_stream(address)).await??;
        let payload = payload(payload_bytes);
        Ok(Self { server, sync, ids, payload, connections, time })
    }
}

#[async_trait]
impl Contestant for JetStream {
    fn what(&self) -> String {
        let sync = match self.sync {
            Sync::Always => "sync_interval always",
            Sync::Default => "default sync_interval",
        };
        format!("NATS JetStream, Nats-Msg-Id, {sync}")
    }

    fn how(&self) -> String {
        format!(
            "file storage, one replica, duplicate window 2 min, {} connections, each awaiting its PubAck; driven by our client",
            self.connections
        )
    }

    async fn round(&mut self) -> Result<Round, Failure> {
        let wire = Publish {
            ids: NewIds::new(self.ids),
            payload: self.payload.clone(),
            greeted: 0,
            pings: vec![false; self.connections],
        };
        self.server.round(self.connections, self.time, wire).await
    }
}

fn make_stream(address: std::net::SocketAddr) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    greet(&mut stream, 0)?;
    let settings = r#"{"name":"bench","subjects":["bench.>"],"storage":"file","retention":"limits","num_replicas":1,"duplicate_window":120000000000}"#;
    let subject = "$JS.API.STREAM.CREATE.bench";
    write!(stream, "PUB {subject} {} {}\r\n{settings}\r\n", inbox(0), settings.len())?;
    let answer = read_until(&mut stream, b"}\r\n")?;
    if memmem::find(&answer, b"\"error\"").is_some() {
        return Err(Failure::new(format!(
            "NATS did not make the stream: {}",
            String::from_utf8_lossy(&answer)
        )));
    }
    Ok(())
}

fn inbox(connection: usize) -> String {
    format!("_INBOX.bench.{connection}")
}

fn greet(stream: &mut TcpStream, connection: usize) -> std::io::Result<()> {
    read_until(stream, b"}")?;
    let options = r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"lang":"bench","version":"1","protocol":1}"#;
    write!(stream, "CONNECT {options}\r\nSUB {} 1\r\nPING\r\n", inbox(connection))?;
    read_until(stream, b"PONG\r\n").map(|_| ())
}

fn read_until(stream: &mut TcpStream, end: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while memmem::find(&received, end).is_none() {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(received)
}

/// The client side of a publish over the NATS protocol.
struct Publish {
    ids: NewIds,
    payload: Vec<u8>,
    /// The number of connections that were opened.
    greeted: usize,
    /// For each connection, whether it owes the server a PONG.
    pings: Vec<bool>,
}

const PING: &[u8] = b"PING\r\n";

impl Wire for Publish {
    fn greet(&mut self, stream: &mut TcpStream) -> std::io::Result<()> {
        greet(stream, self.greeted)?;
        self.greeted += 1;
        Ok(())
    }

    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> bool {
        if std::mem::take(&mut self.pings[connection]) {
            out.extend_from_slice(b"PONG\r\n");
        }
        // The bytes of "NATS/1.0", of the header's name, of the id, and of the line breaks.
        const HEADERS: usize = 10 + 13 + 36 + 4;
        let mut buffer = uuid::Uuid::encode_buffer();
        let id: &str = self.ids.next().hyphenated().encode_lower(&mut buffer);
        let (inbox, all) = (inbox(connection), HEADERS + self.payload.len());
        let head =
            format!("HPUB bench.order {inbox} {HEADERS} {all}\r\nNATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n");
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&self.payload);
        out.extend_from_slice(b"\r\n");
        true
    }

    fn answer(
        &mut self,
        connection: usize,
        received: &[u8],
        tally: &mut Tally,
    ) -> std::io::Result<Option<usize>> {
        let mut start = 0;
        while received[start..].starts_with(PING) {
            self.pings[connection] = true;
            start += PING.len();
        }
        let Some(end) = memmem::find(&received[start..], b"\r\n") else { return Ok(None) };
        let line = &received[start..start + end];
        let length = line.rsplit(|byte| *byte == b' ').next().and_then(number);
        let Some(length) = length.filter(|_| line.starts_with(b"MSG ") || line.starts_with(b"HMSG ")) else {
            return Err(std::io::Error::other(format!(
                "unexpected line from NATS: {}",
                String::from_utf8_lossy(line)
            )));
        };
        let body = start + end + 2;
        let Some(text) = received.get(body..body + length + 2) else { return Ok(None) };
        match memmem::find(text, b"\"seq\":") {
            None => tally.count(500, 1),
            Some(_) if memmem::find(text, b"\"duplicate\":").is_some() => tally.count(200, 1),
            Some(_) => tally.count(202, 1),
        }
        Ok(Some(body + length + 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish() -> Publish {
        Publish { ids: NewIds::new(Ids::Ordered), payload: b"{}".to_vec(), greeted: 0, pings: vec![false] }
    }

    #[test]
    fn publish_states_its_lengths() {
        let mut out = Vec::new();
        assert!(publish().request(0, &mut out));
        let text = String::from_utf8(out).unwrap();
        let (line, rest) = text.split_once("\r\n").unwrap();
        let lengths: Vec<usize> = line.split(' ').skip(3).map(|length| length.parse().unwrap()).collect();
        assert_eq!(lengths, [rest.find("{}").unwrap(), rest.len() - 2]);
    }

    #[test]
    fn complete_acknowledgement_after_a_ping_is_counted() {
        let mut tally = Tally::default();
        let fresh = b"PING\r\nMSG _INBOX.bench.0 1 26\r\n{\"stream\":\"bench\",\"seq\":1}\r\nMSG";
        let mut publish = publish();
        assert_eq!(publish.answer(0, fresh, &mut tally).unwrap(), Some(fresh.len() - 3));
        assert!(publish.pings[0]);
        assert_eq!(publish.answer(0, &fresh[..40], &mut tally).unwrap(), None);
        assert_eq!((tally.accepted, tally.answered()), (1, 1));
    }
}
