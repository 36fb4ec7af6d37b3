//! The contract of a sink (DLV-1, DLV-4, QUA-6), as test functions over [`Outside`]. A sink's test file
//! implements `Outside`, which makes the sink and a receiver for it to call.
//! [`conformance!`](crate::conformance!) runs all functions.

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

/// A timeout that no answered attempt reaches.
const AMPLE: Duration = Duration::from_secs(20);
/// A timeout for attempts that must reach it.
const SHORT: Duration = Duration::from_secs(2);
/// Short bodies. The empty one is real: an event without data in binary mode has no body.
const BODIES: [&str; 2] = [r#"{"amount":"10.00"}"#, ""];
/// The `Retry-After` of a busy receiver.
pub const ASKED_FOR: Duration = Duration::from_secs(7);

/// The behaviour of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Accepts the message and confirms it.
    Takes,
    /// Is busy and asks for the next attempt after [`ASKED_FOR`].
    IsBusy,
    /// Refuses this message.
    Refuses,
    /// Reads the message and never answers.
    IsSilent,
    /// Reads the message and closes the connection.
    HangsUp,
    /// Accepts the message and sends a response without an end.
    Floods,
}

/// A message that a receiver got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub message_id: String,
    pub delivery_id: String,
    pub body: Vec<u8>,
}

/// A receiver on this machine.
#[async_trait]
pub trait Receiver: Send + Sync {
    /// Its URL.
    fn address(&self) -> String;

    /// The same address in other notations. The sink must recognize each of them.
    fn disguises(&self) -> Vec<String>;

    /// Waits for the next message.
    async fn next(&mut self) -> Taken;

    /// The number of connections so far.
    fn connections(&self) -> usize;
}

/// A sink under test and the receivers that it calls.
#[async_trait]
pub trait Outside: Send + Sync {
    /// The sink. With `calls_this_machine` it may call loopback addresses; without, as in production, it may
    /// not.
    fn sink(&self, calls_this_machine: bool) -> Arc<dyn Sink>;

    /// A new receiver on this machine with this behaviour.
    async fn receiver(&self, behaviour: Behaviour) -> Box<dyn Receiver>;

    /// An address on this machine on which no process listens.
    async fn nobody(&self) -> String;

    /// Whether a refused message failed for good; otherwise it is retried like any other failure.
    fn refuses_for_good(&self) -> bool;
}

fn call(address: &str, attempt: u32) -> Call {
    Call {
        url: address.to_owned(),
        target: "acme/ledger".parse().expect("valid service name"),
        timeout: AMPLE,
        reference: None,
        on_unknown_outcome: UnknownOutcome::Retry,
        message_id: MessageId::stored("0192f0a0-7c3e-7b60-8c1d-1b2a3c4d5e6f"),
        source: "acme/shop".parse().expect("valid service name"),
        fence: Serial(268_435_456 + i64::from(attempt)),
        delivery_id: Serial(268_435_456),
        attempt,
        correlation: CorrelationId::new("order 7").expect("valid correlation id"),
        traceparent: Traceparent::from_random([7; 24]),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: r#"{"amount":"10.00"}"#.into(),
    }
}

async fn send(outside: &dyn Outside, call: Call) -> Called {
    outside.sink(true).send(call).await
}

/// DLV-4
pub async fn accepted_message_is_completed(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::Takes).await;
    let called = send(outside, call(&receiver.address(), 1)).await;
    assert!(matches!(called.ending, Ending::Completed { .. }), "{called:?}");
    assert_eq!(called.presence, Presence::Up);
    receiver.next().await;
}

/// DLV-4
pub async fn busy_receiver_sets_time_of_next_attempt(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::IsBusy).await;
    let called = send(outside, call(&receiver.address(), 1)).await;
    let Ending::Failed { is_final: false, retry_after, error, .. } = &called.ending else {
        panic!("{called:?}")
    };
    assert_eq!(*retry_after, Some(ASKED_FOR));
    assert!(!error.is_empty(), "the error has a text");
    assert_eq!(called.presence, Presence::Down { retry_after: Some(ASKED_FOR) });
    receiver.next().await;
}

/// DLV-4: a refusal concerns one message; the receiver is up for others.
pub async fn refusing_receiver_is_up(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::Refuses).await;
    let called = send(outside, call(&receiver.address(), 1)).await;
    let Ending::Failed { is_final, .. } = called.ending else { panic!("{called:?}") };
    assert_eq!((is_final, called.presence), (outside.refuses_for_good(), Presence::Up));
    receiver.next().await;
}

/// CLM-7, DLV-4
pub async fn timeout_leaves_outcome_unknown(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::IsSilent).await;
    let began = Instant::now();
    let called = send(outside, Call { timeout: SHORT, ..call(&receiver.address(), 1) }).await;
    assert!(matches!(called.ending, Ending::Unknown { .. }), "{called:?}");
    assert_eq!(called.presence, Presence::SILENT);
    assert!(
        (SHORT..AMPLE / 2).contains(&began.elapsed()),
        "the timeout was {SHORT:?}, and the attempt took {:?}",
        began.elapsed()
    );
    receiver.next().await;
}

/// CLM-7
pub async fn lost_connection_leaves_outcome_unknown(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::HangsUp).await;
    let called = send(outside, call(&receiver.address(), 1)).await;
    assert!(matches!(called.ending, Ending::Unknown { .. }), "{called:?}");
    assert_eq!(called.presence, Presence::SILENT);
    receiver.next().await;
}

/// DLV-4
pub async fn unreachable_receiver_was_sent_nothing(outside: &dyn Outside) {
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
pub async fn body_arrives_unchanged(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::Takes).await;
    let every: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    for body in [&b"{ \"a\" :\t1.00 }\n"[..], b"", "\"\u{1f600}\\u00e9\"".as_bytes(), &every] {
        let called =
            send(outside, Call { body: Bytes::copy_from_slice(body), ..call(&receiver.address(), 1) }).await;
        assert!(matches!(called.ending, Ending::Completed { .. }), "{called:?}");
        assert!(receiver.next().await.body == body, "{} bytes arrived changed", body.len());
    }
}

/// QUA-6: nothing is sent, even with an empty body, and no error shows the address that a name resolves to.
pub async fn forbidden_address_is_not_called(outside: &dyn Outside) {
    let receiver = outside.receiver(Behaviour::Takes).await;
    for address in receiver.disguises().into_iter().chain([receiver.address()]) {
        for body in BODIES {
            let called = outside.sink(false).send(Call { body: body.into(), ..call(&address, 1) }).await;
            let Ending::Failed { error, .. } = &called.ending else { panic!("{address}: {called:?}") };
            let leaked = ["127.0.0.1", "::1"]
                .into_iter()
                .find(|loopback| !address.contains(loopback) && error.contains(loopback));
            assert_eq!(leaked, None, "{address}: {error}");
        }
    }
    assert_eq!(receiver.connections(), 0, "not even connected to");
}

/// QUA-6
pub async fn endless_response_is_not_read_to_its_end(outside: &dyn Outside) {
    let mut receiver = outside.receiver(Behaviour::Floods).await;
    let began = Instant::now();
    let called = send(outside, call(&receiver.address(), 1)).await;
    assert!(matches!(called.ending, Ending::Completed { .. }), "{called:?}");
    assert!(began.elapsed() < AMPLE / 2, "it read an endless response");
    receiver.next().await;
}

/// Runs the suite against a sink: each function as a test of its own.
#[macro_export]
macro_rules! conformance {
    ($outside:expr) => {
        $crate::conformance! { @each $outside,
            accepted_message_is_completed, busy_receiver_sets_time_of_next_attempt, refusing_receiver_is_up,
            timeout_leaves_outcome_unknown, lost_connection_leaves_outcome_unknown,
            unreachable_receiver_was_sent_nothing, ids_stay_the_same_over_attempts, body_arrives_unchanged,
            forbidden_address_is_not_called, endless_response_is_not_read_to_its_end
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
