//! A proxy between a node and its database that injects the faults of networks: it cuts, delays and drops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A fault of the next statement of at least [`LARGE`] bytes, which only a batch has, or of the next
/// `COMMIT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Forwards the statement and closes the connection at the answer: the commit has happened, and the node
    /// does not know.
    CutAfter,
    /// Closes the connection before the whole statement is forwarded: no commit happens, and the node does
    /// not know.
    CutBefore,
    /// Forwards the statement late.
    Delay,
    /// Drops the statement and everything after it, and closes the connection some time later.
    Swallow,
}

pub(crate) const FAULTS: [Fault; 4] = [Fault::CutAfter, Fault::CutBefore, Fault::Delay, Fault::Swallow];

/// Larger requests of a node carry a batch of messages.
const LARGE: usize = 4_000;
const DELAY: Duration = Duration::from_millis(300);
const SWALLOWED_FOR: Duration = Duration::from_millis(700);

/// The state of the injected faults, and how often each fired.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) fired: [AtomicU64; 4],
    statements: AtomicUsize,
    /// One in so many statements meets a fault. Zero means none.
    pub(crate) one_in: AtomicUsize,
    /// Whether the `COMMIT` of a transaction of several statements may meet a fault as well.
    pub(crate) at_commits: AtomicBool,
    /// While it is set, the proxy forwards nothing in either direction and closes no connection.
    pub(crate) frozen: AtomicBool,
}

impl Faults {
    fn next(&self) -> Option<Fault> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        let number = self.statements.fetch_add(1, Ordering::Relaxed);
        if one_in == 0 || number % one_in != one_in - 1 {
            return None;
        }
        let index = (number / one_in) % FAULTS.len();
        self.fired[index].fetch_add(1, Ordering::Relaxed);
        Some(FAULTS[index])
    }

    async fn wait_while_frozen(&self) {
        while self.frozen.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn fired(&self) -> [u64; 4] {
        self.fired.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// Starts a proxy to a port on this machine and returns the proxy's port.
pub(crate) async fn start(to: u16, faults: Arc<Faults>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((node, _)) = listener.accept().await {
            let faults = Arc::clone(&faults);
            tokio::spawn(async move {
                if let Ok(database) = TcpStream::connect(("127.0.0.1", to)).await {
                    // Dropping the streams closes both connections, with or without an error.
                    let _ = pass(node, database, &faults).await;
                }
            });
        }
    });
    port
}

async fn pass(node: TcpStream, database: TcpStream, faults: &Faults) -> std::io::Result<()> {
    let (mut from_node, mut to_node) = node.into_split();
    let (mut from_database, mut to_database) = database.into_split();
    let cut = AtomicBool::new(false);
    let answers = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = from_database.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            faults.wait_while_frozen().await;
            if cut.load(Ordering::Relaxed) {
                return Err(std::io::ErrorKind::ConnectionReset.into());
            }
            to_node.write_all(&buffer[..count]).await?;
        }
    };
    let requests = async {
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let count = from_node.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            faults.wait_while_frozen().await;
            let has_commit = || buffer[..count].windows(7).any(|window| window == b"COMMIT\0");
            let may_fail = count >= LARGE || faults.at_commits.load(Ordering::Relaxed) && has_commit();
            let fault = if may_fail { faults.next() } else { None };
            match fault {
                None => to_database.write_all(&buffer[..count]).await?,
                Some(Fault::Delay) => {
                    tokio::time::sleep(DELAY).await;
                    to_database.write_all(&buffer[..count]).await?;
                }
                Some(Fault::CutAfter) => {
                    cut.store(true, Ordering::Relaxed);
                    to_database.write_all(&buffer[..count]).await?;
                }
                Some(Fault::CutBefore) => {
                    to_database.write_all(&buffer[..count / 2]).await?;
                    return Err(std::io::ErrorKind::ConnectionReset.into());
                }
                Some(Fault::Swallow) => {
                    tokio::time::sleep(SWALLOWED_FOR).await;
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
            }
        }
    };
    tokio::select! {
        ended = answers => ended,
        ended = requests => ended,
    }
}
