//! A process of `snavio serve`, from its start to its end.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Between two looks whether it has ended, and how many there are: half a minute, more than a node may take to stop.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS_MAX: u32 = 6_000;

/// A node's process, which may have ended before it served. It is killed when dropped.
pub struct Serving {
    child: Child,
    /// Kept for as long as the process: a node whose output nobody can read any more would fail at its next word.
    out: Option<BufReader<ChildStdout>>,
    printed: String,
    url: Option<String>,
    stderr: PathBuf,
}

impl Serving {
    /// Starts a command that runs `snavio serve`, and does not wait for it. What it writes to its standard error is
    /// added to a file.
    pub fn spawn(command: &mut Command, stderr: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(stderr)?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn()?;
        let out = child.stdout.take().map(BufReader::new);
        Ok(Self { child, out, printed: String::new(), url: None, stderr: stderr.to_owned() })
    }

    /// Waits until it serves or has ended.
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

    /// What it wrote to its standard output, once it has ended.
    pub fn printed(&mut self) -> String {
        if let Some(out) = self.out.as_mut() {
            // What cannot be read any more was not written.
            let _ = out.read_to_string(&mut self.printed);
        }
        self.printed.clone()
    }

    /// Where it serves, if it came so far.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// What it wrote to its standard error, after whatever was in the file before.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_else(|error| format!("nothing is kept: {error}"))
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        for _ in 0..LOOKS_MAX {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("the node does not end: {}", self.said())))
    }

    /// Tells it to stop, as an operator would.
    pub fn tell_to_stop(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    /// Kills it as a power cut would, as far as a process can tell, and does not wait for its end.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
