//! What every sink must do (DLV-1, DLV-4, QUA-6), as functions over [`Outside`]: a sink's own test file only says how it and
//! somebody for it to call are made, and [`conformance!`](crate::conformance!) runs them all.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use snavio_model::delivery::breaker::Presence;
use snavio_model::delivery::processing::{Called, Ending, UnknownOutcome};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::{CorrelationId, Traceparent};
use tokio::time::Instant;

use crate::{Call, Sink};

/// More than any attempt here takes that is answered.
const AMPLE: Duration = Duration::from_secs(20);
/// For attempts that must run out of time.
const SHORT: Duration = Duration::from_secs(2);
/// What is sent in short: nothing, too, as an event without data is in binary mode.
const BODIES: [&str; 2] = [r#"{"amount":"10.00"}"#, ""];
/// What somebody who is busy asks for.
pub const ASKED_FOR: Duration = Duration::from_secs(7);

/// How somebody treats what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Takes it, and says so.
    Takes,
    /// Is busy, and asks to be left alone for [`ASKED_FOR`].
    IsBusy,
    /// Says that it does not want this one.
    Refuses,
    /// Reads it, and never says anything.
    IsSilent,
    /// Reads it, and hangs up.
    HangsUp,
    /// Takes it, and says so without an end.
    Floods,
}

/// What somebody was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The message's id.
    pub message_id: String,
    /// The delivery's.
    pub delivery_id: String,
    /// The message.
    pub body: Vec<u8>,
}

/// Somebody on this machine who is sent something.
#[async_trait]
pub trait Receiver: Send + Sync {
    /// Where it is.
    fn address(&self) -> String;

    /// The same address in other words, each of which must be seen through.
    fn disguises(&self) -> Vec<String>;

    /// What it was sent next.
    async fn next(&mut self) -> Taken;

    /// How often it was connected to.
    fn connections(&self) -> usize;
}

/// A sink under test, and those whom it calls.
#[async_trait]
pub trait Outside: Send + Sync {
    /// The sink; it may call this machine, or as in production may not.
    fn sink(&self, calls_this_machine: bool) -> Arc<dyn Sink>;

    /// Somebody on this machine who behaves so.
    async fn receiver(&self, behaviour: Behaviour) -> Box<dyn Receiver>;

    /// An address on this machine where nobody is.
    async fn nobody(&self) -> String;

    /// Whether a refusal is for good; otherwise it is tried again like everything else.
    fn refuses_for_good(&self) -> bool;
}

fn call(address: &str, attempt: u32) -> Call {
    Call {
        url: address.to_owned(),
        target: "acme/ledger".parse().expect("it is a service's name"),
        timeout: AMPLE,
        reference: None,
        on_unknown_outcome: UnknownOutcome::Retry,
        message_id: MessageId::stored("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f"),
        source: "acme/shop".parse().expect("it is a service's name"),
        fence: Serial(268_435_456 + i64::from(attempt)),
        delivery_id: Serial(268_435_456),
        attempt,
        correlation: CorrelationId::new("order 7").expect("it is a correlation id"),
        traceparent: Traceparent::from_random([7; 24]),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: r#"{"amount":"10.00"}"#.into(),
    }
}

async fn send(outside: &dyn Outside, call: Call) -> Called {
    outside.sink(true).send(call).await
}

/// DLV-4
pub async fn what_is_taken_is_done(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::Takes).await;
    let called = send(outside, call(&receiver.address(), 1)).await;
    assert!(matches!(called.ending, Ending::Completed { .. }), "{called:?}");
    assert_eq!(called.presence, Presence::Up);
    receiver.next().await;
}

/// DLV-4
pub async fn who_is_busy_is_called_again_when_it_asked_for_that(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::IsBusy).await;
    let called = send(outside, call(&receiver.address(), 1)).await;
    let Ending::Failed { is_final: false, retry_after, error, .. } = &called.ending else {
        panic!("{called:?}")
    };
    assert_eq!(*retry_after, Some(ASKED_FOR));
    assert!(!error.is_empty(), "people are told why");
    assert_eq!(called.presence, Presence::Down { retry_after: Some(ASKED_FOR) });
    receiver.next().await;
}

/// DLV-4: a refusal is of one message, and says that somebody is there for others.
pub async fn who_refuses_is_there(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::Refuses).await;
    let called = send(outside, call(&receiver.address(), 1)).await;
    let Ending::Failed { is_final, .. } = called.ending else { panic!("{called:?}") };
    assert_eq!((is_final, called.presence), (outside.refuses_for_good(), Presence::Up));
    receiver.next().await;
}

/// CLM-7, DLV-4
pub async fn what_is_not_answered_in_time_is_in_doubt(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::IsSilent).await;
    let began = Instant::now();
    let called = send(outside, Call { timeout: SHORT, ..call(&receiver.address(), 1) }).await;
    assert!(matches!(called.ending, Ending::Unknown { .. }), "{called:?}");
    assert_eq!(called.presence, Presence::SILENT);
    assert!(
        (SHORT..AMPLE / 2).contains(&began.elapsed()),
        "its time was {SHORT:?}, not {:?}",
        began.elapsed()
    );
    receiver.next().await;
}

/// CLM-7
pub async fn what_was_sent_before_the_connection_was_lost_is_in_doubt(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::HangsUp).await;
    let called = send(outside, call(&receiver.address(), 1)).await;
    assert!(matches!(called.ending, Ending::Unknown { .. }), "{called:?}");
    assert_eq!(called.presence, Presence::SILENT);
    receiver.next().await;
}

/// DLV-4
pub async fn who_is_not_there_was_sent_nothing(outside: &dyn Outside) {
    for body in BODIES {
        let called = send(outside, Call { body: body.into(), ..call(&outside.nobody().await, 1) }).await;
        assert!(matches!(called.ending, Ending::Failed { is_final: false, .. }), "{body:?}: {called:?}");
        assert_eq!(called.presence, Presence::SILENT);
    }
}

/// DLV-3
pub async fn ids_stay_the_same_over_attempts(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::IsBusy).await;
    let mut taken = Vec::new();
    for attempt in 1..=3 {
        send(outside, call(&receiver.address(), attempt)).await;
        taken.push(receiver.next().await);
    }
    let expected = call("", 1);
    let (message_id, delivery_id) = (expected.message_id.to_string(), expected.delivery_id.to_string());
    let expected = Taken { message_id, delivery_id, body: expected.body.to_vec() };
    assert_eq!(taken, [expected.clone(), expected.clone(), expected]);
}

/// MSG-10
pub async fn bytes_arrive_as_they_are(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::Takes).await;
    let every: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    for body in [&b"{ \"a\" :\t1.00 }\n"[..], b"", "\"\u{1f600}\\u00e9\"".as_bytes(), &every] {
        let called =
            send(outside, Call { body: Bytes::copy_from_slice(body), ..call(&receiver.address(), 1) }).await;
        assert!(matches!(called.ending, Ending::Completed { .. }), "{called:?}");
        assert!(receiver.next().await.body == body, "{} bytes came otherwise", body.len());
    }
}

/// QUA-6: nothing is, whatever is sent, nor is anybody told which address a name stands for here.
pub async fn nothing_is_sent_to_where_it_may_not_be(outside: &dyn Outside) {
    let receiver = outside.receiver(Behaviour::Takes).await;
    for address in receiver.disguises().into_iter().chain([receiver.address()]) {
        for body in BODIES {
            let called = outside.sink(false).send(Call { body: body.into(), ..call(&address, 1) }).await;
            let Ending::Failed { error, .. } = &called.ending else { panic!("{address}: {called:?}") };
            let tells =
                ["127.0.0.1", "::1"].into_iter().find(|it| !address.contains(it) && error.contains(it));
            assert_eq!(tells, None, "{address}: {error}");
        }
    }
    assert_eq!(receiver.connections(), 0, "not even connected to");
}

/// QUA-6
pub async fn no_more_is_read_than_is_needed(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::Floods).await;
    let began = Instant::now();
    let called = send(outside, call(&receiver.address(), 1)).await;
    assert!(matches!(called.ending, Ending::Completed { .. }), "{called:?}");
    assert!(began.elapsed() < AMPLE / 2, "it waited for an end that does not come");
    receiver.next().await;
}

/// Runs the suite against a sink: each function as a test of its own.
#[macro_export]
macro_rules! conformance {
    ($outside:expr) => {
        $crate::conformance! { @each $outside,
            what_is_taken_is_done, who_is_busy_is_called_again_when_it_asked_for_that, who_refuses_is_there,
            what_is_not_answered_in_time_is_in_doubt, what_was_sent_before_the_connection_was_lost_is_in_doubt,
            who_is_not_there_was_sent_nothing, ids_stay_the_same_over_attempts, bytes_arrive_as_they_are,
            nothing_is_sent_to_where_it_may_not_be, no_more_is_read_than_is_needed
        }
    };
    (@each $outside:expr, $($rule:ident),+) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::conformance::$rule(&$outside).await;
            }
        )+
    };
}
