//! strace: shows the node's system calls, and makes chosen ones fail, wait or kill.
//!
//! Its counters (`when=3`) are kept per thread and per call: the third `fsync` of one thread. A node that is
//! launched is the traced process itself (`-D`), so that its id and how it ended are not strace's.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::node::{Launch, Node};
use crate::patience::poll;

/// The calls that change the store's files.
pub(crate) const WRITES: &str = "pwrite64,pwritev,pwritev2,ftruncate,fallocate";
/// The calls that make changes durable. SQLite may be built to use either.
pub(crate) const FLUSHES: &str = "fsync,fdatasync";

/// What strace is to trace and to do.
#[derive(Debug, Clone)]
pub(crate) struct Strace {
    options: Vec<String>,
    output: PathBuf,
}

impl Strace {
    /// Traces the calls, comma-separated, into a file.
    pub(crate) fn of(calls: &str, output: PathBuf) -> Self {
        require();
        // A file of an earlier run must not be taken for this one's.
        let _ = std::fs::remove_file(&output);
        let options = vec!["-o".into(), output.display().to_string(), "-e".into(), format!("trace={calls}")];
        Self { options, output }
    }

    /// Does something to some of the calls, for example `signal=SIGKILL:when=3`.
    pub(crate) fn inject(self, calls: &str, what: &str) -> Self {
        self.option("-e").option(&format!("inject={calls}:{what}"))
    }

    pub(crate) fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// Traces a node from its start.
    pub(crate) fn launch(&self) -> Launch {
        let words = ["strace", "-D"].map(str::to_owned).into_iter();
        Launch::under(words.chain(self.options.iter().cloned()).collect())
    }

    /// Traces one thread of a running node from now on.
    pub(crate) fn attach(&self, node: &Node, thread: &str) -> Attached {
        let id = node.thread(thread);
        let mut command = Command::new("strace");
        command.args(&self.options).arg("-p").arg(id.to_string());
        let mut child = command.stderr(Stdio::null()).spawn().expect("strace can be started");
        poll("strace attaches", || {
            let ended = child.try_wait().expect("strace can be looked at").is_some();
            // What it was to do may have ended the node already.
            assert!(
                !ended || !self.seen().is_empty(),
                "strace cannot attach: run as root, or with the sysctl kernel.yama.ptrace_scope=0"
            );
            (ended || is_traced(node.pid(), id)).then_some(())
        });
        Attached(child)
    }

    /// What it has written so far.
    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Whether a call has been delayed: what was delayed after its end stays so.
    pub(crate) fn is_holding(&self) -> bool {
        self.seen().contains("(DELAYED)")
    }

    /// How often it did what it was told to do.
    pub(crate) fn fired(&self) -> usize {
        let seen = self.seen();
        ["(INJECTED)", "(DELAYED)", "killed by SIGKILL"].iter().map(|mark| seen.matches(mark).count()).sum()
    }
}

/// strace at work on a thread; let go when dropped.
pub(crate) struct Attached(Child);

impl Drop for Attached {
    fn drop(&mut self) {
        // It may have ended with its thread. A thread it holds goes on, or dies if it was told to.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_traced(process: u32, thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
}

/// Fails in plain words where strace is missing: a fault that cannot be made is not a fault that was survived.
fn require() {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let look =
        || Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|it| it.success());
    assert!(*FOUND.get_or_init(look), "this test needs strace: run ./test, which installs it");
}
