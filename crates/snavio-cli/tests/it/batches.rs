//! Batches and streams (PIP-8): each entry gets its own verdict, in order, and no entry affects another.

use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use snavio_model::bounds;
use tokio::sync::mpsc;

use crate::node::{Cast, Draft, Launch, Node, drain, new_id, seconds_from_now};
use crate::wire::{Answered, http, post_json};

struct Fixture {
    node: Node,
    cast: Cast,
    token: String,
}

impl Fixture {
    async fn start() -> Self {
        Self::launch(&Launch::default()).await
    }

    async fn launch(launch: &Launch) -> Self {
        let node = Node::launch(launch);
        let cast = node.cast().await;
        let token = node.token(&cast.billing).await;
        Self { node, cast, token }
    }

    fn sign(&self, draft: &Draft) -> String {
        String::from_utf8(draft.sign(&self.cast.billing)).expect("a message is text")
    }

    async fn post(&self, entries: &[String]) -> Answered {
        self.post_text(format!("[{}]", entries.join(","))).await
    }

    async fn post_text(&self, body: String) -> Answered {
        Answered::to(post_json(&self.node, "/v1/commands/batch", &self.token, body)).await
    }

    /// Status and id of each entry's verdict.
    async fn verdicts(&self, entries: &[String]) -> Vec<(u64, String)> {
        let answer = self.post(entries).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.document()["results"].as_array().into_iter().flatten().map(verdict).collect()
    }

    async fn delivered(&self, name: &str) -> Vec<String> {
        let deliveries = drain(&self.node.client(&self.cast.bot), &format!("{name}-inbox")).await;
        let ids = deliveries.iter().map(|delivery| delivery.message.id().unwrap_or_default().to_owned());
        ids.collect()
    }
}

fn verdict(result: &Value) -> (u64, String) {
    let id = result["id"].as_str().unwrap_or_default().to_owned();
    (result["status"].as_u64().unwrap_or_default(), id)
}

fn drafts(name: &str, count: usize) -> Vec<Draft> {
    (0..count).map(|_| Draft::new(name, &new_id())).collect()
}

/// PIP-8
#[tokio::test]
async fn full_batch_gets_a_verdict_each_in_order() {
    // The batch takes two commits. They keep the order of its messages only if one follows the other.
    let fixture = Fixture::launch(&Launch::default().set("STORE_BATCHES_AT_ONCE", 1)).await;
    let drafts = drafts("notify", bounds::BATCH_MESSAGES_MAX);
    let entries: Vec<_> = drafts.iter().map(|draft| fixture.sign(draft)).collect();
    let verdicts = fixture.verdicts(&entries).await;
    let expected: Vec<_> = drafts.iter().map(|draft| (202, draft.id.clone())).collect();
    assert!(verdicts == expected, "{:?}", verdicts.iter().zip(&expected).find(|(is, should)| is != should));
    let sent: Vec<_> = drafts.into_iter().map(|draft| draft.id).collect();
    assert!(fixture.delivered("notify").await == sent, "deliveries keep the order of the batch");
}

/// PIP-8, MSG-10
#[tokio::test]
async fn batch_over_its_limits_is_refused_whole() {
    let fixture = Fixture::start().await;
    let entries: Vec<_> =
        drafts("notify", bounds::BATCH_MESSAGES_MAX + 1).iter().map(|draft| fixture.sign(draft)).collect();
    assert_eq!(fixture.post(&entries).await.refusal(), (413, "too_large".into()));
    let entry = fixture.sign(&Draft::new("notify", &new_id()));
    let mut large = format!("[{entry}");
    large.push_str(&" ".repeat(bounds::BATCH_BYTES_MAX - large.len()));
    large.push(']');
    assert_eq!(fixture.post_text(large).await.refusal(), (413, "too_large".into()));
    for text in ["{}", "[", "[1,]", "", "[] x", "[[", "nothing"] {
        assert_eq!(fixture.post_text(text.into()).await.refusal(), (400, "malformed".into()), "{text:?}");
    }
    assert!(fixture.delivered("notify").await.is_empty());
}

/// PIP-8
#[tokio::test]
async fn empty_batch_has_no_verdicts() {
    let fixture = Fixture::start().await;
    let answer = fixture.post(&[]).await;
    assert_eq!((answer.status, answer.document()), (200, json!({ "results": [] })));
}

/// PIP-8
#[tokio::test]
async fn bad_entry_of_any_kind_affects_no_other() {
    let fixture = Fixture::start().await;
    let good = drafts("notify", 12);
    let [late, ungranted, routeless] = [
        Draft { timestamp: seconds_from_now(-90), ..Draft::new("notify", &new_id()) },
        Draft::new("delete-user", &new_id()),
        Draft::new("lost", &new_id()),
    ]
    .map(|draft| fixture.sign(&draft));
    let forged =
        String::from_utf8_lossy(&Draft::new("notify", &new_id()).sign(&fixture.cast.bot)).into_owned();
    let large = format!(r#"{{"x":"{}"}}"#, "x".repeat(bounds::BODY_BYTES_DEFAULT));
    let kinds = [
        (forged, 401, "hmac_invalid"),
        (late, 401, "timestamp_out_of_window"),
        (ungranted, 403, "acl-deny"),
        (routeless, 404, "route-missing"),
        ("17".to_owned(), 400, "malformed"),
        ("NaN".to_owned(), 400, "malformed"),
        ("{}".to_owned(), 400, "malformed"),
        ("[[[1]]]".to_owned(), 400, "malformed"),
        (r#"{"metadata":{},"metadata":{}}"#.to_owned(), 400, "duplicate_member"),
        (r#"{"metadata":{"id":1e9999}}"#.to_owned(), 400, "number_range"),
        (large, 413, "too_large"),
    ];
    let mut entries = vec![fixture.sign(&good[0])];
    for ((entry, ..), draft) in kinds.iter().zip(&good[1..]) {
        entries.extend([entry.clone(), fixture.sign(draft)]);
    }
    let answer = fixture.post(&entries).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let results = answer.document()["results"].as_array().cloned().unwrap_or_default();
    assert_eq!(results.len(), entries.len());
    for (draft, result) in good.iter().zip(results.iter().step_by(2)) {
        assert_eq!(verdict(result), (202, draft.id.clone()));
    }
    for ((_, status, reason), result) in kinds.iter().zip(results.iter().skip(1).step_by(2)) {
        assert_eq!((&result["status"], &result["reason"]), (&json!(status), &json!(reason)), "{result}");
        assert_eq!(result["accepted"], false);
    }
    let sent: Vec<_> = good.iter().take(kinds.len() + 1).map(|draft| draft.id.clone()).collect();
    assert_eq!(fixture.delivered("notify").await, sent);
}

/// MSG-10, PIP-8: the gateway cannot separate the entries of a broken array, so it refuses all of them.
#[tokio::test]
async fn entry_that_breaks_the_array_fails_the_whole_batch() {
    let fixture = Fixture::start().await;
    let good = fixture.sign(&Draft::new("notify", &new_id()));
    for broken in ["{", r#"{"a":1"#, "\"a"] {
        let answer = fixture.post(&[good.clone(), broken.to_owned()]).await;
        assert_eq!(answer.refusal().0, 400, "{broken}: {}", answer.text);
    }
    assert!(fixture.delivered("notify").await.is_empty());
}

/// PIP-8, CLM-4
#[tokio::test]
async fn second_entry_with_an_id_is_a_duplicate() {
    let fixture = Fixture::start().await;
    for _ in 0..25 {
        let first = Draft::new("pay", &new_id());
        let again = Draft { timestamp: seconds_from_now(1), ..first.clone() };
        let neighbours = drafts("pay", 3);
        let mut entries = vec![fixture.sign(&first), fixture.sign(&again)];
        entries.extend(neighbours.iter().map(|draft| fixture.sign(draft)));
        let statuses: Vec<_> =
            fixture.verdicts(&entries).await.into_iter().map(|(status, _)| status).collect();
        assert_eq!(statuses, [202, 200, 202, 202, 202]);
    }
    assert_eq!(fixture.delivered("pay").await.len(), 25 * 4);
}

/// An open stream of lines. Dropping `lines` ends the request's body.
struct Lines {
    lines: mpsc::UnboundedSender<Vec<u8>>,
    answers: std::pin::Pin<Box<dyn Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    buffer: Vec<u8>,
}

impl Lines {
    async fn open(fixture: &Fixture) -> Self {
        let (lines, sent) = mpsc::unbounded_channel::<Vec<u8>>();
        let body = stream::unfold(sent, |mut sent| async {
            let part = sent.recv().await?;
            Some((Ok::<_, std::io::Error>(part), sent))
        });
        let request = http(&fixture.node).post(format!("{}/v1/commands/batch", fixture.node.url()));
        let request = request.bearer_auth(&fixture.token).header("content-type", "application/x-ndjson");
        let response = request.body(reqwest::Body::wrap_stream(body)).send().await.expect("the node answers");
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        Self { lines, answers: Box::pin(response.bytes_stream()), buffer: Vec::new() }
    }

    fn send(&self, part: impl Into<Vec<u8>>) {
        self.lines.send(part.into()).expect("the request is open");
    }

    /// The next line of the answer, or `None` at its end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("each line is JSON"));
            }
            let part = tokio::time::timeout(Duration::from_secs(20), self.answers.next()).await;
            match part.expect("an answer in time") {
                Some(Ok(part)) => self.buffer.extend_from_slice(&part),
                _ => return None,
            }
        }
    }

    /// Ends the request and reads the rest of the answers.
    async fn finish(mut self) -> Vec<Value> {
        self.lines = mpsc::unbounded_channel().0;
        let mut rest = Vec::new();
        while let Some(line) = self.next().await {
            rest.push(line);
        }
        rest
    }
}

/// PIP-8
#[tokio::test]
async fn open_stream_is_answered_line_by_line() {
    let fixture = Fixture::start().await;
    let mut lines = Lines::open(&fixture).await;
    for draft in drafts("notify", 3) {
        lines.send(format!("{}\n", fixture.sign(&draft)));
        assert_eq!(lines.next().await.as_ref().map(verdict), Some((202, draft.id)));
    }
    lines.send("17\n");
    assert_eq!(lines.next().await.map(|result| result["reason"].clone()), Some(json!("malformed")));
    let slow = Draft::new("notify", &new_id());
    let text = fixture.sign(&slow);
    let (begin, end) = text.split_at(100);
    lines.send(begin);
    lines.send("");
    lines.send(format!("{end}\n\n  \r\n"));
    assert_eq!(
        lines.next().await.as_ref().map(verdict),
        Some((202, slow.id)),
        "a line may come in pieces, and blank lines are skipped"
    );
    let last = Draft::new("notify", &new_id());
    lines.send(fixture.sign(&last));
    let rest = lines.finish().await;
    assert_eq!(rest.iter().map(verdict).collect::<Vec<_>>(), [(202, last.id)], "the last needs no line feed");
    assert_eq!(fixture.delivered("notify").await.len(), 5);
}

/// PIP-8
#[tokio::test]
async fn long_stream_is_answered_completely_in_order() {
    let fixture = Fixture::start().await;
    let drafts = drafts("notify", 1200);
    let lines = Lines::open(&fixture).await;
    for part in drafts.chunks(40) {
        lines.send(part.iter().map(|draft| format!("{}\n", fixture.sign(draft))).collect::<String>());
    }
    let answers = lines.finish().await;
    let expected: Vec<_> = drafts.iter().map(|draft| (202, draft.id.clone())).collect();
    let verdicts: Vec<_> = answers.iter().map(verdict).collect();
    assert!(verdicts == expected, "{:?}", verdicts.iter().zip(&expected).find(|(is, should)| is != should));
}

/// PIP-8, MSG-10
#[tokio::test]
async fn overlong_line_ends_the_stream_after_earlier_lines() {
    let fixture = Fixture::start().await;
    let before = Draft::new("notify", &new_id());
    let lines = Lines::open(&fixture).await;
    lines.send(format!("{}\n", fixture.sign(&before)));
    for _ in 0..6 {
        lines.send(vec![b'x'; bounds::BODY_BYTES_DEFAULT / 5]);
    }
    let mut lines = lines;
    assert_eq!(lines.next().await.as_ref().map(verdict), Some((202, before.id.clone())));
    let refused = lines.next().await.expect("the line is answered");
    assert_eq!((&refused["status"], &refused["reason"]), (&json!(413), &json!("too_large")));
    assert_eq!(lines.next().await, None);
    assert_eq!(fixture.delivered("notify").await, [before.id]);
}
