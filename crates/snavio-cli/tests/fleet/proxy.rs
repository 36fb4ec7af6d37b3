//! A proxy between a node and its database that does what networks do: cuts, delays, swallows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the proxy does to the next statement of at least [`LARGE`] bytes, which only a batch's is, or to a `COMMIT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Hands it on, and hangs up when the answer comes: the commit has happened, and nobody is told.
    CutAfter,
    /// Hangs up before all of it is handed on: nothing happens, and nobody is told.
    CutBefore,
    /// Hands it on late.
    Delay,
    /// Swallows it and everything after it, and hangs up a while later.
    Swallow,
}

pub(crate) const FAULTS: [Fault; 4] = [Fault::CutAfter, Fault::CutBefore, Fault::Delay, Fault::Swallow];

/// Requests of a node that are larger than this carry a batch of messages.
const LARGE: usize = 4_000;
const DELAY: Duration = Duration::from_millis(300);
const SWALLOWED_FOR: Duration = Duration::from_millis(700);

/// How often each fault fired, and which is next.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) fired: [AtomicU64; 4],
    statements: AtomicUsize,
    /// One in so many statements meets a fault; none while it is zero.
    pub(crate) one_in: AtomicUsize,
    /// Whether the end of a transaction of several statements may meet a fault as well.
    pub(crate) at_commits: AtomicBool,
    /// While it is set, nothing is handed on in either direction, and nobody is hung up on.
    pub(crate) frozen: AtomicBool,
}

impl Faults {
    fn next(&self) -> Option<Fault> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        let number = self.statements.fetch_add(1, Ordering::Relaxed);
        if one_in == 0 || number % one_in != one_in - 1 {
            return None;
        }
        let which = (number / one_in) % FAULTS.len();
        self.fired[which].fetch_add(1, Ordering::Relaxed);
        Some(FAULTS[which])
    }

    async fn thawed(&self) {
        while self.frozen.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn fired(&self) -> [u64; 4] {
        self.fired.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// Starts a proxy to a port, and gives back its own.
pub(crate) async fn start(to: u16, faults: Arc<Faults>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((node, _)) = listener.accept().await {
            let faults = Arc::clone(&faults);
            tokio::spawn(async move {
                if let Ok(database) = TcpStream::connect(("127.0.0.1", to)).await {
                    // However it ends, both sides are hung up on.
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
            faults.thawed().await;
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
            faults.thawed().await;
            let ends = || buffer[..count].windows(7).any(|it| it == b"COMMIT\0");
            let may_fail = count >= LARGE || faults.at_commits.load(Ordering::Relaxed) && ends();
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
