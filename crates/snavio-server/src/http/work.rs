//! Work that is begun, extended and ended by those who do it (CLM-9, CLM-10).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snavio_gate::{Beginning, Begun};
use snavio_model::bounds;
use snavio_model::claim::Status;
use snavio_model::delivery::processing::{Answer, Ending, is_reference};
use snavio_model::delivery::{Receipt, ReceiptOutcome};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::Journey;
use snavio_model::name::{CommandName, QueueKey};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::BoundRoute;
use snavio_model::time::Clock;
use snavio_store::{OnRecord, Report};
use utoipa::ToSchema;

use super::answer::json;
use super::commands::{correlation, traceparent};
use super::extract::{JsonBody, Segments, seconds};
use super::processed::{Processed, processed};
use super::{App, Problem, Shared};
use crate::machine::unpredictable;
use crate::outlive::Outlive;
use crate::principal::Principal;

/// What a processor is about to do.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BeginBody {
    /// 1 to 128 printable ASCII characters without a space at either end, the same on every attempt.
    id: String,
    /// What it is about: another content under the same id is a conflict, where the route compares.
    #[schema(value_type = serde_json::Value)]
    payload: Box<RawValue>,
}

/// Whether the work is the caller's.
#[derive(Serialize, ToSchema)]
pub(super) struct BegunDocument {
    /// Whether it is to be done now.
    is_new: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// Until when to report, or to ask for more time.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<String>,
    /// What became of it before.
    #[serde(flatten)]
    processed: Option<Processed>,
}

/// Claims an id for work that the caller does itself, by a route of its own whose `processing.kind` is `reported`.
#[utoipa::path(post, path = "/v1/claims/{key}/begin", tag = "claims", params(("key" = String, Path, description = "The route's name")),
    request_body = BeginBody,
    responses((status = 201, body = BegunDocument, description = "The work is the caller's"), (status = 200, body = BegunDocument, description = "It ended before")))]
pub(super) async fn begin(
    State(app): State<Shared>,
    principal: Principal,
    headers: HeaderMap,
    Segments(name): Segments<String>,
    JsonBody(body): JsonBody<BeginBody>,
) -> Result<Response, Problem> {
    let caller = principal.caller()?;
    let wrong = || Refusal::new(Reason::InvalidId, format!("id {}", MessageId::EVENT_RULE));
    let payload = Bytes::from(Box::<str>::from(body.payload).into_string());
    if payload.len() > app.body_bytes_max {
        let detail = format!("the payload is larger than {} bytes", app.body_bytes_max);
        return Err(Refusal::new(Reason::TooLarge, detail).into());
    }
    let beginning = Beginning {
        service: caller.service.clone(),
        name: CommandName::new(&name)
            .map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?,
        id: MessageId::event(&body.id).ok_or_else(wrong)?,
        payload,
        journey: Journey::begin(correlation(&headers), traceparent(&headers), unpredictable()),
    };
    let (running, turn) = (Arc::clone(&app), caller.turns().take(1).await);
    let begun = Outlive::new(async move { running.gate.begin_work(beginning, turn).await }).await?;
    let nothing = BegunDocument {
        is_new: false,
        delivery_id: None,
        fence: None,
        attempt: None,
        deadline: None,
        processed: None,
    };
    Ok(match begun {
        Begun::New { receipt, attempt, deadline } => {
            let document = BegunDocument {
                is_new: true,
                delivery_id: Some(receipt.delivery_id.0),
                fence: Some(receipt.fence.0),
                attempt: Some(attempt),
                deadline: Some(deadline.to_string()),
                ..nothing
            };
            json(StatusCode::CREATED, &document)
        }
        Begun::Known(followed) => {
            let (_, processed) = processed(&followed);
            json(StatusCode::OK, &BegunDocument { processed: Some(processed), ..nothing })
        }
    })
}

/// That the work is done.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteBody {
    delivery_id: Serial,
    fence: Serial,
    /// What senders are answered, now and when they send it again: any JSON value.
    #[schema(value_type = Option<serde_json::Value>)]
    response: Option<Box<RawValue>>,
    /// The posting reference: 1 to 256 bytes.
    #[schema(min_length = 1, max_length = 256)]
    reference: Option<String>,
}

/// That it is not.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailBody {
    delivery_id: Serial,
    fence: Serial,
    /// What went wrong, for people.
    error: String,
    /// Whether another attempt would end the same way.
    #[serde(default)]
    r#final: bool,
    /// Whether nobody knows if it is done.
    #[serde(default)]
    unknown: bool,
    /// When the next attempt makes sense, at the earliest.
    retry_after_seconds: Option<u64>,
    /// What senders are answered where it is final: any JSON value.
    #[schema(value_type = Option<serde_json::Value>)]
    response: Option<Box<RawValue>>,
}

/// That it takes longer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MoreTimeBody {
    delivery_id: Serial,
    fence: Serial,
    /// How long from now: the route's deadline when not said.
    #[schema(maximum = 43200)]
    seconds: Option<u64>,
}

/// What a report came to.
#[derive(Serialize, ToSchema)]
pub(super) struct Reported {
    outcome: ReceiptOutcome,
    /// Where the claim stands then.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

/// What somebody who is done says of it.
pub(super) fn completed(
    reference: Option<String>,
    response: Option<Box<RawValue>>,
) -> Result<Ending, Refusal> {
    check_reference(reference.as_deref())?;
    Ok(Ending::Completed { answer: stored_answer(200, response)?, reference, note: None })
}

pub(super) fn check_reference(reference: Option<&str>) -> Result<(), Refusal> {
    if reference.is_none_or(is_reference) {
        return Ok(());
    }
    let detail = format!("reference must be 1 to {} bytes on one line", bounds::REFERENCE_BYTES_MAX);
    Err(Refusal::new(Reason::InvalidRequest, detail))
}

fn stored_answer(status: u16, response: Option<Box<RawValue>>) -> Result<Option<Answer>, Refusal> {
    let Some(response) = response else { return Ok(None) };
    let body = Bytes::from(Box::<str>::from(response).into_string());
    if body.len() > bounds::ANSWER_BYTES_MAX {
        let detail = format!("response is larger than {} bytes", bounds::ANSWER_BYTES_MAX);
        return Err(Refusal::new(Reason::TooLarge, detail));
    }
    Ok(Some(Answer { status, content_type: Some("application/json".to_owned()), body }))
}

/// The caller's own route of this name, or its subscription to events of this type.
fn route(app: &App, principal: &Principal, name: &str) -> Result<Arc<BoundRoute>, Refusal> {
    let caller = principal.caller()?;
    let registry = app.gate.registry();
    let view = registry.service(caller.service.as_str());
    let mut own = view.into_iter().flat_map(|it| it.routes().chain(it.subscriptions()));
    let is_named = |it: &&Arc<BoundRoute>| it.route.name.as_str() == name || *it.destination == *name;
    let missing = || Refusal::new(Reason::NotFound, "this service has no route or subscription of this name");
    own.find(is_named).cloned().ok_or_else(missing)
}

/// Ends work: it is done.
#[utoipa::path(post, path = "/v1/claims/{key}/complete", tag = "claims", params(("key" = String, Path, description = "The route's name")),
    request_body = CompleteBody, responses((status = 200, body = Reported)))]
pub(super) async fn complete(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    JsonBody(body): JsonBody<CompleteBody>,
) -> Result<Response, Problem> {
    let route = route(&app, &principal, &name)?;
    let ending = completed(body.reference, body.response)?;
    let receipt = Receipt { delivery_id: body.delivery_id, fence: body.fence };
    report(&app, &principal, &route, receipt, ending).await
}

/// Ends work: it is not done.
#[utoipa::path(post, path = "/v1/claims/{key}/fail", tag = "claims", params(("key" = String, Path, description = "The route's name")),
    request_body = FailBody, responses((status = 200, body = Reported)))]
pub(super) async fn fail(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    JsonBody(body): JsonBody<FailBody>,
) -> Result<Response, Problem> {
    let route = route(&app, &principal, &name)?;
    let receipt = Receipt { delivery_id: body.delivery_id, fence: body.fence };
    let retry_after = body.retry_after_seconds.map(Duration::from_secs);
    let ending = match (body.unknown, body.r#final) {
        (true, true) => {
            let detail = "final says that it is not done, and unknown that nobody knows: one of the two";
            return Err(Refusal::new(Reason::InvalidRequest, detail).into());
        }
        (true, false) => Ending::Unknown { error: body.error },
        (false, is_final) => Ending::Failed {
            error: body.error,
            is_final,
            answer: stored_answer(422, body.response)?,
            retry_after,
        },
    };
    report(&app, &principal, &route, receipt, ending).await
}

async fn report(
    app: &Shared,
    principal: &Principal,
    route: &BoundRoute,
    receipt: Receipt,
    ending: Ending,
) -> Result<Response, Problem> {
    let retry_after = match &ending {
        Ending::Failed { retry_after, .. } => *retry_after,
        _ => None,
    };
    let retry = route.route.processing.retry(retry_after.map(|it| it.min(bounds::VISIBILITY_MAX)));
    let kept_at = route.keeps_answers_at();
    let report = Report { receipt, ending, retry, kept_at, on_record: OnRecord::default() };
    let (running, who, queue): (_, _, QueueKey) = (Arc::clone(app), principal.name(), route.queue.clone());
    let finished = Outlive::new(async move { running.gate.finish(&queue, vec![report], &who).await }).await?;
    match finished.first() {
        Some(finished) if finished.outcome == ReceiptOutcome::Done => {
            let status = finished.status.map(Status::as_str);
            Ok(json(StatusCode::OK, &Reported { outcome: finished.outcome, status }))
        }
        Some(finished) if finished.outcome == ReceiptOutcome::Fenced => {
            let detail = "the work is somebody else's by now, or ended; what is on record stays";
            Err(Refusal::new(Reason::Fenced, detail).into())
        }
        _ => Err(Refusal::new(Reason::NotFound, "there is no such work").into()),
    }
}

/// Gives the attempt more time.
#[utoipa::path(post, path = "/v1/claims/{key}/extend", tag = "claims", params(("key" = String, Path, description = "The route's name")),
    request_body = MoreTimeBody, responses((status = 200, body = Reported)))]
pub(super) async fn extend(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    JsonBody(body): JsonBody<MoreTimeBody>,
) -> Result<Response, Problem> {
    let route = route(&app, &principal, &name)?;
    let more = seconds("seconds", body.seconds, route.route.processing.deadline(), bounds::VISIBILITY_MAX)?;
    let receipt = Receipt { delivery_id: body.delivery_id, fence: body.fence };
    let now = app.clock.now();
    let outcomes = app.gate.store().extend(&route.queue, vec![receipt], more, now).await?;
    match outcomes.first() {
        Some(ReceiptOutcome::Done) => {
            let status = Some(Status::Processing.as_str());
            Ok(json(StatusCode::OK, &Reported { outcome: ReceiptOutcome::Done, status }))
        }
        Some(ReceiptOutcome::Fenced) => {
            Err(Refusal::new(Reason::Fenced, "the work is somebody else's by now").into())
        }
        _ => Err(Refusal::new(Reason::NotFound, "there is no such work").into()),
    }
}
