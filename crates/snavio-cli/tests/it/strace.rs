//! strace: traces the node's system calls, and makes chosen calls fail, wait or kill the process.
//!
//! strace counts per thread and call: `when=3` is the third `fsync` of one thread. With `-D` the launched
//! node is the traced process itself, so that its process id and exit status are the node's, not those of
//! strace.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::node::{Launch, Node};
use crate::patience::poll;

/// The calls that change the store's files.
pub(crate) const WRITES: &str = "pwrite64,pwritev,pwritev2,ftruncate,fallocate";
/// The calls that flush changes to disk. SQLite may be built to use either.
pub(crate) const FLUSHES: &str = "fsync,fdatasync";

/// The options of one run of strace.
#[derive(Debug, Clone)]
pub(crate) struct Strace {
    options: Vec<String>,
    output: PathBuf,
}

impl Strace {
    /// Traces the calls, a comma-separated list, into a file.
    pub(crate) fn of(calls: &str, output: PathBuf) -> Self {
        require_strace();
        // Remove the output of an earlier run, so that it is not read as this run's.
        let _ = std::fs::remove_file(&output);
        let options = vec!["-o".into(), output.display().to_string(), "-e".into(), format!("trace={calls}")];
        Self { options, output }
    }

    /// Injects a fault into some of the calls, for example `signal=SIGKILL:when=3`.
    pub(crate) fn inject(self, calls: &str, fault: &str) -> Self {
        self.option("-e").option(&format!("inject={calls}:{fault}"))
    }

    pub(crate) fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// The launch options of a node that is traced from its start.
    pub(crate) fn launch(&self) -> Launch {
        let words = ["strace", "-D"].map(str::to_owned).into_iter();
        Launch::under(words.chain(self.options.iter().cloned()).collect())
    }

    /// Attaches strace to one thread of a running node.
    pub(crate) fn attach(&self, node: &Node, thread: &str) -> Attached {
        let id = node.thread(thread);
        let mut command = Command::new("strace");
        command.args(&self.options).arg("-p").arg(id.to_string());
        let mut child = command.stderr(Stdio::null()).spawn().expect("strace can be started");
        poll("strace attaches", || {
            let ended = child.try_wait().expect("strace can be looked at").is_some();
            // The injected fault may have ended the node already.
            assert!(
                !ended || !self.seen().is_empty(),
                "strace cannot attach: run as root, or with the sysctl kernel.yama.ptrace_scope=0"
            );
            (ended || is_traced(node.pid(), id)).then_some(())
        });
        Attached(child)
    }

    /// The output so far.
    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Whether strace has delayed a call. It stays true after the delay has ended.
    pub(crate) fn is_holding(&self) -> bool {
        self.seen().contains("(DELAYED)")
    }

    /// The number of calls that strace has injected, delayed or killed at.
    pub(crate) fn fired(&self) -> usize {
        let seen = self.seen();
        ["(INJECTED)", "(DELAYED)", "killed by SIGKILL"].iter().map(|mark| seen.matches(mark).count()).sum()
    }
}

/// An strace that is attached to a thread; dropping it detaches the thread.
pub(crate) struct Attached(Child);

impl Drop for Attached {
    fn drop(&mut self) {
        // strace may have ended with its thread. A thread that it holds continues, or dies if it has a kill
        // pending.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_traced(process: u32, thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
}

/// Fails with a clear message if strace is missing: a fault that was not injected proves nothing.
fn require_strace() {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let look = || {
        Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    assert!(*FOUND.get_or_init(look), "this test needs strace: run ./test, which installs it");
}
