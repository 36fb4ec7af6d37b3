//! `/metrics`, in the format of Prometheus (TEL-8).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::answer::typed;
use super::{App, Problem, Shared};
use crate::principal::Principal;

const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Figures for Prometheus, for operators.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn metrics(State(app): State<Shared>, principal: Principal) -> Result<Response, Problem> {
    principal.operator()?;
    Ok(render(&app))
}

/// The same for the admin listener.
pub(super) async fn open(State(app): State<Shared>) -> Response {
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
    typed(StatusCode::OK, MEDIA, app.metrics.render())
}
