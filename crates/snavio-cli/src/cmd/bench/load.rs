//! A closed-loop load generator: one thread, plain sockets, one epoll.
//!
//! The generator shares the machine with the server under load, so it uses little processor time. Each
//! connection sends a request, waits for its answer and sends the next. A [`Wire`] writes the requests and
//! reads the answers.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::Timespec;

use super::clock;
use super::latency::Latencies;

/// The longest wait for outstanding answers after the end of the load.
const DRAIN_MAX: Duration = Duration::from_secs(15);
/// The most bytes of one read.
const READ_BYTES: usize = 256 * 1024;
/// The most events of one call to epoll.
const EVENTS_MAX: usize = 1024;

/// The client side of a protocol.
pub(super) trait Wire: Send {
    /// Greets the server on a new connection, before the measurement.
    fn greet(&mut self, stream: &mut TcpStream) -> std::io::Result<()> {
        let _ = stream;
        Ok(())
    }

    /// Writes the next request of a connection; false if the connection has nothing more to send.
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> bool;

    /// Counts the answer at the front of the received bytes and returns its length; none while it is
    /// incomplete.
    fn answer(
        &mut self,
        connection: usize,
        received: &[u8],
        tally: &mut Tally,
    ) -> std::io::Result<Option<usize>>;
}

/// The number of messages by outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) accepted: u64,
    pub(super) duplicate: u64,
    /// Refused messages by HTTP status.
    pub(super) refused: BTreeMap<u16, u64>,
}

impl Tally {
    /// All messages with an answer.
    pub(super) fn answered(&self) -> u64 {
        self.accepted + self.duplicate + self.refused.values().sum::<u64>()
    }

    /// Counts messages by an HTTP status.
    pub(super) fn count(&mut self, status: u16, messages: u64) {
        match status {
            201 | 202 => self.accepted += messages,
            200 => self.duplicate += messages,
            other => *self.refused.entry(other).or_default() += messages,
        }
    }
}

/// The amount and the length of a load.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// The connections are spread evenly over these addresses.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) connections: usize,
    pub(super) time: Duration,
    /// The shortest interval between two requests on a connection.
    pub(super) pace: Option<Duration>,
    /// Ends the load early if it becomes true.
    pub(super) stop: Option<Arc<AtomicBool>>,
}

/// The figures of a load.
#[derive(Debug, Clone)]
pub(super) struct LoadResult {
    /// From the first request to the last answer.
    pub(super) elapsed: Duration,
    /// Processor time of the generator's thread.
    pub(super) processor: Duration,
    pub(super) tally: Tally,
    pub(super) latencies: Latencies,
    /// Connections that broke or did not get their last answer.
    pub(super) broken: u64,
}

/// Runs the load on the calling thread.
pub(super) fn run(load: &Load, wire: &mut dyn Wire) -> std::io::Result<LoadResult> {
    let mut generator = Generator::connect(load, wire)?;
    let (began, used) = (clock::now(), clock::thread_time());
    generator.drive(load, wire, began)?;
    Ok(LoadResult {
        elapsed: generator.last_answer.saturating_duration_since(began).max(Duration::from_micros(1)),
        processor: clock::thread_time().saturating_sub(used),
        tally: generator.tally,
        latencies: generator.latencies,
        broken: generator.broken + generator.awaiting as u64,
    })
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    received: Vec<u8>,
    sent_at: Instant,
    /// Whether the socket takes no more bytes for now.
    is_blocked: bool,
    is_awaiting: bool,
    is_broken: bool,
}

struct Generator {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections that wait for the time of their next request, in the order of these times.
    paced: VecDeque<(Instant, usize)>,
    buffer: Vec<u8>,
    /// The number of connections that await an answer.
    awaiting: usize,
    broken: u64,
    tally: Tally,
    latencies: Latencies,
    last_answer: Instant,
}

impl Generator {
    fn connect(load: &Load, wire: &mut dyn Wire) -> std::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(load.connections);
        let addresses = load.addresses.iter().cycle().take(load.connections);
        for (index, address) in addresses.enumerate() {
            let connection = Connection::open(*address, wire)?;
            epoll::add(&epoll, &connection.stream, EventData::new_u64(index as u64), EventFlags::IN)?;
            connections.push(connection);
        }
        Ok(Self {
            epoll,
            connections,
            paced: VecDeque::new(),
            buffer: vec![0; READ_BYTES],
            awaiting: 0,
            broken: 0,
            tally: Tally::default(),
            latencies: Latencies::new(),
            last_answer: clock::now(),
        })
    }

    fn drive(&mut self, load: &Load, wire: &mut dyn Wire, began: Instant) -> std::io::Result<()> {
        let end = began + load.time;
        self.begin(load, wire, began);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now = clock::now();
            let is_stopped = load.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
            let is_sending = now < end && !is_stopped;
            if is_sending {
                self.send_due(wire, now);
            }
            let is_finished = self.awaiting == 0 && (!is_sending || self.paced.is_empty());
            if is_finished || now >= end + DRAIN_MAX {
                return Ok(());
            }
            self.wait(&mut events, self.wait_time(now, end, is_sending))?;
            for event in events.drain(..) {
                let event: Event = event;
                let index = usize::try_from(event.data.u64()).unwrap_or(0);
                self.serve(index, load, wire, end, is_stopped);
            }
        }
    }

    /// Sends the first request of each connection. With a pace the first requests are spread over one
    /// interval.
    fn begin(&mut self, load: &Load, wire: &mut dyn Wire, began: Instant) {
        for index in 0..self.connections.len() {
            match load.pace {
                None => self.send(index, wire),
                Some(pace) => {
                    let offset = pace.mul_f64(index as f64 / load.connections.max(1) as f64);
                    self.paced.push_back((began + offset, index));
                }
            }
        }
    }

    fn send_due(&mut self, wire: &mut dyn Wire, now: Instant) {
        while let Some((due, index)) = self.paced.front().copied()
            && due <= now
        {
            self.paced.pop_front();
            self.send(index, wire);
        }
    }

    fn wait_time(&self, now: Instant, end: Instant, is_sending: bool) -> Duration {
        let until = if is_sending { end } else { end + DRAIN_MAX };
        let due = self.paced.front().filter(|_| is_sending).map_or(until, |(due, _)| *due);
        // The upper bound is the time within which the generator notices `stop`.
        due.min(until).saturating_duration_since(now).min(Duration::from_millis(100))
    }

    fn wait(&self, events: &mut Vec<Event>, time: Duration) -> std::io::Result<()> {
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn serve(&mut self, index: usize, load: &Load, wire: &mut dyn Wire, end: Instant, is_stopped: bool) {
        if self.connections[index].is_broken {
            return;
        }
        let flushed = self.flush(index);
        if flushed.is_err() || self.receive(index).is_err() {
            return self.give_up(index);
        }
        match self.take_answer(index, wire) {
            Ok(false) => {}
            Ok(true) => match load.pace {
                Some(pace) => {
                    let due = (self.connections[index].sent_at + pace).max(self.last_answer);
                    self.paced.push_back((due, index));
                }
                None if self.last_answer < end && !is_stopped => self.send(index, wire),
                None => {}
            },
            Err(_) => self.give_up(index),
        }
    }

    fn receive(&mut self, index: usize) -> std::io::Result<()> {
        let connection = &mut self.connections[index];
        match connection.stream.read(&mut self.buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                connection.received.extend_from_slice(&self.buffer[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Counts the answer to the connection's request, if it is complete. Returns whether it was.
    fn take_answer(&mut self, index: usize, wire: &mut dyn Wire) -> std::io::Result<bool> {
        let connection = &mut self.connections[index];
        if !connection.is_awaiting {
            return Ok(false);
        }
        let Some(length) = wire.answer(index, &connection.received, &mut self.tally)? else {
            return Ok(false);
        };
        connection.received.drain(..length);
        connection.is_awaiting = false;
        self.awaiting -= 1;
        self.last_answer = clock::now();
        self.latencies.record(self.last_answer.saturating_duration_since(connection.sent_at));
        Ok(true)
    }

    fn send(&mut self, index: usize, wire: &mut dyn Wire) {
        let connection = &mut self.connections[index];
        connection.out.clear();
        connection.written = 0;
        if !wire.request(index, &mut connection.out) {
            return;
        }
        connection.sent_at = clock::now();
        connection.is_awaiting = true;
        self.awaiting += 1;
        if self.flush(index).is_err() {
            self.give_up(index);
        }
    }

    /// Writes as much as the socket takes, and has epoll report when it takes more.
    fn flush(&mut self, index: usize) -> std::io::Result<()> {
        let connection = &mut self.connections[index];
        let is_blocked = connection.write()?;
        if is_blocked != connection.is_blocked {
            connection.is_blocked = is_blocked;
            let flags = if is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &connection.stream, EventData::new_u64(index as u64), flags)?;
        }
        Ok(())
    }

    fn give_up(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.is_broken {
            return;
        }
        connection.is_broken = true;
        self.broken += 1;
        if std::mem::take(&mut connection.is_awaiting) {
            self.awaiting -= 1;
        }
        // Both calls may fail because the connection is already closed.
        let _ = epoll::delete(&self.epoll, &connection.stream);
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Connection {
    fn open(address: SocketAddr, wire: &mut dyn Wire) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        wire.greet(&mut stream)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            out: Vec::new(),
            written: 0,
            received: Vec::new(),
            sent_at: clock::now(),
            is_blocked: false,
            is_awaiting: false,
            is_broken: false,
        })
    }

    /// Continues to write the request; true if the socket takes no more for now.
    fn write(&mut self) -> std::io::Result<bool> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}
