//! HTTP processors and receivers over real sockets: every answer, every fault, and addresses that must not be
//! called.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod addresses;
mod answers;
mod faults;
mod push;
mod server;

use std::time::Duration;

use snavio_model::delivery::processing::{Called, Ending, UnknownOutcome};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::{CorrelationId, Traceparent};
use snavio_sink::{Call, HttpProcessor, Network};

/// Longer than anything in these tests takes.
const AMPLE: Duration = Duration::from_secs(30);

/// A processor that may call this machine.
fn processor() -> HttpProcessor {
    HttpProcessor::new(&[Network::parse("127.0.0.0/8").unwrap()]).unwrap()
}

fn call(url: &str) -> Call {
    Call {
        url: url.to_owned(),
        target: "acme/ledger".parse().unwrap(),
        timeout: AMPLE,
        reference: Some("/reference".to_owned()),
        on_unknown_outcome: UnknownOutcome::Retry,
        message_id: MessageId::stored("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f"),
        source: "acme/shop".parse().unwrap(),
        fence: Serial(268_435_457),
        delivery_id: Serial(268_435_456),
        attempt: 3,
        correlation: CorrelationId::new("order 7").unwrap(),
        traceparent: Traceparent::from_random([7; 24]),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: r#"{"amount":"10.00"}"#.into(),
    }
}

/// Renders the result of a call in one line.
fn summary(called: &Called) -> String {
    match &called.ending {
        Ending::Completed { answer, reference, .. } => {
            let status = answer.as_ref().map(|answer| answer.status);
            format!("done {} {}", status.unwrap_or_default(), reference.as_deref().unwrap_or("-"))
        }
        Ending::Failed { error, is_final, answer, retry_after } => {
            let word = if *is_final { "final" } else { "again" };
            let wait = retry_after.map(|wait| format!(", after {wait:?}")).unwrap_or_default();
            let kept = if answer.is_some() { ", answer kept" } else { "" };
            format!("{word}: {error}{kept}{wait}")
        }
        Ending::Unknown { error } => format!("unknown: {error}"),
    }
}
