//! The processes that the bench starts. They end with the bench, also if a signal stops it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::clock;
use crate::cmd::Failure;

/// The process ids of the running servers, for [`end_all`].
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The process ids of servers that are part of the benchmark but not children of this process.
static BACKGROUND: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The time that a server gets to end after its signal, before it is killed.
const END_MAX: Duration = Duration::from_secs(10);

/// A running server. Dropping it ends the server.
pub(super) struct ServerProcess {
    child: Child,
    signal: Signal,
}

impl ServerProcess {
    /// Starts a server and discards its output.
    pub(super) fn start(command: &mut Command) -> Result<Self, Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self::spawn(command)
    }

    /// Starts a server and waits for a line of its output that contains `mark`. Returns the rest of that
    /// line.
    pub(super) fn start_and_read(command: &mut Command, mark: &str) -> Result<(Self, String), Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = Self::spawn(command)?;
        let out = running.child.stdout.take();
        let out = out.ok_or_else(|| Failure::new("the server has no standard output"))?;
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        let found = lines.find_map(|line| line.split_once(mark).map(|(_, rest)| rest.to_owned()));
        let found = found.ok_or_else(|| {
            Failure::new(format!("{command:?} closed its output before it printed {mark:?}; run it by hand"))
        })?;
        Ok((running, found))
    }

    fn spawn(command: &mut Command) -> Result<Self, Failure> {
        let started = command.spawn();
        let child =
            started.map_err(|error| Failure::caused_by(format!("cannot start {command:?}"), &error))?;
        running().push(child.id());
        Ok(Self { child, signal: Signal::KILL })
    }

    /// Sets the signal that ends the server, instead of SIGKILL.
    pub(super) fn with_end_signal(mut self, signal: Signal) -> Self {
        self.signal = signal;
        self
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait(&mut self, until: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if clock::now() < until => std::thread::sleep(Duration::from_millis(10)),
                _ => return None,
            }
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        signal(self.pid(), self.signal);
        if self.wait(clock::now() + END_MAX).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        running().retain(|pid| *pid != self.child.id());
    }
}

/// A server that runs in the background. It counts as part of the benchmark until this is dropped. The code
/// that started the server ends it.
pub(super) struct Background(u32);

impl Background {
    pub(super) fn of(pid: u32) -> Self {
        background().push(pid);
        Self(pid)
    }

    pub(super) fn pid(&self) -> u32 {
        self.0
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        background().retain(|pid| *pid != self.0);
    }
}

/// The root processes of the benchmark: they and their descendants are the benchmark.
pub(super) fn benchmark_roots() -> Vec<u32> {
    let mut ours = background().clone();
    ours.push(std::process::id());
    ours
}

/// Ends every server, for a bench that a signal stops.
pub(super) fn end_all() {
    for pid in running().iter() {
        signal(*pid, Signal::INT);
    }
    std::thread::sleep(Duration::from_millis(300));
    for pid in running().iter() {
        signal(*pid, Signal::KILL);
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // The process may have ended already.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

fn running() -> std::sync::MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn background() -> std::sync::MutexGuard<'static, Vec<u32>> {
    BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner)
}
