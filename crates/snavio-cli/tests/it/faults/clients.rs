//! Clients that hang up in the middle, and clients that all say the same thing at once.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::node::{Cast, Draft, Node, drain, new_id, post, until};

/// PIP-4, PIP-5
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_leaves_a_whole_message_or_none() {
    let node = Node::start();
    let cast = node.cast().await;
    let token = token(&node, &cast).await;
    let mut whole = Vec::new();
    let mut half = Vec::new();
    for round in 0..40 {
        let draft = Draft::new("pay", &new_id());
        let body = draft.sign(&cast.billing);
        let sent = if round % 2 == 0 { body.len() } else { body.len() / 2 };
        hang_up_after(&node, &token, &body, sent);
        if sent == body.len() { whole.push(draft) } else { half.push(draft) }
    }
    wait_until_quiet(&node).await;

    let delivered: Vec<_> = drain(&node.client(&cast.bot), "pay-inbox").await;
    let delivered: Vec<_> = delivered.iter().map(|it| it.message.metadata["id"].as_str().unwrap()).collect();
    let billing = node.client(&cast.billing);
    let mut there = 0;
    for draft in whole.iter().chain(&half) {
        let copies = delivered.iter().filter(|id| **id == draft.id).count();
        let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
        let known = answer["duplicate"] == true;
        assert_eq!((copies, status), if known { (1, 200) } else { (0, 202) }, "{}: {answer}", draft.id);
        there += copies;
    }
    assert!(there > 0, "nobody hung up late enough");
    assert!(half.iter().all(|draft| !delivered.contains(&&*draft.id)), "half a message was taken");
    println!(
        "hanging up: {there} of {} whole messages were taken, of {} halves none",
        whole.len(),
        half.len()
    );
}

/// Sends the head and the first bytes of the body, and closes the connection without reading.
fn hang_up_after(node: &Node, token: &str, body: &[u8], bytes: usize) {
    let address = node.url().trim_start_matches("http://");
    let head = format!(
        "POST /v1/commands HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).expect("the node takes connections");
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(&body[..bytes]))
        .expect("bytes can be sent");
}

/// Nothing waits and nothing was committed between two looks.
async fn wait_until_quiet(node: &Node) {
    let mut last = Value::Null;
    until(Duration::from_secs(20), "the dust settles", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let status = super::status(node).await;
        let quiet = status["waiting"] == 0 && status["store"]["commits"] == last;
        last = status["store"]["commits"].clone();
        quiet.then_some(())
    })
    .await;
}

async fn token(node: &Node, cast: &Cast) -> String {
    let form = format!(
        "grant_type=client_credentials&client_id={}&client_secret={}",
        cast.billing.client_id, cast.billing.client_secret
    );
    let content_type = "application/x-www-form-urlencoded";
    let answer = node.api().send(Method::POST, "/v1/token", Some(form.into_bytes()), content_type).await;
    answer.expect("the service is authenticated").1["access_token"].as_str().expect("a token").to_owned()
}

/// CLM-4
#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_at_once_under_one_id_one_is_dispatched() {
    const AT_ONCE: usize = 50;
    let node = Node::start();
    let cast = node.cast().await;
    let id = new_id();
    let mut racers = JoinSet::new();
    for number in 0..AT_ONCE {
        // Signed at different times: not even the memory of recent messages may decide this.
        let timestamp = crate::node::seconds_from_now(-(number as i64 % 30));
        let draft = Draft { timestamp, ..Draft::new("pay", &id) };
        let (client, body) = (node.client(&cast.billing), draft.sign(&cast.billing));
        racers.spawn(async move { post(&client, body).await });
    }
    let answers = racers.join_all().await;
    let accepted = answers.iter().filter(|(status, _)| *status == 202).count();
    let duplicates = answers.iter().filter(|(status, answer)| *status == 200 && answer["duplicate"] == true);
    assert_eq!((accepted, duplicates.count()), (1, AT_ONCE - 1), "{answers:?}");
    assert_eq!(drain(&node.client(&cast.bot), "pay-inbox").await.len(), 1);
}
