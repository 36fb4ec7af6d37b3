//! A closed-loop load generator: one thread, plain sockets, one epoll.
//!
//! It shares the machine with the server it measures, so it does as little as it can: each connection sends a
//! request, waits for its answer and sends the next. What goes over the wire is a [`Wire`]'s affair.

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

/// Answers that are still under way when the time is over get this long.
const DRAIN_MAX: Duration = Duration::from_secs(15);
/// Bytes that one read may take.
const READ_BYTES: usize = 256 * 1024;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;

/// A protocol, from the client's side.
pub(super) trait Wire: Send {
    /// Greets the server on a new connection, before anything is measured.
    fn greet(&mut self, stream: &mut TcpStream) -> std::io::Result<()> {
        let _ = stream;
        Ok(())
    }

    /// Writes the connection's next request; false when there is nothing more to send on it.
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> bool;

    /// Takes the answer at the front of what was received and says its length; nothing while it is incomplete.
    fn answer(
        &mut self,
        connection: usize,
        received: &[u8],
        tally: &mut Tally,
    ) -> std::io::Result<Option<usize>>;
}

/// What became of the messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Taken, and new.
    pub(super) accepted: u64,
    /// Seen before.
    pub(super) duplicate: u64,
    /// Refused, by status.
    pub(super) refused: BTreeMap<u16, u64>,
}

impl Tally {
    /// All messages that were answered.
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

/// How much load, for how long.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// Connections go to these in turns.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) connections: usize,
    pub(super) time: Duration,
    /// Each connection sends at most once in this time.
    pub(super) pace: Option<Duration>,
    /// Ends the load early when set.
    pub(super) stop: Option<Arc<AtomicBool>>,
}

/// What a load came to.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    /// From the first request to the last answer.
    pub(super) elapsed: Duration,
    /// Processor time of the generator's thread.
    pub(super) processor: Duration,
    pub(super) tally: Tally,
    pub(super) latencies: Latencies,
    /// Connections that broke, or whose last answer never came.
    pub(super) broken: u64,
}

/// Runs the load on the calling thread.
pub(super) fn run(load: &Load, wire: &mut dyn Wire) -> std::io::Result<Ran> {
    let mut generator = Generator::connect(load, wire)?;
    let (began, used) = (clock::now(), clock::of_this_thread());
    generator.drive(load, wire, began)?;
    Ok(Ran {
        elapsed: generator.last_answer.saturating_duration_since(began).max(Duration::from_micros(1)),
        processor: clock::of_this_thread().saturating_sub(used),
        tally: generator.tally,
        latencies: generator.latencies,
        broken: generator.broken + generator.under_way as u64,
    })
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    received: Vec<u8>,
    sent_at: Instant,
    blocked: bool,
    under_way: bool,
    broken: bool,
}

struct Generator {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections that wait for their next turn, in the order of their turns.
    paced: VecDeque<(Instant, usize)>,
    buffer: Vec<u8>,
    under_way: usize,
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
            under_way: 0,
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
            let stopped = load.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
            let sending = now < end && !stopped;
            if sending {
                self.send_due(wire, now);
            }
            let finished = self.under_way == 0 && (!sending || self.paced.is_empty());
            if finished || now >= end + DRAIN_MAX {
                return Ok(());
            }
            self.wait(&mut events, self.patience(now, end, sending))?;
            for event in events.drain(..) {
                let event: Event = event;
                let index = usize::try_from(event.data.u64()).unwrap_or(0);
                self.serve(index, load, wire, end, stopped);
            }
        }
    }

    /// The first request of each connection; paced ones are spread over their first turn.
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

    fn patience(&self, now: Instant, end: Instant, sending: bool) -> Duration {
        let until = if sending { end } else { end + DRAIN_MAX };
        let due = self.paced.front().filter(|_| sending).map_or(until, |(due, _)| *due);
        // A stop that is asked for from outside is noticed within this time.
        due.min(until).saturating_duration_since(now).min(Duration::from_millis(100))
    }

    fn wait(&self, events: &mut Vec<Event>, patience: Duration) -> std::io::Result<()> {
        let patience = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn serve(&mut self, index: usize, load: &Load, wire: &mut dyn Wire, end: Instant, stopped: bool) {
        if self.connections[index].broken {
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
                None if self.last_answer < end && !stopped => self.send(index, wire),
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

    /// Whether the answer that the connection waits for is complete.
    fn take_answer(&mut self, index: usize, wire: &mut dyn Wire) -> std::io::Result<bool> {
        let connection = &mut self.connections[index];
        if !connection.under_way {
            return Ok(false);
        }
        let Some(length) = wire.answer(index, &connection.received, &mut self.tally)? else {
            return Ok(false);
        };
        connection.received.drain(..length);
        connection.under_way = false;
        self.under_way -= 1;
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
        connection.under_way = true;
        self.under_way += 1;
        if self.flush(index).is_err() {
            self.give_up(index);
        }
    }

    /// Writes what the socket takes, and asks to be told when it takes more.
    fn flush(&mut self, index: usize) -> std::io::Result<()> {
        let connection = &mut self.connections[index];
        let blocked = connection.write()?;
        if blocked != connection.blocked {
            connection.blocked = blocked;
            let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &connection.stream, EventData::new_u64(index as u64), flags)?;
        }
        Ok(())
    }

    fn give_up(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.broken {
            return;
        }
        connection.broken = true;
        self.broken += 1;
        if std::mem::take(&mut connection.under_way) {
            self.under_way -= 1;
        }
        // Closing it is what matters; it may be closed already.
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
            blocked: false,
            under_way: false,
            broken: false,
        })
    }

    /// Writes on; true when the socket takes no more for now.
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
