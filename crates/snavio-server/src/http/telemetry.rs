//! A tenant's own telemetry, by long poll or as server-sent events (TEL-4).

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as document};
use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_model::identity::permission::Permission;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{EntryKey, Kind};
use snavio_model::telemetry::StoredRecord;
use snavio_model::time::Clock;
use utoipa::{IntoParams, ToSchema};

use super::answer::json;
use super::extract::{Params, page_limit, seconds};
use super::unknown::{record_type, unknown_service};
use super::{App, Places, Problem, Shared, whose};
use crate::principal::Principal;

/// How long an event stream stays silent before it says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize, Clone, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Whose telemetry, when an operator or an auditor of all asks.
    tenant: Option<String>,
    /// The `next` of the page before; a stream resumes by Last-Event-ID.
    #[serde(default)]
    after: i64,
    /// Records of the page: 100 when not said, 1000 at most.
    limit: Option<usize>,
    /// How long to wait for the first one, 20 at most.
    #[serde(default)]
    wait_seconds: u64,
    /// Only records about this service as a source.
    source: Option<String>,
    /// Only records of this type.
    r#type: Option<String>,
}

/// Some records, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Records {
    /// Each with its number, type and timestamp, and further members by type.
    #[schema(value_type = Vec<Object>)]
    items: Vec<Value>,
    /// The `after` to go on from.
    next: i64,
}

impl Filter {
    fn is_any(&self) -> bool {
        self.r#type.is_none() && self.source.is_none()
    }

    fn takes(&self, record: &StoredRecord) -> bool {
        self.r#type.as_ref().is_none_or(|wanted| *wanted == record.kind)
            && self.source.as_ref().is_none_or(|wanted| record.source.as_ref() == Some(wanted))
    }
}

/// A tenant's telemetry: what is there, a long poll, or a stream of server-sent events.
///
/// A stream ends when its token does, or its client, service or tenant may not read any more: get a new token and
/// go on from the last event.
#[utoipa::path(get, path = "/v1/telemetry", tag = "telemetry",
    params(Filter, ("last-event-id" = Option<i64>, Header, description = "Where a stream goes on, instead of `after`: the id of the last event seen")),
    responses((status = 200, description = "Records; as server-sent events when asked for", content((Records = "application/json"), (String = "text/event-stream")))))]
pub(super) async fn read(
    State(app): State<Shared>,
    principal: Principal,
    Params(filter): Params<Filter>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let tenant = whose::tenant(&app, &principal, Permission::Read, filter.tenant.as_deref()).await?;
    page_limit(filter.limit)?;
    filter.r#type.as_deref().map(record_type).transpose()?;
    if let Some(source) = &filter.source {
        check_source(&app, &principal, &tenant, source).await?;
    }
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("text/event-stream") {
        let after = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
        // The principal goes with the stream, and with it its tenant's place.
        let places = app.stream_places(None)?;
        let filter = Filter { after: after.unwrap_or(filter.after), ..filter };
        return Ok(stream(app, principal, places, tenant, filter));
    }
    poll(&app, &tenant, &filter).await
}

/// Refuses a source that is no service of the tenant. Whether there is one of another tenant is not the caller's to learn.
async fn check_source(app: &App, principal: &Principal, tenant: &str, source: &str) -> Result<(), Problem> {
    let name = ServiceName::new(source);
    let name = name.map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
    let registry = app.gate.registry();
    if name.tenant() != tenant
        || registry.service(source).is_some()
        || app.gate.store().was_registered(&EntryKey { kind: Kind::Service, name: source.to_owned() }).await?
    {
        return Ok(());
    }
    Err(unknown_service(&registry, principal, &name).into())
}

async fn poll(app: &App, tenant: &str, filter: &Filter) -> Result<Response, Problem> {
    let wait = seconds("wait_seconds", Some(filter.wait_seconds), Duration::ZERO, bounds::RECEIVE_WAIT_MAX)?;
    let deadline = tokio::time::Instant::now() + wait;
    let (records, next) = next_page(app, tenant, filter, Serial(filter.after), deadline).await?;
    let items = records.iter().map(shown).collect();
    Ok(json(StatusCode::OK, &Records { items, next: next.0 }))
}

/// The next records that the filter takes, and where to go on; waits for the first one until the deadline. What
/// a filter does not take is passed over in large steps, and only so far: the rest is for the next request.
async fn next_page(
    app: &App,
    tenant: &str,
    filter: &Filter,
    mut after: Serial,
    deadline: tokio::time::Instant,
) -> Result<(Vec<StoredRecord>, Serial), Problem> {
    let limit = page_limit(filter.limit)?;
    let step = if filter.is_any() { limit } else { bounds::PAGE_MAX };
    let store = app.gate.store();
    let written = store.telemetry_written(tenant);
    let mut looked_at = 0;
    loop {
        let more = written.notified();
        tokio::pin!(more);
        more.as_mut().enable();
        let page = store.telemetry(tenant, after, step).await?;
        let end_reached = page.len() < step;
        looked_at += page.len();
        after = page.last().map_or(after, |record| record.number);
        let mut taken: Vec<_> = page.into_iter().filter(|record| filter.takes(record)).collect();
        if taken.len() > limit {
            taken.truncate(limit);
            after = taken[limit - 1].number;
        }
        let enough = !taken.is_empty() || looked_at >= bounds::TELEMETRY_LOOKED_AT_MAX;
        if enough || (end_reached && !app.wait(more, deadline).await) {
            return Ok((taken, after));
        }
    }
}

/// Goes on until its reader leaves, the node stops, or its caller may not read any more.
fn stream(app: Shared, principal: Principal, places: Places, tenant: String, filter: Filter) -> Response {
    let (events, sent) =
        tokio::sync::mpsc::channel::<Result<Bytes, Infallible>>(bounds::STREAM_ANSWERS_WAITING_MAX);
    tokio::spawn(async move {
        let _places = places;
        let mut after = Serial(filter.after);
        loop {
            let deadline = tokio::time::Instant::now() + KEEP_ALIVE;
            let page = tokio::select! {
                page = next_page(&app, &tenant, &filter, after, deadline) => page,
                () = events.closed() => return,
            };
            let Ok((records, next)) = page else { return };
            if principal.check_again(&app.gate.registry(), app.clock.now()).is_err() {
                return;
            }
            after = next;
            let text = match records.as_slice() {
                [] => ": still here\n\n".to_owned(),
                records => records.iter().map(event).collect(),
            };
            let patience = app.body_timeout;
            if events.send_timeout(Ok(Bytes::from(text)), patience).await.is_err()
                || app.stopping.is_cancelled()
            {
                return;
            }
        }
    });
    let mut sent = sent;
    let body = Body::from_stream(futures_util::stream::poll_fn(move |context| sent.poll_recv(context)));
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], body).into_response()
}

fn event(record: &StoredRecord) -> String {
    format!("id: {}\nevent: {}\ndata: {}\n\n", record.number, record.kind, shown(record))
}

fn shown(record: &StoredRecord) -> Value {
    let mut members = record.body.clone();
    members.insert("number".into(), document!(record.number));
    members.insert("type".into(), document!(record.kind));
    members.insert("timestamp".into(), document!(record.at.to_string()));
    Value::Object(members)
}
