//! Ingest: `POST /v1/commands`, one message, and `POST /v1/commands/batch`, many at once or a stream of them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;
use snavio_gate::{Answer, Arrival, Form, Reached, Standing, Verdict, Wait};
use snavio_model::bounds;
use snavio_model::claim::Status;
use snavio_model::id::MessageId;
use snavio_model::json::split_array;
use snavio_model::message::trace::{CorrelationId, Journey, Traceparent};
use snavio_model::message::{MessageKind, Path};
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal, Refused, Subject};
use snavio_model::signature::webhook::WebhookSignature;
use snavio_model::time::Clock;
use utoipa::ToSchema;

use super::answer::json;
use super::body::{Media, media, read};
use super::problem::Document;
use super::processed::{AnswerDocument, Answers, Processed, fit_answers};
use super::subscribed::{Subscribed, Told, first_seen_at};
use super::{App, Problem, Shared, events, stream};
use crate::machine::unpredictable;
use crate::outlive::Outlive;
use crate::principal::{Caller, Principal, Session};
use crate::turns::Turn;

const WEBHOOK_SIGNATURE: &str = "webhook-signature";

/// A command as its producer sends it (MSG-1).
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described here: the model reads messages by itself")]
pub(super) struct SignedCommand {
    metadata: SignedMetadata,
    command: SignedContent,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "only described here: the model reads messages by itself")]
pub(super) struct SignedMetadata {
    /// A UUID, the same on every retry.
    id: String,
    /// When it was signed: RFC 3339, renewed on each retry.
    #[schema(format = DateTime)]
    timestamp: String,
    /// `snavio.command-sent`.
    r#type: String,
    /// The key it is signed with, for example `hmac-v1`; left out where the Standard Webhooks headers sign the body.
    #[schema(value_type = String, required = false)]
    version_id: Option<String>,
    /// HMAC-SHA256 in lower-case hex; left out where the Standard Webhooks headers sign the body.
    #[schema(value_type = String, required = false)]
    hmac: Option<String>,
    /// 1 to 128 printable ASCII characters.
    #[schema(value_type = String, required = false)]
    correlation_id: Option<String>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "only described here: the model reads messages by itself")]
pub(super) struct SignedContent {
    /// `tenant/service`, or `service` alone within the sender's own tenant.
    target: String,
    name: String,
    /// Any JSON value.
    payload: Value,
}

/// What became of a message that was not refused.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Accepted {
    /// The HTTP status of this entry, within a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    accepted: bool,
    id: String,
    correlation_id: String,
    /// How it was decided: `fast` or `slow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_id: Option<i64>,
    /// Seen before: nothing was dispatched.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
    /// Late in the order of its entity where late ones are left out: recorded, and not delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<bool>,
    /// Accepted, and waits for those before it in its entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<bool>,
    /// Accepted, and queues behind one of its entity that failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    parked: Option<bool>,
    /// `false` where its route orders by entity, and the message has no entity or no number that counts there: it passes
    /// unordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    ordered: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_seen_at: Option<String>,
    /// It is being processed: ask under `outcome` what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_progress: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    /// What became of it, where that is known.
    #[serde(flatten)]
    processed: Option<Processed>,
    /// Of an event: what became of it at each subscription.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subscriptions: Vec<Subscribed>,
    /// `relaxed` when the node cannot promise that the message outlives a crash (PIP-12).
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
}

impl Default for Accepted {
    fn default() -> Self {
        Self {
            status: None,
            accepted: true,
            id: String::new(),
            correlation_id: String::new(),
            path: None,
            delivery_id: None,
            duplicate: None,
            skipped: None,
            waiting: None,
            parked: None,
            ordered: None,
            first_seen_at: None,
            in_progress: None,
            outcome: None,
            processed: None,
            subscriptions: Vec::new(),
            durability: None,
        }
    }
}

/// One entry's verdict within a batch.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BatchEntry)]
#[serde(untagged)]
pub(super) enum Entry {
    Accepted(Accepted),
    Refused(Document),
}

/// The verdicts of a batch, in the order of its entries.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Results {
    results: Vec<Entry>,
}

impl Answers for Accepted {
    fn answers(&mut self) -> Vec<&mut AnswerDocument> {
        let own = self.processed.as_mut().map(Processed::answer);
        own.into_iter().chain(self.subscriptions.iter_mut().filter_map(Subscribed::answer)).collect()
    }
}

impl Answers for Entry {
    fn answers(&mut self) -> Vec<&mut AnswerDocument> {
        match self {
            Self::Accepted(accepted) => accepted.answers(),
            Self::Refused(_) => Vec::new(),
        }
    }
}

impl Answers for Results {
    fn answers(&mut self) -> Vec<&mut AnswerDocument> {
        self.results.iter_mut().flat_map(Entry::answers).collect()
    }
}

/// One command.
#[utoipa::path(post, path = "/v1/commands", tag = "messages",
    params(
        ("x-correlation-id" = Option<String>, Header, description = "The journey, for messages that do not name theirs"),
        ("prefer" = Option<String>, Header, description = "`wait=10`: wait up to ten seconds for what becomes of it, where that is reported back"),
        ("traceparent" = Option<String>, Header, description = "The W3C trace"),
        ("webhook-id" = Option<String>, Header, description = "Standard Webhooks: the message's id"),
        ("webhook-timestamp" = Option<String>, Header, description = "Standard Webhooks: seconds since 1970, those of the message's timestamp"),
        ("webhook-signature" = Option<String>, Header, description = "Standard Webhooks: `v1,` and the base64 of the signature of id, timestamp and body, with the other two beside it; several are parted by spaces"),
    ),
    request_body(content = SignedCommand, content_type = "application/json"),
    responses((status = 201, body = Accepted, description = "Processed, with the processor's answer"), (status = 202, body = Accepted, description = "Accepted for delivery, or being processed"), (status = 200, body = Accepted, description = "A duplicate, a replay with the stored answer, or late and left out (`skipped`)")))]
pub(super) async fn send(
    State(app): State<Shared>,
    principal: Principal,
    request: Request,
) -> Result<Response, Problem> {
    send_one(&app, MessageKind::Command, &principal, request).await
}

/// Takes the one message of a request to its verdict.
pub(super) async fn send_one(
    app: &Shared,
    kind: MessageKind,
    principal: &Principal,
    request: Request,
) -> Result<Response, Problem> {
    let caller = principal.caller()?;
    let source = &caller.service;
    let (parts, body) = request.into_parts();
    let arrival = read_one(app, kind, source, &parts, body).await;
    let arrival = arrival.map_err(|refusal| on_record(app, kind, source, &parts.headers, refusal))?;
    let (running, wait) = (Arc::clone(app), wait(&parts.headers)?);
    let turn = caller.turns().take(app.gate.breadth(&arrival)).await;
    let ended = Outlive::new(async move { running.gate.accept(arrival, wait, turn).await }).await;
    events::note_foreign(app, caller, [&ended]).await;
    let (status, accepted) = accepted(app, &ended?);
    let is_replay = accepted.processed.as_ref().is_some_and(Processed::is_replay);
    let mut answer = json(status, &accepted);
    if is_replay {
        answer.headers_mut().insert("snavio-replayed", HeaderValue::from_static("true"));
    }
    Ok(answer)
}

async fn read_one(
    app: &App,
    kind: MessageKind,
    source: &ServiceName,
    parts: &Parts,
    body: Body,
) -> Result<Arrival, Refusal> {
    let form = match kind {
        MessageKind::Command => native_alone(&parts.headers)?,
        MessageKind::Event => events::form(&parts.headers)?,
    };
    let body = read(app, parts, body, app.body_bytes_max).await?;
    let webhook = webhook(&parts.headers);
    Ok(Arrival { form, webhook, ..arrival(app, kind, source.clone(), body, &parts.headers) })
}

/// One message alone, in its own form.
pub(super) fn native_alone(headers: &HeaderMap) -> Result<Form, Refusal> {
    match media(headers)? {
        Media::Json => Ok(Form::Native),
        Media::NdJson => {
            Err(Refusal::new(Reason::UnsupportedMediaType, "one message alone is application/json"))
        }
    }
}

/// What could not even be read is told of like any other refusal.
pub(super) fn on_record(
    app: &App,
    kind: MessageKind,
    source: &ServiceName,
    headers: &HeaderMap,
    refusal: Refusal,
) -> Refused {
    let journey = Journey::begin(correlation(headers), traceparent(headers), unpredictable());
    app.gate.refuse(source, app.clock.now(), Subject::on(kind, journey), refusal)
}

/// Many commands: a JSON array, answered as one document, or NDJSON, answered line by line.
#[utoipa::path(post, path = "/v1/commands/batch", tag = "messages",
    params(("x-correlation-id" = Option<String>, Header, description = "The journey, for messages that do not name theirs"), ("traceparent" = Option<String>, Header, description = "The W3C trace")),
    request_body(description = "Signed commands: an array, or one per line", content((Vec<SignedCommand> = "application/json"), (SignedCommand = "application/x-ndjson"))),
    responses((status = 200, description = "Each entry's verdict, in order", content((Results = "application/json"), (Entry = "application/x-ndjson")))))]
pub(super) async fn send_batch(
    State(app): State<Shared>,
    principal: Principal,
    request: Request,
) -> Result<Response, Problem> {
    send_many(&app, MessageKind::Command, &principal, request).await
}

/// Takes the messages of a request each to its verdict.
pub(super) async fn send_many(
    app: &Shared,
    kind: MessageKind,
    principal: &Principal,
    request: Request,
) -> Result<Response, Problem> {
    let caller = principal.caller()?;
    let (parts, body) = request.into_parts();
    let answered = answer_batch(app, kind, caller, &parts, body).await;
    Ok(answered.map_err(|refusal| on_record(app, kind, &caller.service, &parts.headers, refusal))?)
}

async fn answer_batch(
    app: &Shared,
    kind: MessageKind,
    caller: &Caller,
    parts: &Parts,
    body: Body,
) -> Result<Response, Refusal> {
    let (media, form) = match kind {
        MessageKind::Command => (media(&parts.headers)?, Form::Native),
        MessageKind::Event => events::batch_form(&parts.headers)?,
    };
    if parts.headers.contains_key(WEBHOOK_SIGNATURE) {
        let refuse = |detail| Err(Refusal::new(Reason::InvalidRequest, detail));
        match (kind, media) {
            (MessageKind::Command, _) => {
                return refuse(
                    "command batches need metadata.hmac in each entry, not a webhook-signature over all",
                );
            }
            (MessageKind::Event, Media::NdJson) => {
                return refuse("a webhook-signature covers a whole body, and a stream is taken line by line");
            }
            (MessageKind::Event, Media::Json) => {}
        }
    }
    let app = Arc::clone(app);
    match media {
        Media::Json => send_array(app, kind, form, caller, parts, body).await,
        Media::NdJson => {
            let session = caller.session();
            let (places, room) = (app.stream_places(Some(caller))?, app.body_room(parts)?);
            Ok(stream::send_lines(app, kind, session, parts.headers.clone(), body, places, room))
        }
    }
}

async fn send_array(
    app: Shared,
    kind: MessageKind,
    form: Form,
    caller: &Caller,
    parts: &Parts,
    body: Body,
) -> Result<Response, Refusal> {
    let body = read(&app, parts, body, bounds::BATCH_BYTES_MAX).await?;
    let entries = split_array(&body, bounds::BATCH_MESSAGES_MAX).map_err(Refusal::from)?;
    if entries.len() > bounds::BATCH_MESSAGES_MAX {
        let detail = format!("a batch holds at most {} messages; split it", bounds::BATCH_MESSAGES_MAX);
        return Err(Refusal::new(Reason::TooLarge, detail));
    }
    let entries: Vec<_> = entries.into_iter().map(|entry| body.slice_ref(entry)).collect();
    let (session, headers) = (caller.session(), parts.headers.clone());
    let vouched = match webhook(&headers).transpose()? {
        Some(signed) => Some(app.gate.vouch(&signed, &body, &session.service, app.clock.now()).await?),
        None => None,
    };
    // Received now, however long its turn takes to come.
    let fit = entries.iter().filter(|entry| fits(&app, entry));
    let arrival = |entry: &Bytes| Arrival {
        form: form.clone(),
        vouched: vouched.clone(),
        ..arrival(&app, kind, session.service.clone(), entry.clone(), &headers)
    };
    let arrivals: Vec<_> = fit.map(arrival).collect();
    let wait = wait(&headers)?;
    let unfit = entries.len() - arrivals.len();
    let breadth: usize = arrivals.iter().map(|it| app.gate.breadth(it)).sum();
    if breadth > bounds::BATCH_DESTINATIONS_MAX {
        let most = bounds::BATCH_DESTINATIONS_MAX;
        let detail = format!(
            "the events of a batch go to at most {most} subscriptions, each counted for each event, and these to {breadth}; split it"
        );
        return Err(Refusal::new(Reason::TooLarge, detail));
    }
    let turn = caller.turns().take(unfit + breadth).await;
    let work = async move {
        let ended = app.gate.accept_all(arrivals, wait, turn).await;
        events::note_foreign(&app, &session, &ended).await;
        verdicts(&app, kind, &session.service, &entries, &headers, ended)
    };
    let mut results = Results { results: Outlive::new(work).await };
    fit_answers(&mut results);
    Ok(json(StatusCode::OK, &results))
}

fn fits(app: &App, body: &Bytes) -> bool {
    body.len() <= app.body_bytes_max
}

/// The verdicts of messages that came together: of those that fit as they ended, and of the others.
fn verdicts(
    app: &App,
    kind: MessageKind,
    source: &ServiceName,
    bodies: &[Bytes],
    headers: &HeaderMap,
    ended: Vec<Result<Answer, Refused>>,
) -> Vec<Entry> {
    let mut ended = ended.into_iter();
    let entry = |body: &Bytes| match fits(app, body).then(|| ended.next()).flatten() {
        Some(ended) => verdict(app, ended),
        None => too_large(app, kind, source, headers),
    };
    bodies.iter().map(entry).collect()
}

/// Takes one message of many to its verdict.
pub(super) async fn send_entry(app: &App, session: &Session, arrival: Arrival, turn: Turn) -> Entry {
    let ended = app.gate.accept(arrival, Wait::Usual, turn).await;
    events::note_foreign(app, session, [&ended]).await;
    verdict(app, ended)
}

fn too_large(app: &App, kind: MessageKind, source: &ServiceName, headers: &HeaderMap) -> Entry {
    let detail = format!("the message is larger than {} bytes", app.body_bytes_max);
    on_record(app, kind, source, headers, Refusal::new(Reason::TooLarge, detail)).into()
}

fn verdict(app: &App, ended: Result<Answer, Refused>) -> Entry {
    match ended {
        Ok(answer) => {
            let (status, accepted) = accepted(app, &answer);
            Entry::Accepted(Accepted { status: Some(status.as_u16()), ..accepted })
        }
        Err(refused) => refused.into(),
    }
}

impl From<Refused> for Entry {
    fn from(refused: Refused) -> Self {
        Self::Refused(Problem::from(refused).document())
    }
}

/// A message that is received now.
pub(super) fn arrival(
    app: &App,
    kind: MessageKind,
    source: ServiceName,
    body: Bytes,
    headers: &HeaderMap,
) -> Arrival {
    Arrival {
        kind,
        form: Form::Native,
        source,
        body,
        webhook: None,
        vouched: None,
        correlation: correlation(headers),
        traceparent: traceparent(headers),
        received_at: app.clock.now(),
        random: unpredictable(),
    }
}

/// For how long the sender waits for what becomes of its message: `Prefer: wait=10` (RFC 7240).
fn wait(headers: &HeaderMap) -> Result<Wait, Refusal> {
    let preferences = headers.get_all("prefer").iter().filter_map(|it| it.to_str().ok());
    let mut waits = preferences.flat_map(|it| it.split(',')).filter_map(|it| it.trim().strip_prefix("wait="));
    let Some(seconds) = waits.next() else { return Ok(Wait::Usual) };
    let wrong =
        || Refusal::new(Reason::InvalidRequest, "Prefer: wait= takes whole seconds, for example wait=10");
    let seconds = seconds.trim_matches('"').parse().map_err(|_| wrong())?;
    Ok(Wait::For(Duration::from_secs(seconds)))
}

pub(super) fn correlation(headers: &HeaderMap) -> Option<CorrelationId> {
    CorrelationId::new(headers.get("x-correlation-id")?.to_str().ok()?)
}

pub(super) fn traceparent(headers: &HeaderMap) -> Option<Traceparent> {
    Traceparent::parse(headers.get("traceparent")?.to_str().ok()?)
}

/// The Standard Webhooks headers, where there are any.
pub(super) fn webhook(headers: &HeaderMap) -> Option<Result<WebhookSignature, Refusal>> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let signature = text(WEBHOOK_SIGNATURE)?;
    let missing =
        |name: &str| Refusal::new(Reason::HmacMissing, format!("webhook-signature needs {name} beside it"));
    let needed = |name: &'static str| text(name).ok_or_else(|| missing(name));
    let parse = |id| WebhookSignature::parse(id, needed("webhook-timestamp")?, signature);
    Some(needed("webhook-id").and_then(parse))
}

/// The answer to a message. That of a command is what became of it at its route; that of an event lists all
/// subscriptions, and is the word of the only one where there is but one.
fn accepted(app: &App, answer: &Answer) -> (StatusCode, Accepted) {
    let subscriptions = match (answer.kind, &answer.reached[..]) {
        (MessageKind::Event, [only]) => vec![Subscribed::alone(&answer.id, only)],
        (MessageKind::Event, several) => several.iter().map(|it| Subscribed::new(&answer.id, it)).collect(),
        (MessageKind::Command, _) => Vec::new(),
    };
    let (status, told) = match &answer.reached[..] {
        [reached] => alone(&answer.id, reached),
        several => together(answer, several),
    };
    let mut accepted = Accepted {
        id: answer.id.as_str().to_owned(),
        correlation_id: answer.correlation.as_str().to_owned(),
        subscriptions,
        durability: app.relaxed.then_some("relaxed"),
        ..told
    };
    fit_answers(&mut accepted);
    (status, accepted)
}

fn alone(id: &MessageId, reached: &Reached) -> (StatusCode, Accepted) {
    let told = Told::of(id, reached);
    let stands = |so| {
        matches!(&reached.verdict, Verdict::Accepted { standing, .. } if *standing == so).then_some(true)
    };
    let accepted = Accepted {
        path: reached.verdict.taken_by().filter(|_| told.processed.is_none()).map(Path::as_str),
        delivery_id: told.delivery_id,
        duplicate: matches!(reached.verdict, Verdict::Duplicate { .. }).then_some(true),
        skipped: (reached.verdict == Verdict::Skipped).then_some(true),
        waiting: stands(Standing::Waiting),
        parked: stands(Standing::Parked),
        ordered: reached.passes_unordered.then_some(false),
        first_seen_at: told.first_seen_at,
        in_progress: told.outcome.is_some().then_some(true),
        outcome: told.outcome,
        processed: told.processed,
        ..Accepted::default()
    };
    (told.status, accepted)
}

/// PIP-13: 202, or 201 where all is done, if any is new; 200 if all are replays, or late and left out.
fn together(answer: &Answer, several: &[Reached]) -> (StatusCode, Accepted) {
    let mut taken = several.iter().filter_map(|it| it.verdict.taken_by());
    let first = several.iter().filter_map(|it| first_seen_at(&it.verdict)).min();
    let Some(path) = taken.next() else {
        let first_seen_at = first.map(|at| at.to_string());
        return (StatusCode::OK, Accepted { duplicate: Some(true), first_seen_at, ..Accepted::default() });
    };
    let path = Some(path.as_str());
    if answer.is_left_out() {
        return (StatusCode::OK, Accepted { path, skipped: Some(true), ..Accepted::default() });
    }
    let is_done = |it: &Reached| match &it.verdict {
        Verdict::Skipped => true,
        Verdict::Followed(followed) => followed.is_replay || followed.status == Status::Completed,
        verdict => verdict.taken_by().is_none(),
    };
    let status = if several.iter().all(is_done) { StatusCode::CREATED } else { StatusCode::ACCEPTED };
    (status, Accepted { path, ..Accepted::default() })
}
