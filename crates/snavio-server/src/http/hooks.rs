//! Webhooks of providers: `POST /v1/hooks/{tenant}/{adapter}` (MSG-7). There is no token: the adapter's verification says
//! whose the request is, and the event that it becomes takes the way of any other.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use snavio_gate::{Answer, Arrival, UnverifiedWebhook, Wait};
use snavio_model::adapter::WebhookRequest;
use snavio_model::message::MessageKind;
use snavio_model::refusal::{Reason, Refused};
use snavio_model::time::Clock;
use utoipa::ToSchema;

use super::answer::json;
use super::body::{check_encoding, read};
use super::commands::{arrival, on_record};
use super::extract::Segments;
use super::{BodyShare, Problem, Shared};
use crate::outlive::Outlive;

/// What a provider is told. Who is subscribed, and what they answered, is not for its log of deliveries.
#[derive(Debug, Serialize, ToSchema)]
struct Hooked {
    /// Whether it is here to stay.
    accepted: bool,
    /// The event's id.
    id: String,
    /// Whether it was here before, and nothing was dispatched.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
    /// Why it is not delivered, though nothing comes of sending it again: `conflict`, with a record for its owner to decide;
    /// `out_of_order`, `sequence_conflict` or `entity_closed`, of which nothing is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// A webhook of a provider, which an adapter makes an event of.
///
/// Whoever cannot show to be the provider is not told whether there is such an adapter. Sent again it is a duplicate.
#[utoipa::path(post, path = "/v1/hooks/{tenant}/{adapter}", tag = "messages",
    params(("tenant" = String, Path), ("adapter" = String, Path)),
    request_body(description = "Whatever the provider sends, or nothing where it says all in headers", content = serde_json::Value, content_type = "application/json"),
    security(()),
    responses((status = 202, body = Hooked, description = "Accepted"), (status = 200, body = Hooked, description = "A duplicate; or a conflict that is on record, or what comes too late for its order (`accepted` is false)")))]
pub(super) async fn take(
    State(app): State<Shared>,
    Segments((tenant, adapter)): Segments<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    // Nobody has shown anything yet: strangers must not take the room of those who have.
    parts.extensions.insert(BodyShare(Arc::clone(&app.hook_bodies)));
    check_encoding(&parts.headers)?;
    let body = read(&app, &parts, body, app.body_bytes_max).await?;
    let received_at = app.clock.now();
    let headers = texts(&parts.headers);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let request = WebhookRequest { headers: &headers, body: &body };
    let verified = app.gate.verify_webhook(&tenant, &adapter, &request, received_at).await;
    let on_record = |source: &_, refusal| {
        Problem::from(on_record(&app, MessageKind::Event, source, &parts.headers, refusal))
    };
    let verified = verified.map_err(|why| match why {
        UnverifiedWebhook::Stranger => {
            let detail = "there is no such adapter, or the request is not its provider's";
            Problem::from(app.failures.refuse(&parts.extensions, received_at, detail))
        }
        UnverifiedWebhook::Refused { source: Some(source), refusal } => on_record(&source, refusal),
        UnverifiedWebhook::Refused { source: None, refusal } => refusal.into(),
    })?;
    let source = verified.source().clone();
    let visit = app.sessions.visit(source.tenant(), parts.uri.path())?;
    // For how many it is, only the event can tell; making it takes a turn like everything that is done for a tenant.
    let turn = visit.turns().take(1).await;
    let (event, vouched) = verified.into_event(&request).map_err(|refusal| on_record(&source, refusal))?;
    let arrival = Arrival {
        vouched: Some(vouched),
        received_at,
        ..arrival(&app, MessageKind::Event, source, event, &parts.headers)
    };
    let turn = match app.gate.breadth(&arrival) {
        ..=1 => turn,
        wide => {
            // Whoever waits holding a part would keep others from theirs.
            drop(turn);
            visit.turns().take(wide).await
        }
    };
    let running = Arc::clone(&app);
    match Outlive::new(async move { running.gate.accept(arrival, Wait::Never, turn).await }).await {
        Ok(ended) => Ok(answer(&ended)),
        Err(refused) => for_good(&refused).ok_or_else(|| refused.into()),
    }
}

/// CLM-8, ORD-4: what is on record as a conflict stays one however often it comes, and what is late for its order wherever it
/// goes is never in time again. A provider that is told no sends it again for days, and stops sending at all in the end.
fn for_good(Refused { subject, refusal }: &Refused) -> Option<Response> {
    let is_late =
        matches!(refusal.reason, Reason::OutOfOrder | Reason::SequenceConflict | Reason::EntityClosed);
    if refusal.conflict.is_none() && !(is_late && refusal.is_for_good) {
        return None;
    }
    let id = subject.id.as_ref().map(|it| it.as_str().to_owned()).unwrap_or_default();
    let told = Hooked { accepted: false, id, duplicate: None, reason: Some(refusal.reason.code()) };
    Some(json(StatusCode::OK, &told))
}

/// It was taken, whatever becomes of it: to any other answer a provider would send it again.
fn answer(ended: &Answer) -> Response {
    let is_new = ended.taken_by().is_some();
    let duplicate = (!is_new).then_some(true);
    let told = Hooked { accepted: true, id: ended.id.as_str().to_owned(), duplicate, reason: None };
    json(if is_new { StatusCode::ACCEPTED } else { StatusCode::OK }, &told)
}

/// All headers, as text: what is none cannot be a signature.
fn texts(headers: &HeaderMap) -> Vec<(&str, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str(), text(value))).collect()
}
