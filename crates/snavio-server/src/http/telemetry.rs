//! A tenant's own telemetry, by long poll or as server-sent events (TEL-4).

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::telemetry::StoredRecord;

use super::commands::json_response;
use super::parameters::Query;
use super::{App, Problem, Shared};
use crate::principal::Principal;

/// How long an event stream stays silent before it says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize, Clone)]
pub(super) struct Filter {
    tenant: Option<String>,
    #[serde(default)]
    after: i64,
    limit: Option<usize>,
    #[serde(default)]
    wait_seconds: u64,
    /// Only records about this service as a source.
    source: Option<String>,
    /// Only records of this type.
    r#type: Option<String>,
}

impl Filter {
    fn takes(&self, record: &StoredRecord) -> bool {
        self.r#type.as_ref().is_none_or(|wanted| *wanted == record.kind)
            && self.source.as_ref().is_none_or(|wanted| record.source.as_ref() == Some(wanted))
    }
}

pub(super) async fn read(
    State(app): State<Shared>,
    principal: Principal,
    Query(filter): Query<Filter>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let tenant = match &principal {
        Principal::Service(session) => session.service.tenant().to_owned(),
        Principal::Operator => filter.tenant.clone().ok_or_else(|| {
            Refusal::new(Reason::InvalidRequest, "an operator says whose telemetry: ?tenant=<tenant>")
        })?,
    };
    let events = headers.get(ACCEPT).is_some_and(|accept| accept == "text/event-stream");
    if events {
        let after = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
        return Ok(stream(app, tenant, Filter { after: after.unwrap_or(filter.after), ..filter }));
    }
    poll(&app, &tenant, &filter).await
}

async fn poll(app: &App, tenant: &str, filter: &Filter) -> Result<Response, Problem> {
    let wait = Duration::from_secs(filter.wait_seconds).min(limits::RECEIVE_WAIT_MAX);
    let deadline = tokio::time::Instant::now() + wait;
    let (records, next) = next_page(app, tenant, filter, Serial(filter.after), deadline).await?;
    let items: Vec<_> = records.iter().map(document).collect();
    Ok(json_response(StatusCode::OK, &json!({ "items": items, "next": next })))
}

/// The next records that the filter takes, and where to go on; waits for the first one until the deadline.
async fn next_page(
    app: &App,
    tenant: &str,
    filter: &Filter,
    mut after: Serial,
    deadline: tokio::time::Instant,
) -> Result<(Vec<StoredRecord>, Serial), Problem> {
    let limit = filter.limit.unwrap_or(limits::PAGE_DEFAULT).clamp(1, limits::PAGE_MAX);
    let store = app.gate.store();
    let written = store.telemetry_written();
    loop {
        let more = written.notified();
        tokio::pin!(more);
        more.as_mut().enable();
        let page = store.telemetry(tenant, after, limit).await?;
        let end_reached = page.len() < limit;
        after = page.last().map_or(after, |record| record.number);
        let taken: Vec<_> = page.into_iter().filter(|record| filter.takes(record)).collect();
        let draining = app.draining.load(std::sync::atomic::Ordering::Relaxed);
        if !taken.is_empty() || draining {
            return Ok((taken, after));
        }
        if end_reached && tokio::time::timeout_at(deadline, more).await.is_err() {
            return Ok((taken, after));
        }
    }
}

fn stream(app: Shared, tenant: String, filter: Filter) -> Response {
    let (events, sent) = tokio::sync::mpsc::channel::<Result<Bytes, Infallible>>(4);
    tokio::spawn(async move {
        let mut after = Serial(filter.after);
        loop {
            let deadline = tokio::time::Instant::now() + KEEP_ALIVE;
            let Ok((records, next)) = next_page(&app, &tenant, &filter, after, deadline).await else {
                return;
            };
            after = next;
            let text = match records.as_slice() {
                [] => ": still here\n\n".to_owned(),
                records => records.iter().map(event).collect(),
            };
            let draining = app.draining.load(std::sync::atomic::Ordering::Relaxed);
            if events.send(Ok(Bytes::from(text))).await.is_err() || draining {
                return;
            }
        }
    });
    let mut sent = sent;
    let body = Body::from_stream(futures_util::stream::poll_fn(move |context| sent.poll_recv(context)));
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], body).into_response()
}

fn event(record: &StoredRecord) -> String {
    format!("id: {}\nevent: {}\ndata: {}\n\n", record.number, record.kind, document(record))
}

fn document(record: &StoredRecord) -> Value {
    let mut members = record.body.clone();
    members.insert("number".into(), json!(record.number));
    members.insert("type".into(), json!(record.kind));
    members.insert("timestamp".into(), json!(record.at.to_string()));
    Value::Object(members)
}
