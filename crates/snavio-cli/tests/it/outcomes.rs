//! Metrics and log lines of work that a worker reports (CLM-21).

use serde_json::json;

use crate::node::new_id;
use crate::patience::eventually;
use crate::processing::Books;
use crate::wire::metric;

/// CLM-21: a worker that lost the answer to its report sends it again; the gateway counts it once.
#[tokio::test]
async fn repeated_report_is_counted_once() {
    let books = Books::set(json!({ "kind": "tracked" })).await;
    books.send(&new_id(), 10).await;
    let work = books.take(30).await;
    for _ in 0..3 {
        let (status, answer) = books.report("complete", &work, json!({})).await;
        assert_eq!((status, &answer["status"]), (200, &json!("COMPLETED")), "{answer}");
    }
    assert_eq!(metric(&books.node, "events_processed_total{status=\"new\"}").await, Some(1.0));

    books.send(&new_id(), 11).await;
    let work = books.take(30).await;
    for _ in 0..3 {
        let (status, answer) = books.report("fail", &work, json!({ "error": "closed", "final": true })).await;
        assert_eq!((status, &answer["status"]), (200, &json!("FAILED")), "{answer}");
    }
    assert_eq!(metric(&books.node, "events_processed_total{status=\"failed\"}").await, Some(1.0));
    let lines = |said: String| said.lines().filter(|line| line.contains("an attempt failed")).count();
    assert_eq!(lines(books.node.said()), 1);
}

/// CLM-21
#[tokio::test]
async fn failed_and_lapsed_attempts_are_logged_as_warnings() {
    let books = Books::set(json!({ "kind": "tracked", "deadline_seconds": 1, "backoff_seconds": 1 })).await;
    books.send(&new_id(), 10).await;
    let work = books.take(30).await;
    let (status, answer) = books.report("fail", &work, json!({ "error": "the period is closed" })).await;
    assert_eq!(status, 200, "{answer}");
    let said = books.node.said();
    let line = said.lines().find(|line| line.contains("an attempt failed")).expect("it is said");
    for part in ["WARN", "the period is closed", "acme/paid", &work.delivery_id.to_string(), "FAILED"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    books.take(1).await;
    let line = eventually("the lease has ended", async || {
        let said = books.node.said();
        said.lines().find(|line| line.contains("nobody reported on attempts in time")).map(str::to_owned)
    })
    .await;
    assert!(line.contains("WARN"), "{line}");
}

/// CLM-21: the node logs at most a few lines for a flood of failures.
#[tokio::test]
async fn flood_of_failures_logs_few_lines() {
    const WORKS: usize = 60;
    let books = Books::set(json!({ "kind": "tracked" })).await;
    for amount in 0..WORKS {
        books.send(&new_id(), amount as u32).await;
    }
    let mut works = Vec::new();
    for _ in 0..WORKS {
        works.push(books.take(60).await);
    }
    let receipts: Vec<_> =
        works.iter().map(|work| json!({ "delivery_id": work.delivery_id, "fence": work.fence })).collect();
    let body = json!({ "receipts": receipts, "delay_seconds": 60 });
    let (status, answer) = books.ask(reqwest::Method::POST, "/v1/queues/paid/release", Some(body)).await;
    assert_eq!(status, 200, "{answer}");
    let (each, more) = eventually("every failure is logged or counted in a summary", async || {
        let said = books.node.said();
        let each = said.lines().filter(|line| line.contains("an attempt failed")).count();
        let more = said.lines().filter(|line| line.contains("more attempts failed")).filter_map(|line| {
            let digits = line.split_once("count")?.1.chars().skip_while(|char| !char.is_ascii_digit());
            digits.take_while(char::is_ascii_digit).collect::<String>().parse::<usize>().ok()
        });
        let more: usize = more.sum();
        (each + more == WORKS).then_some((each, more))
    })
    .await;
    assert!((10..=30).contains(&each), "{each} lines, and {more} more");
    assert_eq!(metric(&books.node, "events_processed_total{status=\"failed\"}").await, Some(WORKS as f64));
}
