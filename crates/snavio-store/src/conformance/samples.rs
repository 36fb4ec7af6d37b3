//! Sample data of the suite: `acme/billing` sends to routes of `acme/bot` with different claim policies.

use std::sync::Arc;

use bytes::Bytes;
use snavio_model::claim::ClaimPolicy;
use snavio_model::delivery::{Receipt, ReceiptOutcome};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::event::EventEnvelope;
use snavio_model::message::trace::{CorrelationId, Traceparent};
use snavio_model::message::{Message, Path};
use snavio_model::name::{QueueKey, QueueName, ServiceName, TenantName};
use snavio_model::registry::{Acl, BoundRoute, DispatchMode, Profile, Route};
use snavio_model::settle::{Intake, Outcome, Settlement};
use snavio_model::time::Timestamp;

use crate::{Act, Received, Report, Store, StoreError};

/// The retention of a claim of [`pay`], in seconds.
pub const KEEP_SECONDS: u32 = 300;
/// The maximum number of receives of a delivery of [`notify`] and [`pay`].
pub const RECEIVES_MAX: u32 = 3;

/// The time this many seconds after the beginning of a test.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp(1_794_731_400_000 + seconds * 1000)
}

/// A route of `acme/bot`, with a queue of the same name.
pub fn route(name: &str, claim: ClaimPolicy) -> Arc<BoundRoute> {
    Arc::new(BoundRoute::new(Route {
        target: "acme/bot".parse().expect("a service"),
        name: name.parse().expect("a name"),
        events_of: None,
        queue: QueueName::new(name).expect("a queue"),
        dead_letter_queue: QueueName::new("dead").expect("a queue"),
        claim,
        dispatch: DispatchMode::Adaptive,
        profile: Profile::Moderate,
        processing: Default::default(),
        receives_max: RECEIVES_MAX,
        expected_drain_seconds: 300,
        order: None,
        acl: Acl::Cached,
        expires_at: None,
        disabled: None,
    }))
}

/// A route with claims.
pub fn pay() -> Arc<BoundRoute> {
    route("pay", ClaimPolicy::Strict { keep_seconds: KEEP_SECONDS })
}

/// A route without claims.
pub fn notify() -> Arc<BoundRoute> {
    route("notify", ClaimPolicy::None)
}

/// The queue of the route of this name.
pub fn queue(name: &str) -> QueueKey {
    QueueKey::new("acme", &QueueName::new(name).expect("a queue"))
}

/// A message of this source and id, received at this time.
pub fn message(source: &str, id: &str, now: Timestamp) -> Message {
    let source: ServiceName = source.parse().expect("a service");
    Message {
        tenant: TenantName::new(source.tenant()).expect("a tenant"),
        id: MessageId::stored(id),
        source,
        target: "acme/bot".parse().expect("a service"),
        name: "pay".parse().expect("a name"),
        signed_target: "bot".into(),
        sent_at: now.to_string().into(),
        key_version: Some("hmac-v1".parse().expect("a key version")),
        signature: "ab".repeat(32).into(),
        correlation: CorrelationId::from_random([7; 16]),
        traceparent: Traceparent::from_random([7; 24]),
        received_at: now,
        registry_version: 5,
        domain_hash: DomainHash([9; 32]),
        payload: Bytes::from(format!(r#"{{ "of": "{id}", "bytes": "as they came" }}"#)),
        event: None,
    }
}

/// An unsigned event of `acme/billing`, for a subscription.
pub fn event_intake(id: &str, route: &Arc<BoundRoute>, now: Timestamp) -> Intake {
    let intake = intake(id, route, now);
    let event = EventEnvelope {
        version: "2.1".parse().expect("a version"),
        timestamp: "2019-11-15T09:30:00.5+01:00".to_owned(),
        metadata: Some(r#"{ "userId":"u-1", "é": 1.0 }"#.to_owned()),
    };
    let message = Message {
        target: intake.message.source.clone(),
        signed_target: "".into(),
        sent_at: "".into(),
        key_version: None,
        signature: "".into(),
        event: Some(Arc::new(event)),
        ..intake.message
    };
    Intake { message, ..intake }
}

/// A message of `acme/billing` for one route.
pub fn intake(id: &str, route: &Arc<BoundRoute>, now: Timestamp) -> Intake {
    intake_of("acme/billing", id, std::slice::from_ref(route), now)
}

/// A message for some routes.
pub fn intake_of(source: &str, id: &str, routes: &[Arc<BoundRoute>], now: Timestamp) -> Intake {
    Intake {
        message: message(source, id, now),
        path: Path::Slow,
        destinations: routes.to_vec(),
        places: Vec::new(),
        known: Vec::new(),
        good_until: Timestamp(i64::MAX),
    }
}

/// Settles a batch and waits for the result.
pub async fn settle(store: &dyn Store, batch: Vec<Intake>, now: Timestamp) -> Vec<Settlement> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    let done = |settled| drop(reply.send(settled));
    store.settle(batch, now, Box::new(done));
    answer.await.expect("the store answers").expect("the store settles")
}

/// Settles one message for one route, and returns its outcome.
pub async fn settle_one(store: &dyn Store, id: &str, route: &Arc<BoundRoute>, now: Timestamp) -> Outcome {
    settle(store, vec![intake(id, route, now)], now).await[0].outcomes[0]
}

/// Receives up to ten deliveries.
pub async fn receive(store: &dyn Store, name: &str, visibility: u64, now: Timestamp) -> Vec<Received> {
    let visibility = std::time::Duration::from_secs(visibility);
    store.receive(&queue(name), 10, visibility, now).await.expect("the store hands out")
}

/// Acknowledges deliveries.
pub async fn acknowledge(
    store: &dyn Store,
    queue: &QueueKey,
    receipts: Vec<Receipt>,
) -> Result<Vec<ReceiptOutcome>, StoreError> {
    let reports = receipts.into_iter().map(Report::done).collect();
    let finished = store.finish(queue, reports, "acme/bot", at(0)).await?;
    Ok(finished.into_iter().map(|finished| finished.outcome).collect())
}

/// The ids of the messages received.
pub fn ids(received: &[Received]) -> Vec<&str> {
    received.iter().map(|delivery| delivery.message.id.as_str()).collect()
}

/// The receipt that ends a delivery.
pub fn receipt(received: &Received) -> Receipt {
    Receipt { delivery_id: received.delivery_id, fence: received.fence }
}

/// An act of a client, with this note.
pub fn act(why: &str, now: Timestamp) -> Act {
    Act { who: "acme/bot (client)".to_owned(), why: why.to_owned(), at: now }
}

/// Returns the delivery id if the message was queued.
pub fn queued(outcome: Outcome) -> Option<Serial> {
    match outcome {
        Outcome::Queued { delivery } => Some(delivery),
        _ => None,
    }
}
