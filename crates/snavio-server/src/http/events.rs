//! Ingest of events: `POST /v1/events`, one event, and `POST /v1/events/batch`, many at once or a stream of them (MSG-5), in
//! their native form or as CloudEvents (MSG-6).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use snavio_gate::{Answer, Form};
use snavio_model::cloudevents::Mode;
use snavio_model::message::MessageKind;
use snavio_model::name::CommandName;
use snavio_model::refusal::{Reason, Refusal, Refused};
use utoipa::ToSchema;

use super::body::{Media, check_encoding, media};
use super::commands::{Accepted, Entry, Results, native_alone, send_many, send_one};
use super::{App, Problem, Shared};
use crate::principal::{Principal, Session};

/// An event as its producer sends it (MSG-5).
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "only described here: the model reads messages by itself")]
pub(super) struct SentEvent {
    /// 1 to 128 printable ASCII characters without a space at either end, the same on every retry.
    event_id: String,
    /// A type that this service has registered.
    event_type: String,
    /// 1 to 128 printable ASCII characters.
    #[schema(value_type = String, required = false)]
    correlation_id: Option<String>,
    /// When it happened: RFC 3339, of any age; the time of receipt when not said.
    #[schema(value_type = String, format = DateTime, required = false)]
    timestamp: Option<String>,
    /// `major.minor`; the type's own when not said.
    #[schema(value_type = String, required = false)]
    version: Option<String>,
    /// Who sends it, `tenant/service` or `service`: nobody but the caller.
    #[schema(value_type = String, required = false)]
    source: Option<String>,
    /// Any JSON value; may also be called `payload`.
    data: Value,
    /// Whatever else belongs to it and is no part of what it says: `userId`, `userAgent`, `requestId`.
    #[schema(value_type = Object, required = false)]
    metadata: Option<Value>,
}

/// A CloudEvent as its producer sends it in structured mode (MSG-6).
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described here: the model reads messages by itself")]
pub(super) struct SentCloudEvent {
    /// `1.0`.
    specversion: String,
    /// 1 to 128 printable ASCII characters without a space at either end, the same on every retry.
    id: String,
    /// A type that this service has registered.
    r#type: String,
    /// Who sends it, nobody but the caller: `tenant/service`, `service`, or a URI with tenant and service one behind the
    /// other in its path.
    source: String,
    /// When it happened: RFC 3339, of any age; the time of receipt when not said.
    #[schema(value_type = String, format = DateTime, required = false)]
    time: Option<String>,
    #[schema(value_type = String, required = false)]
    subject: Option<String>,
    #[schema(value_type = String, required = false)]
    datacontenttype: Option<String>,
    #[schema(value_type = String, required = false)]
    dataschema: Option<String>,
    /// Any JSON value; a string where `datacontenttype` is not JSON.
    #[schema(required = false)]
    data: Value,
    /// Instead of `data`: bytes.
    #[schema(value_type = String, required = false)]
    data_base64: Option<String>,
}

/// One event: in its native form, or as a CloudEvent in structured or binary mode.
#[utoipa::path(post, path = "/v1/events", tag = "messages",
    params(
        ("x-correlation-id" = Option<String>, Header, description = "The journey, for events that do not name theirs"),
        ("prefer" = Option<String>, Header, description = "`wait=10`: wait up to ten seconds for what becomes of it, where that is reported back"),
        ("traceparent" = Option<String>, Header, description = "The W3C trace"),
        ("webhook-id" = Option<String>, Header, description = "Standard Webhooks: the event's id"),
        ("webhook-timestamp" = Option<String>, Header, description = "Standard Webhooks: seconds since 1970, within the replay window"),
        ("webhook-signature" = Option<String>, Header, description = "Standard Webhooks: `v1,` and the base64 of the signature of id, timestamp and body; needed where the service's events must be signed"),
        ("ce-specversion" = Option<String>, Header, description = "CloudEvents in binary mode: `1.0`. The body is then the data, of any content type"),
        ("ce-id" = Option<String>, Header, description = "CloudEvents in binary mode: the event's id"),
        ("ce-type" = Option<String>, Header, description = "CloudEvents in binary mode: a type that this service has registered"),
        ("ce-source" = Option<String>, Header, description = "CloudEvents in binary mode: who sends it. Other attributes are headers of the same kind"),
    ),
    request_body(description = "An event; with the headers of a CloudEvent in binary mode, its data", content((SentEvent = "application/json"), (SentCloudEvent = "application/cloudevents+json"))),
    responses((status = 201, body = Accepted, description = "Processed, with the processor's answer"), (status = 202, body = Accepted, description = "Accepted for delivery, or being processed"), (status = 200, body = Accepted, description = "A duplicate, a replay with the stored answer, or late and left out (`skipped`)")))]
pub(super) async fn send(
    State(app): State<Shared>,
    principal: Principal,
    request: Request,
) -> Result<Response, Problem> {
    send_one(&app, MessageKind::Event, &principal, request).await
}

/// Many events: a JSON array or CloudEvents in batch mode, answered as one document, or NDJSON, answered line by line.
#[utoipa::path(post, path = "/v1/events/batch", tag = "messages",
    params(
        ("x-correlation-id" = Option<String>, Header, description = "The journey, for events that do not name theirs"),
        ("traceparent" = Option<String>, Header, description = "The W3C trace"),
        ("webhook-id" = Option<String>, Header, description = "Standard Webhooks: an id of the batch"),
        ("webhook-timestamp" = Option<String>, Header, description = "Standard Webhooks: seconds since 1970, within the replay window"),
        ("webhook-signature" = Option<String>, Header, description = "Standard Webhooks: over the whole array; needed where the service's events must be signed"),
    ),
    request_body(description = "Events: an array, or one per line", content((Vec<SentEvent> = "application/json"), (Vec<SentCloudEvent> = "application/cloudevents-batch+json"), (SentEvent = "application/x-ndjson"))),
    responses((status = 200, description = "Each entry's verdict, in order", content((Results = "application/json"), (Entry = "application/x-ndjson")))))]
pub(super) async fn send_batch(
    State(app): State<Shared>,
    principal: Principal,
    request: Request,
) -> Result<Response, Problem> {
    send_many(&app, MessageKind::Event, &principal, request).await
}

/// REG-8: events under another's name were refused; that somebody tried goes on the record. A command does not name its
/// source at all.
pub(super) async fn note_foreign<'a>(
    app: &App,
    session: &Session,
    ended: impl IntoIterator<Item = &'a Result<Answer, Refused>>,
) {
    let is_foreign =
        |it: &&Refused| it.subject.kind == MessageKind::Event && it.refusal.reason == Reason::SourcePresent;
    for refused in ended.into_iter().filter_map(|it| it.as_ref().err()).filter(is_foreign) {
        let name = refused.subject.name.as_ref().map_or("", CommandName::as_str).to_owned();
        app.overreach.note(app, session.name(), "event.send", name).await;
    }
}

/// How the one event of a request is written (MSG-6).
pub(super) fn form(headers: &HeaderMap) -> Result<Form, Refusal> {
    match mode(headers)? {
        Mode::Native => native_alone(headers),
        Mode::Structured => Ok(Form::Structured),
        Mode::Binary => Ok(Form::Binary(attributes(headers))),
        Mode::Batch => Err(unsupported("a batch of CloudEvents goes to /v1/events/batch")),
    }
}

/// How the events of a request are written, and what parts them.
pub(super) fn batch_form(headers: &HeaderMap) -> Result<(Media, Form), Refusal> {
    match mode(headers)? {
        Mode::Native => Ok((media(headers)?, Form::Native)),
        Mode::Batch => Ok((Media::Json, Form::Structured)),
        Mode::Structured | Mode::Binary => Err(unsupported("one CloudEvent alone goes to /v1/events")),
    }
}

fn unsupported(detail: &'static str) -> Refusal {
    Refusal::new(Reason::UnsupportedMediaType, detail)
}

fn mode(headers: &HeaderMap) -> Result<Mode, Refusal> {
    check_encoding(headers)?;
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    Mode::of(content_type, headers.keys().map(HeaderName::as_str))
}

/// The headers that make up an event in binary mode. What is not text stays none: the model refuses it.
fn attributes(headers: &HeaderMap) -> Arc<[(String, String)]> {
    let is_of_event = |name: &HeaderName| *name == CONTENT_TYPE || name.as_str().starts_with("ce-");
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let of_event = headers.iter().filter(|(name, _)| is_of_event(name));
    of_event.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}
