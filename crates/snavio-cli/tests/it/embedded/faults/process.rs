//! Two processes on one data folder, and a process that gets a stop signal.

use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use super::account_after_restart;
use crate::embedded::crash::{Actors, Tally};
use crate::node::{Draft, Node, binary, new_id};
use crate::patience::poll;
use crate::raw_wire::{Wire, json_request};
use crate::strace::{FLUSHES, Strace};

/// ENG-2
#[tokio::test(flavor = "multi_thread")]
async fn second_process_on_same_folder_is_refused() {
    let node = Node::start();
    let cast = node.cast().await;
    let second = Command::new(binary())
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(node.data())
        .output()
        .expect("a second process can be started");
    let log = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{log}");
    assert!(log.contains("is in use by another process; stop it, or choose another data folder"), "{log}");
    let tally = Arc::default();
    Actors::new(&node, &cast, &tally).send_new("pay").await.expect("the first process still answers");
}

/// PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn stopping_node_answers_open_requests_and_accepts_no_more() {
    const REQUESTS: usize = 5;
    let mut node = Node::start();
    let cast = node.cast().await;
    let token = node.token(&cast.billing).await;
    let strace = Strace::of(FLUSHES, node.folder().join("trace")).inject(FLUSHES, "delay_enter=1000000");
    let tracing = strace.attach(&node, "snavio-writer");
    let drafts: Vec<_> = (0..REQUESTS).map(|_| Draft::new("pay", &new_id())).collect();
    let under_way = drafts.iter().map(|draft| {
        let mut wire = Wire::to(&node);
        assert!(wire.send(json_request("/v1/commands", &token, &draft.sign(&cast.billing))));
        wire
    });
    let under_way: Vec<_> = under_way.collect();
    poll("a flush is under way", || strace.seen().contains("fsync(").then_some(()));
    wait_until_read(&node);

    node.signal("TERM");
    let address = node.url().trim_start_matches("http://").to_owned();
    poll("new connections are refused", || TcpStream::connect(&address).err());
    assert!(node.ended().is_none(), "the process does not end while requests are under way");
    let tally: Arc<Mutex<Tally>> = Arc::default();
    for (mut wire, draft) in under_way.into_iter().zip(&drafts) {
        assert_eq!(wire.answer().status, 202);
        tally.lock().unwrap().acknowledged(&draft.id, true, false);
    }
    let status = node.wait();
    assert_eq!((status.code(), status.signal()), (Some(0), None), "{}", node.said());
    assert!(strace.fired() >= 1, "{}", strace.seen());
    drop(tracing);
    account_after_restart(&mut node, &cast, tally).await;
}

/// Waits until the node has read all sent bytes: the kernel's receive queues of its connections are empty.
fn wait_until_read(node: &Node) {
    let port: u16 = node.url().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let local = format!(":{port:04X}");
    poll("all requests were read", || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("connections can be listed");
        let mut connections = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let unread = connections.any(|fields| {
            let (address, queues) = (fields.get(1), fields.get(4));
            address.is_some_and(|field| field.ends_with(&local))
                && queues.is_some_and(|field| !field.ends_with(":00000000"))
        });
        (!unread).then_some(())
    });
}
