//! Ingest: `POST /v1/commands`, one message, and `POST /v1/commands/batch`, many or a stream.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream::FuturesOrdered;
use futures_util::{StreamExt, future};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use snavio_gate::{Answer, Arrival, Verdict};
use snavio_model::json::split_array;
use snavio_model::limits;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal, Refused};
use snavio_model::time::Clock;
use snavio_model::trace::Traceparent;
use snavio_model::webhook::WebhookSignature;
use tokio::sync::mpsc;

use super::body::{Media, media, read};
use super::{App, Problem, Shared};
use crate::machine::unpredictable;
use crate::principal::Principal;

/// One command.
pub(super) async fn send(
    State(app): State<Shared>,
    principal: Principal,
    request: Request,
) -> Result<Response, Problem> {
    let source = principal.service()?;
    let arrival = read_one(&app, source, request).await;
    let arrival = arrival.map_err(|refusal| app.gate.refuse(source, app.clock.now(), refusal))?;
    // On a task of its own: a client that hangs up must not cancel a commit under way.
    let running = Arc::clone(&app);
    let ended = tokio::spawn(async move { running.gate.accept(arrival).await }).await;
    let answer = ended.map_err(|_| Refusal::new(Reason::Unavailable, "the message's task was ended"))??;
    Ok(respond(&app, &answer))
}

async fn read_one(app: &App, source: &ServiceName, request: Request) -> Result<Arrival, Refusal> {
    let (parts, body) = request.into_parts();
    if media(&parts.headers)? != Media::Json {
        return Err(Refusal::new(Reason::UnsupportedMediaType, "one command is application/json"));
    }
    let body = read(body, app.body_bytes_max).await?;
    let webhook = webhook(&parts.headers)?;
    Ok(Arrival { webhook, ..arrival(app, source.clone(), body, &parts.headers) })
}

/// Many commands: a JSON array, answered as one document, or NDJSON, answered line by line.
pub(super) async fn send_batch(
    State(app): State<Shared>,
    principal: Principal,
    request: Request,
) -> Result<Response, Problem> {
    let source = principal.service()?;
    let answered = answer_batch(&app, source, request).await;
    Ok(answered.map_err(|refusal| app.gate.refuse(source, app.clock.now(), refusal))?)
}

async fn answer_batch(app: &Shared, source: &ServiceName, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    if webhook(&parts.headers)?.is_some() {
        let detail = "command batches need metadata.hmac in each entry, not a webhook-signature over all";
        return Err(Refusal::new(Reason::InvalidRequest, detail));
    }
    match media(&parts.headers)? {
        Media::Json => send_array(app, source, &parts.headers, body).await,
        Media::NdJson => Ok(send_lines(Arc::clone(app), source.clone(), parts.headers, body)),
    }
}

async fn send_array(
    app: &Shared,
    source: &ServiceName,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let body = read(body, limits::BATCH_BYTES_MAX).await?;
    let entries = split_array(&body).map_err(Refusal::from)?;
    if entries.len() > limits::BATCH_MESSAGES_MAX {
        let detail = format!("a batch holds at most {} messages", limits::BATCH_MESSAGES_MAX);
        return Err(Refusal::new(Reason::TooLarge, detail));
    }
    let arrivals: Vec<_> = entries
        .into_iter()
        .map(|entry| arrival(app, source.clone(), body.slice_ref(entry), headers))
        .collect();
    let running = Arc::clone(app);
    let all = async move {
        let accepted = arrivals.into_iter().map(|arrival| accept_entry(&running, arrival));
        future::join_all(accepted).await
    };
    let results = tokio::spawn(all).await;
    let results = results.map_err(|_| Refusal::new(Reason::Unavailable, "the batch's task was ended"))?;
    Ok(json_response(StatusCode::OK, &json!({ "results": results })))
}

/// Reads lines as they come and answers each in order, with a bounded number under way.
fn send_lines(app: Shared, source: ServiceName, headers: HeaderMap, body: Body) -> Response {
    let (answers, lines) = mpsc::channel::<Result<Bytes, std::convert::Infallible>>(16);
    tokio::spawn(async move {
        let mut lines =
            Lines { body: body.into_data_stream(), buffer: BytesMut::new(), limit: app.body_bytes_max };
        let mut under_way = FuturesOrdered::new();
        loop {
            let room = under_way.len() < limits::STREAM_IN_FLIGHT_MAX;
            tokio::select! {
                line = lines.next(), if room => match line {
                    Some(Ok(line)) => {
                        let arrival = arrival(&app, source.clone(), line, &headers);
                        let running = Arc::clone(&app);
                        under_way.push_back(tokio::spawn(async move { accept_entry(&running, arrival).await }));
                    }
                    Some(Err(refusal)) => {
                        drain(&mut under_way, &answers).await;
                        let refused = app.gate.refuse(&source, app.clock.now(), refusal);
                        send_line(&answers, &entry(&app, &Err(refused))).await;
                        return;
                    }
                    None => return drain(&mut under_way, &answers).await,
                },
                Some(ended) = under_way.next() => {
                    // A reader that went away gets no answers; its messages are settled all the same.
                    send_line(&answers, &ended.unwrap_or_default()).await;
                }
            }
        }
    });
    let mut lines = lines;
    let stream = futures_util::stream::poll_fn(move |context| lines.poll_recv(context));
    let mut response = Body::from_stream(stream).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response
}

type Answers = mpsc::Sender<Result<Bytes, std::convert::Infallible>>;

async fn drain(under_way: &mut FuturesOrdered<tokio::task::JoinHandle<Value>>, answers: &Answers) {
    while let Some(ended) = under_way.next().await {
        send_line(answers, &ended.unwrap_or_default()).await;
    }
}

async fn send_line(answers: &Answers, value: &Value) {
    let _ = answers.send(Ok(Bytes::from(format!("{value}\n")))).await;
}

/// Cuts a stream of bytes into lines of bounded length.
struct Lines {
    body: axum::body::BodyDataStream,
    buffer: BytesMut,
    limit: usize,
}

impl Lines {
    async fn next(&mut self) -> Option<Result<Bytes, Refusal>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1).freeze();
                let line = line.slice(..end);
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Some(checked(line, self.limit));
            }
            if self.buffer.len() > self.limit {
                return Some(checked(self.buffer.split().freeze(), self.limit));
            }
            match self.body.next().await {
                Some(Ok(chunk)) => self.buffer.extend_from_slice(&chunk),
                Some(Err(_)) => {
                    return Some(Err(Refusal::new(Reason::InvalidRequest, "the stream broke off")));
                }
                None if self.buffer.iter().all(u8::is_ascii_whitespace) => return None,
                None => return Some(checked(self.buffer.split().freeze(), self.limit)),
            }
        }
    }
}

fn checked(line: Bytes, limit: usize) -> Result<Bytes, Refusal> {
    if line.len() > limit {
        return Err(Refusal::new(Reason::TooLarge, format!("a line is larger than {limit} bytes")));
    }
    Ok(line)
}

fn arrival(app: &App, source: ServiceName, body: Bytes, headers: &HeaderMap) -> Arrival {
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    Arrival {
        source,
        body,
        webhook: None,
        traceparent: traceparent.and_then(Traceparent::parse),
        received_at: app.clock.now(),
        random: unpredictable(),
    }
}

/// The Standard Webhooks headers, where there are any.
fn webhook(headers: &HeaderMap) -> Result<Option<WebhookSignature>, Refusal> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let Some(signature) = text("webhook-signature") else { return Ok(None) };
    let missing =
        |name: &str| Refusal::new(Reason::HmacMissing, format!("webhook-signature needs {name} beside it"));
    let id = text("webhook-id").ok_or_else(|| missing("webhook-id"))?;
    let timestamp = text("webhook-timestamp").ok_or_else(|| missing("webhook-timestamp"))?;
    WebhookSignature::parse(id, timestamp, signature).map(Some)
}

async fn accept_entry(app: &App, arrival: Arrival) -> Value {
    if arrival.body.len() > app.body_bytes_max {
        let detail = format!("the message is larger than {} bytes", app.body_bytes_max);
        let refusal = Refusal::new(Reason::TooLarge, detail);
        return entry(app, &Err(app.gate.refuse(&arrival.source, arrival.received_at, refusal)));
    }
    entry(app, &app.gate.accept(arrival).await)
}

/// One entry's verdict within a batch.
fn entry(app: &App, ended: &Result<Answer, Refused>) -> Value {
    match ended {
        Ok(answer) => {
            let (status, mut document) = document(app, answer);
            document["status"] = status.as_u16().into();
            document
        }
        Err(refused) => Problem::from(refused.clone()).document(),
    }
}

fn document(app: &App, answer: &Answer) -> (StatusCode, Value) {
    let (id, correlation_id) = (answer.id.as_str(), answer.correlation.as_str());
    let (status, mut document) = match answer.verdict {
        Verdict::Accepted { path, delivery } => (
            StatusCode::ACCEPTED,
            json!({ "accepted": true, "id": id, "correlation_id": correlation_id, "path": path.as_str(), "delivery_id": delivery }),
        ),
        Verdict::Duplicate { first_seen_at } => {
            let mut document =
                json!({ "accepted": true, "id": id, "correlation_id": correlation_id, "duplicate": true });
            if let Some(at) = first_seen_at {
                document["first_seen_at"] = at.to_string().into();
            }
            (StatusCode::OK, document)
        }
    };
    if app.relaxed {
        document["durability"] = "relaxed".into();
    }
    (status, document)
}

fn respond(app: &App, answer: &Answer) -> Response {
    let (status, document) = document(app, answer);
    json_response(status, &document)
}

pub(super) fn json_response(status: StatusCode, document: &Value) -> Response {
    let mut response = (status, document.to_string()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
