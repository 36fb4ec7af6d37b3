//! Processes that the bench starts: ended with it, whichever way it ends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::clock;
use crate::cmd::Failure;

/// Those that run now, for [`end_all`].
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Servers that are part of the benchmark and no children of this process.
static BACKGROUND: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// How long a server may take to end by itself.
const END_MAX: Duration = Duration::from_secs(10);

/// A server that was started, and is ended when dropped.
pub(super) struct Running {
    child: Child,
    signal: Signal,
}

impl Running {
    /// Starts a server and leaves its output to nobody.
    pub(super) fn start(command: &mut Command) -> Result<Self, Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self::spawn(command)
    }

    /// Starts a server, and waits until a line of its output holds `mark`: gives back what follows it.
    pub(super) fn start_and_read(command: &mut Command, mark: &str) -> Result<(Self, String), Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = Self::spawn(command)?;
        let out = running.child.stdout.take().ok_or_else(|| Failure::new("a server without output"))?;
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        let found = lines.find_map(|line| line.split_once(mark).map(|(_, rest)| rest.to_owned()));
        let found = found.ok_or_else(|| Failure::new(format!("{command:?} ended without serving")))?;
        Ok((running, found))
    }

    fn spawn(command: &mut Command) -> Result<Self, Failure> {
        let started = command.spawn();
        let child = started.map_err(|error| Failure::of(format!("cannot start {command:?}"), &error))?;
        running().push(child.id());
        Ok(Self { child, signal: Signal::KILL })
    }

    /// Ends the server by another signal than the one that it cannot see.
    pub(super) fn ended_by(mut self, signal: Signal) -> Self {
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

impl Drop for Running {
    fn drop(&mut self) {
        signal(self.pid(), self.signal);
        if self.wait(clock::now() + END_MAX).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        running().retain(|pid| *pid != self.child.id());
    }
}

/// A server that went into the background by itself, counted as part of the benchmark until this is dropped. Whoever
/// started it ends it.
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

/// The processes whose families are the benchmark.
pub(super) fn ours() -> Vec<u32> {
    let mut ours = background().clone();
    ours.push(std::process::id());
    ours
}

/// Ends every server, for a bench that is told to end.
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
    // It may have ended already.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

fn running() -> std::sync::MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn background() -> std::sync::MutexGuard<'static, Vec<u32>> {
    BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner)
}
