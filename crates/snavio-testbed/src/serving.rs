//! A process of `snavio serve`, from its start to its end.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The pause between two checks whether the process has ended, and the number of checks: half a minute in
/// total, more than a node may take to stop.
const CHECK_PAUSE: Duration = Duration::from_millis(5);
const CHECKS_MAX: u32 = 6_000;

/// The process of a node, which may end before it serves. It is killed when dropped.
pub struct Serving {
    child: Child,
    /// The node's standard output. It stays open as long as the process, because a node that writes to a
    /// closed pipe fails.
    out: Option<BufReader<ChildStdout>>,
    printed: String,
    url: Option<String>,
    stderr: PathBuf,
}

impl Serving {
    /// Starts a command that runs `snavio serve` and does not wait for it. The node's standard error is
    /// appended to a file.
    pub fn spawn(command: &mut Command, stderr: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(stderr)?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn()?;
        let out = child.stdout.take().map(BufReader::new);
        Ok(Self { child, out, printed: String::new(), url: None, stderr: stderr.to_owned() })
    }

    /// Waits until the node serves or has ended.
    pub fn settle(&mut self) {
        let Some(out) = self.out.as_mut() else { return };
        for line in out.lines().map_while(Result::ok) {
            self.printed += &format!("{line}\n");
            self.url = line.split_once(" is serving ").map(|(_, url)| url.to_owned());
            if self.url.is_some() {
                return;
            }
        }
    }

    /// The node's standard output. If the node still serves, waits until it has ended.
    pub fn printed(&mut self) -> String {
        if let Some(out) = self.out.as_mut() {
            // An error ends the output like an end of file.
            let _ = out.read_to_string(&mut self.printed);
        }
        self.printed.clone()
    }

    /// The URL of the node, if it has begun to serve.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// The node's standard error, after any earlier content of the file.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_else(|error| format!("cannot read the log: {error}"))
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the process has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits at most half a minute for the end of the process.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        for _ in 0..CHECKS_MAX {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(CHECK_PAUSE);
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the node did not end within 30 s: {}", self.said()),
        ))
    }

    /// Sends SIGTERM, as an operator would.
    pub fn tell_to_stop(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    /// Kills the process, which a process can hardly tell from a power cut. Does not wait for its end.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
