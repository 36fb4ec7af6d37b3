//! Dead letters: list, show, redrive. A service sees those of its own tenant's queues.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::name::{QueueKey, QueueName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_store::StoredDeadLetter;

use super::body::JsonBody;
use super::commands::json_response;
use super::parameters::{Path, Query};
use super::queues::{ActBody, act, message, raw_json};
use super::{Problem, Shared};
use crate::principal::Principal;

#[derive(Deserialize)]
pub(super) struct Filter {
    tenant: Option<String>,
    queue: Option<String>,
    #[serde(default)]
    after: i64,
    limit: Option<usize>,
}

fn tenant(principal: &Principal, given: Option<&str>) -> Result<String, Problem> {
    match (principal, given) {
        (Principal::Service(session), _) => Ok(session.service.tenant().to_owned()),
        (Principal::Operator, Some(tenant)) => Ok(tenant.to_owned()),
        (Principal::Operator, None) => {
            Err(Refusal::new(Reason::InvalidRequest, "an operator says whose: ?tenant=<tenant>").into())
        }
    }
}

pub(super) async fn list(
    State(app): State<Shared>,
    principal: Principal,
    Query(filter): Query<Filter>,
) -> Result<Response, Problem> {
    let tenant = tenant(&principal, filter.tenant.as_deref())?;
    let queue = filter.queue.as_deref().map(QueueName::new).transpose();
    let queue = queue.map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
    let queue = queue.map(|queue| QueueKey::new(&tenant, &queue));
    let limit = filter.limit.unwrap_or(limits::PAGE_DEFAULT).clamp(1, limits::PAGE_MAX);
    let letters = app.gate.store().dead_letters(&tenant, queue.as_ref(), Serial(filter.after), limit).await?;
    let next = letters.last().map_or(filter.after, |it| it.letter.delivery.id.0);
    let items: Vec<_> = letters.iter().map(head).collect();
    Ok(json_response(StatusCode::OK, &json!({ "items": items, "next": next })))
}

/// What a list shows: everything but the message itself.
fn head(stored: &StoredDeadLetter) -> serde_json::Value {
    let (letter, message) = (&stored.letter, &stored.message);
    json!({
        "id": letter.delivery.id,
        "reason": letter.reason,
        "queue": letter.delivery.dead_letter_queue.queue(),
        "origin": letter.delivery.queue.queue(),
        "route": letter.delivery.destination,
        "attempts": letter.delivery.receives,
        "queued_at": letter.delivery.queued_at.to_string(),
        "dead_at": letter.dead_at.to_string(),
        "message": letter.delivery.message,
        "message_id": message.id,
        "source": message.source,
        "correlation_id": message.correlation.as_str(),
    })
}

pub(super) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Path(id): Path<i64>,
    Query(filter): Query<Filter>,
) -> Result<Response, Problem> {
    let tenant = tenant(&principal, filter.tenant.as_deref())?;
    let nothing = || Refusal::new(Reason::NotFound, "there is no such dead letter");
    let stored = app.gate.store().dead_letter(&tenant, Serial(id)).await?.ok_or_else(nothing)?;
    let mut text = head(&stored).to_string();
    text.pop();
    Ok(raw_json(format!(r#"{text},"content":{}}}"#, message(&stored.message)?)))
}

pub(super) async fn redrive(
    State(app): State<Shared>,
    principal: Principal,
    Path(id): Path<i64>,
    Query(filter): Query<Filter>,
    JsonBody(body): JsonBody<ActBody>,
) -> Result<Response, Problem> {
    let tenant = tenant(&principal, filter.tenant.as_deref())?;
    let act = act(&app, &principal, &body.why)?;
    let back = app.gate.store().redrive(&tenant, vec![Serial(id)], act).await?;
    if back.is_empty() {
        return Err(Refusal::new(Reason::NotFound, "there is no such dead letter").into());
    }
    Ok(json_response(StatusCode::OK, &json!({ "redriven": back.len() })))
}
