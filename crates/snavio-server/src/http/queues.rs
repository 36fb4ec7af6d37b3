//! Consuming: receive, acknowledge, extend, release, purge, redrive, attributes (DLV-2, DLV-3).

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use snavio_model::command::COMMAND_TYPE;
use snavio_model::delivery::{Receipt, ReceiptOutcome};
use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::message::Message;
use snavio_model::name::{QueueKey, QueueName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::Clock;
use snavio_store::{Act, Received};

use super::body::JsonBody;
use super::commands::json_response;
use super::parameters::{Path, Query};
use super::{App, Problem, Shared};
use crate::principal::Principal;

/// An operator says whose queue it means.
#[derive(Deserialize)]
pub(super) struct Whose {
    tenant: Option<String>,
}

/// The queue, if the caller may consume it: one that a route of its own service names.
fn queue(app: &App, principal: &Principal, name: &str, whose: &Whose) -> Result<QueueKey, Problem> {
    let nothing = || Refusal::new(Reason::NotFound, "no route of this service names this queue");
    let name = QueueName::new(name).map_err(|_| nothing())?;
    let registry = app.gate.registry();
    match principal {
        Principal::Operator => {
            let tenant = whose.tenant.as_deref();
            let missing =
                || Refusal::new(Reason::InvalidRequest, "an operator says whose queue: ?tenant=<tenant>");
            Ok(QueueKey::new(tenant.ok_or_else(missing)?, &name))
        }
        Principal::Service(session) => {
            let view = registry.service(session.service.as_str()).ok_or_else(nothing)?;
            let key = QueueKey::new(session.service.tenant(), &name);
            let own = view.routes().any(|route| route.queue == key || route.dead_letter_queue == key);
            if own { Ok(key) } else { Err(nothing().into()) }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiveBody {
    max: Option<usize>,
    visibility_seconds: Option<u64>,
    #[serde(default)]
    wait_seconds: u64,
}

/// Hands out deliveries, waiting for the first one as long as asked.
pub(super) async fn receive(
    State(app): State<Shared>,
    principal: Principal,
    Path(name): Path<String>,
    Query(whose): Query<Whose>,
    JsonBody(body): JsonBody<ReceiveBody>,
) -> Result<Response, Problem> {
    let queue = queue(&app, &principal, &name, &whose)?;
    let max = within("max", body.max.unwrap_or(1), 1, limits::RECEIVE_MESSAGES_MAX)?;
    let visibility = seconds(
        "visibility_seconds",
        body.visibility_seconds,
        limits::VISIBILITY_DEFAULT,
        limits::VISIBILITY_MAX,
    )?;
    let wait = seconds("wait_seconds", Some(body.wait_seconds), Duration::ZERO, limits::RECEIVE_WAIT_MAX)?;
    let received = wait_for_deliveries(&app, &queue, max, visibility, wait).await?;
    let deliveries = received.iter().map(delivery).collect::<Result<Vec<_>, _>>()?;
    let body = format!(r#"{{"deliveries":[{}]}}"#, deliveries.join(","));
    Ok(raw_json(body))
}

async fn wait_for_deliveries(
    app: &App,
    queue: &QueueKey,
    max: usize,
    visibility: Duration,
    wait: Duration,
) -> Result<Vec<Received>, Problem> {
    let store = app.gate.store();
    let arrivals = store.arrivals(queue);
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let arrival = arrivals.notified();
        tokio::pin!(arrival);
        arrival.as_mut().enable();
        let received = store.receive(queue, max, visibility, app.clock.now()).await?;
        let draining = app.draining.load(std::sync::atomic::Ordering::Relaxed);
        if !received.is_empty() || draining || tokio::time::timeout_at(deadline, arrival).await.is_err() {
            return Ok(received);
        }
    }
}

fn within(name: &str, value: usize, least: usize, most: usize) -> Result<usize, Refusal> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(Refusal::new(Reason::InvalidRequest, format!("{name} must be {least} to {most}")))
}

fn seconds(name: &str, value: Option<u64>, default: Duration, most: Duration) -> Result<Duration, Refusal> {
    let value = value.map_or(default, Duration::from_secs);
    if value <= most {
        return Ok(value);
    }
    Err(Refusal::new(Reason::InvalidRequest, format!("{name} must be 0 to {}", most.as_secs())))
}

/// A delivery as a consumer sees it; the payload's bytes are those that came.
fn delivery(received: &Received) -> Result<String, Problem> {
    let head = json!({
        "delivery_id": received.delivery_id,
        "fence": received.fence,
        "attempt": received.attempt,
        "queued_at": received.queued_at.to_string(),
        "visible_at": received.visible_at.to_string(),
    });
    let mut text = head.to_string();
    text.pop();
    Ok(format!(r#"{text},"message":{}}}"#, message(&received.message)?))
}

/// The message with `command.source` filled in.
pub(super) fn message(message: &Message) -> Result<String, Problem> {
    let damaged = |_| Refusal::new(Reason::Unavailable, "a stored payload cannot be read");
    let payload = std::str::from_utf8(&message.payload).map_err(|_| damaged(()))?;
    let payload: &RawValue = serde_json::from_str(payload).map_err(|_| damaged(()))?;
    let metadata = json!({
        "id": message.id,
        "timestamp": message.sent_at,
        "type": COMMAND_TYPE,
        "version_id": message.key_version,
        "correlation_id": message.correlation.as_str(),
        "traceparent": message.traceparent.as_str(),
        "received_at": message.received_at.to_string(),
    });
    let (source, target, name) = (json!(message.source), json!(message.target), json!(message.name));
    Ok(format!(
        r#"{{"metadata":{metadata},"command":{{"source":{source},"target":{target},"name":{name},"payload":{payload}}}}}"#
    ))
}

pub(super) fn raw_json(body: String) -> Response {
    use axum::response::IntoResponse;

    ([(http::header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiptsBody {
    receipts: Vec<Receipt>,
    visibility_seconds: Option<u64>,
    #[serde(default)]
    delay_seconds: u64,
}

impl ReceiptsBody {
    fn check(&self) -> Result<(), Refusal> {
        within("the number of receipts", self.receipts.len(), 1, limits::ACK_MESSAGES_MAX).map(|_| ())
    }
}

pub(super) async fn acknowledge(
    State(app): State<Shared>,
    principal: Principal,
    Path(name): Path<String>,
    Query(whose): Query<Whose>,
    JsonBody(body): JsonBody<ReceiptsBody>,
) -> Result<Response, Problem> {
    body.check()?;
    let queue = queue(&app, &principal, &name, &whose)?;
    let receipts = body.receipts.clone();
    // On a task of its own: a client that hangs up must not cancel a commit under way.
    let running = std::sync::Arc::clone(&app);
    let done = tokio::spawn(async move { running.gate.store().acknowledge(&queue, receipts).await }).await;
    let outcomes =
        done.map_err(|_| Refusal::new(Reason::Unavailable, "the acknowledgement's task was ended"))??;
    Ok(outcomes_response(&body.receipts, &outcomes))
}

pub(super) async fn extend(
    State(app): State<Shared>,
    principal: Principal,
    Path(name): Path<String>,
    Query(whose): Query<Whose>,
    JsonBody(body): JsonBody<ReceiptsBody>,
) -> Result<Response, Problem> {
    body.check()?;
    let queue = queue(&app, &principal, &name, &whose)?;
    let visibility = seconds(
        "visibility_seconds",
        body.visibility_seconds,
        limits::VISIBILITY_DEFAULT,
        limits::VISIBILITY_MAX,
    )?;
    let now = app.clock.now();
    let outcomes = app.gate.store().extend(&queue, body.receipts.clone(), visibility, now).await?;
    Ok(outcomes_response(&body.receipts, &outcomes))
}

pub(super) async fn release(
    State(app): State<Shared>,
    principal: Principal,
    Path(name): Path<String>,
    Query(whose): Query<Whose>,
    JsonBody(body): JsonBody<ReceiptsBody>,
) -> Result<Response, Problem> {
    body.check()?;
    let queue = queue(&app, &principal, &name, &whose)?;
    let delay = seconds("delay_seconds", Some(body.delay_seconds), Duration::ZERO, limits::VISIBILITY_MAX)?;
    let now = app.clock.now();
    let outcomes = app.gate.store().release(&queue, body.receipts.clone(), delay, now).await?;
    Ok(outcomes_response(&body.receipts, &outcomes))
}

/// Each receipt's outcome; 409 when a single one was fenced, so that nobody has to look for it.
fn outcomes_response(receipts: &[Receipt], outcomes: &[ReceiptOutcome]) -> Response {
    let results: Vec<_> = receipts
        .iter()
        .zip(outcomes)
        .map(|(receipt, outcome)| json!({ "delivery_id": receipt.delivery_id, "outcome": outcome }))
        .collect();
    let fenced = outcomes == [ReceiptOutcome::Fenced];
    let status = if fenced { StatusCode::CONFLICT } else { StatusCode::OK };
    json_response(status, &json!({ "results": results }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActBody {
    #[serde(default)]
    pub(super) why: String,
}

pub(super) fn act(app: &App, principal: &Principal, why: &str) -> Result<Act, Refusal> {
    if why.chars().count() > limits::REASON_CHARS_MAX {
        return Err(Refusal::new(Reason::InvalidRequest, "the reason is too long"));
    }
    Ok(Act { who: principal.name(), why: why.to_owned(), at: app.clock.now() })
}

pub(super) async fn purge(
    State(app): State<Shared>,
    principal: Principal,
    Path(name): Path<String>,
    Query(whose): Query<Whose>,
    JsonBody(body): JsonBody<ActBody>,
) -> Result<Response, Problem> {
    let queue = queue(&app, &principal, &name, &whose)?;
    let count = app.gate.store().purge(&queue, act(&app, &principal, &body.why)?).await?;
    Ok(json_response(StatusCode::OK, &json!({ "purged": count })))
}

/// Puts dead letters of this dead-letter queue back where they came from, a bounded number per call.
pub(super) async fn redrive(
    State(app): State<Shared>,
    principal: Principal,
    Path(name): Path<String>,
    Query(whose): Query<Whose>,
    JsonBody(body): JsonBody<ActBody>,
) -> Result<Response, Problem> {
    let queue = queue(&app, &principal, &name, &whose)?;
    let store = app.gate.store();
    let letters = store.dead_letters(queue.tenant(), Some(&queue), Serial(0), limits::PAGE_MAX).await?;
    let more = letters.len() == limits::PAGE_MAX;
    let ids = letters.iter().map(|stored| stored.letter.delivery.id).collect();
    let redriven = store.redrive(queue.tenant(), ids, act(&app, &principal, &body.why)?).await?;
    Ok(json_response(StatusCode::OK, &json!({ "redriven": redriven.len(), "more": more })))
}

pub(super) async fn attributes(
    State(app): State<Shared>,
    principal: Principal,
    Path(name): Path<String>,
    Query(whose): Query<Whose>,
) -> Result<Response, Problem> {
    let queue = queue(&app, &principal, &name, &whose)?;
    let attributes = app.gate.store().attributes(&queue, app.clock.now()).await?;
    let mut document = serde_json::to_value(attributes).unwrap_or(Value::Null);
    document["queue"] = queue.queue().into();
    document["tenant"] = queue.tenant().into();
    Ok(json_response(StatusCode::OK, &document))
}
