//! Two processes on one folder, and a process that is told to stop.

use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::account_after_restart;
use crate::crash::{Actors, Sent};
use crate::node::{Draft, Node, binary, new_id, poll};
use crate::strace::{FLUSHES, Strace};

/// ENG-2
#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_same_folder_is_refused() {
    let node = Node::start();
    let cast = node.cast().await;
    let second = Command::new(binary())
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(node.data())
        .env_remove("SNAVIO_TEST_LONG")
        .env_remove("SNAVIO_TEST_SEED")
        .output()
        .expect("a second process can be started");
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("is in use by another process; stop it, or choose another data folder"), "{said}");
    let tally = Arc::default();
    Actors::new(&node, &cast, &tally).send_new("pay").await.expect("the first goes on");
}

/// PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn a_node_told_to_stop_answers_what_is_under_way_and_takes_nothing_more() {
    const REQUESTS: usize = 5;
    let mut node = Node::start();
    let cast = node.cast().await;
    let tally = Arc::default();
    let actors = Arc::new(Actors::new(&node, &cast, &tally));
    actors.send_new("pay").await.expect("the node answers");
    let strace = Strace::of(FLUSHES, node.folder().join("trace")).inject(FLUSHES, "delay_enter=1000000");
    let tracing = strace.attach(&node, "snavio-writer");
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS {
        let actors = Arc::clone(&actors);
        requests.spawn(async move { actors.send(&Draft::new("pay", &new_id())).await });
    }
    poll(Duration::from_secs(5), "a flush is under way", || strace.seen().contains("fsync(").then_some(()));
    // Every request is either in that flush or waits for the next one.
    wait_for_requests(&node, REQUESTS);
    node.signal("TERM");
    let address = node.url().trim_start_matches("http://").to_owned();
    poll(Duration::from_secs(5), "new connections are refused", || TcpStream::connect(&address).err());
    assert!(node.ended().is_none(), "it does not leave while requests are under way");
    let answers = requests.join_all().await;
    assert_eq!(answers, vec![Sent::Acknowledged; REQUESTS]);
    let status = node.wait();
    assert_eq!((status.code(), status.signal()), (Some(0), None), "{}", node.said());
    assert!(strace.fired() >= 1, "{}", strace.seen());
    drop((tracing, actors));
    account_after_restart(&mut node, &cast, tally).await;
}

/// Waits until so many connections to the node have nothing left to read: their requests are under way.
fn wait_for_requests(node: &Node, count: usize) {
    let port: u16 = node.url().rsplit(':').next().and_then(|it| it.parse().ok()).expect("a port");
    let local = format!(":{port:04X}");
    poll(Duration::from_secs(5), "all requests have arrived", || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("connections can be listed");
        let read = table.lines().filter(|line| {
            let mut fields = line.split_whitespace();
            let (_, address, _, state, queues) =
                (fields.next(), fields.next(), fields.next(), fields.next(), fields.next());
            address.is_some_and(|it| it.ends_with(&local))
                && state == Some("01")
                && queues == Some("00000000:00000000")
        });
        (read.count() >= count).then_some(())
    });
}
