//! Health, status, metrics, and a plain page at `/` (TEL-8, TEL-9).

use std::time::Duration;

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json as document};
use snavio_store::Durability;

use super::answer::json;
use super::{App, Problem, Shared};
use crate::principal::Principal;

/// A wall clock further than this from the node's own time fails readiness (QUA-1).
const CLOCK_DISTANCE_MAX: Duration = Duration::from_secs(60);

pub(super) async fn live() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(app): State<Shared>) -> Response {
    let checks = checks(&app).await;
    let ready = checks.iter().all(|(_, problem)| problem.is_none());
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let checks: serde_json::Map<_, _> = checks
        .into_iter()
        .map(|(name, problem)| (name.to_owned(), problem.unwrap_or_else(|| "ok".to_owned()).into()))
        .collect();
    json(status, &document!({ "ready": ready, "checks": checks }))
}

async fn checks(app: &App) -> Vec<(&'static str, Option<String>)> {
    let store = app.gate.store().ping().await.err().map(|error| error.to_string());
    let distance = app.clock.distance_from_wall();
    let clock = (distance > CLOCK_DISTANCE_MAX)
        .then(|| format!("the wall clock is {} s away from the node's time", distance.as_secs()));
    let draining = app.is_draining().then(|| "the node is stopping".to_owned());
    vec![("store", store), ("clock", clock), ("draining", draining)]
}

pub(super) async fn status(State(app): State<Shared>, principal: Principal) -> Result<Response, Problem> {
    principal.operator()?;
    Ok(json(StatusCode::OK, &figures(&app)))
}

pub(super) async fn open_status(State(app): State<Shared>) -> Response {
    json(StatusCode::OK, &figures(&app))
}

fn figures(app: &App) -> Value {
    let figures = app.gate.store().figures();
    let durability = match app.gate.store().durability() {
        Durability::Durable => "durable".to_owned(),
        Durability::Relaxed(why) => format!("relaxed: {why}"),
    };
    document!({
        "version": env!("CARGO_PKG_VERSION"),
        "store": {
            "engine": "embedded",
            "durability": durability,
            "epoch": figures.epoch,
            "commits": figures.commits,
            "messages": figures.messages,
            "wal_bytes": figures.wal_bytes,
            "deliveries": figures.deliveries,
        },
        "registry_version": app.gate.registry().version(),
        "waiting": app.gate.waiting(),
        "draining": app.is_draining(),
    })
}

pub(super) async fn metrics(State(app): State<Shared>, principal: Principal) -> Result<Response, Problem> {
    principal.operator()?;
    Ok(render(&app))
}

pub(super) async fn open_metrics(State(app): State<Shared>) -> Response {
    render(&app)
}

fn render(app: &App) -> Response {
    let figures = app.gate.store().figures();
    metrics::gauge!("snavio_store_wal_bytes").set(figures.wal_bytes as f64);
    metrics::gauge!("snavio_store_deliveries").set(figures.deliveries as f64);
    metrics::gauge!("snavio_intake_waiting").set(app.gate.waiting() as f64);
    metrics::gauge!("snavio_relaxed").set(f64::from(u8::from(app.relaxed)));
    metrics::counter!("snavio_store_commits_total").absolute(figures.commits);
    metrics::counter!("snavio_store_messages_total").absolute(figures.messages);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render()).into_response()
}

/// A page for people who open the address in a browser: what this is, how it is, where to go on.
pub(super) async fn page(State(app): State<Shared>) -> Html<String> {
    let checks = checks(&app).await;
    let rows: String = checks
        .iter()
        .map(|(name, problem)| {
            format!("<tr><td>{name}</td><td>{}</td></tr>", problem.as_deref().unwrap_or("ok"))
        })
        .collect();
    Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Snavio</title><h1>Snavio {}</h1><p>A gateway for commands and events.</p>\
         <table>{rows}</table><p><a href=/docs>API</a> · <a href=/readyz>readiness</a></p></html>",
        env!("CARGO_PKG_VERSION")
    ))
}
