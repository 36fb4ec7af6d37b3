//! The HTTP surface: one file per noun.

mod body;
mod commands;
mod dead_letters;
mod health;
mod parameters;
mod problem;
mod queues;
mod registry;
mod telemetry;
mod token;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::routing::{any, get, post};
use http::request::Parts;
use snavio_gate::Gate;
use snavio_model::refusal::{Reason, Refusal};

use crate::machine::MachineClock;
use crate::platform::Platform;
use crate::principal::{Principal, Sessions};
pub(crate) use problem::Problem;

/// What every handler works with.
pub(crate) struct App {
    pub(crate) gate: Arc<Gate>,
    pub(crate) platform: Arc<Platform>,
    pub(crate) sessions: Sessions,
    pub(crate) clock: Arc<MachineClock>,
    pub(crate) body_bytes_max: usize,
    pub(crate) relaxed: bool,
    pub(crate) metrics: metrics_exporter_prometheus::PrometheusHandle,
    pub(crate) draining: std::sync::atomic::AtomicBool,
}

pub(crate) type Shared = Arc<App>;

/// All endpoints.
pub(crate) fn router(app: Shared) -> Router {
    Router::new()
        .route("/v1/commands", post(commands::send))
        .route("/v1/commands/batch", post(commands::send_batch))
        .route("/v1/token", post(token::issue))
        .route("/v1/tenants", get(registry::list_tenants))
        .route(
            "/v1/tenants/{tenant}",
            get(registry::get_tenant).put(registry::put_tenant).delete(registry::delete_tenant),
        )
        .route(
            "/v1/tenants/{tenant}/services/{service}",
            get(registry::get_service).put(registry::put_service).delete(registry::delete_service),
        )
        .route(
            "/v1/routes/{tenant}/{service}/{name}",
            get(registry::get_route).put(registry::put_route).delete(registry::delete_route),
        )
        .route(
            "/v1/grants",
            get(registry::list_grants).put(registry::put_grant).delete(registry::delete_grant),
        )
        .route("/v1/registry", get(registry::get_registry))
        .route("/v1/registry/apply", post(registry::apply))
        .route("/v1/registry/changes", get(registry::changes))
        .route("/v1/queues/{queue}", get(queues::attributes))
        .route("/v1/queues/{queue}/receive", post(queues::receive))
        .route("/v1/queues/{queue}/ack", post(queues::acknowledge))
        .route("/v1/queues/{queue}/extend", post(queues::extend))
        .route("/v1/queues/{queue}/release", post(queues::release))
        .route("/v1/queues/{queue}/purge", post(queues::purge))
        .route("/v1/queues/{queue}/redrive", post(queues::redrive))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/dead-letters/{id}", get(dead_letters::show))
        .route("/v1/dead-letters/{id}/redrive", post(dead_letters::redrive))
        .route("/v1/telemetry", get(telemetry::read))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/v1/status", get(health::status))
        .route("/metrics", get(health::metrics))
        .route("/", get(health::page))
        .fallback(any(not_found))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

/// The admin listener's endpoints, which need no token there.
pub(crate) fn admin_router(app: Shared) -> Router {
    Router::new()
        .route("/metrics", get(health::open_metrics))
        .route("/v1/status", get(health::open_status))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .fallback(any(not_found))
        .with_state(app)
}

async fn not_found() -> Problem {
    Refusal::new(Reason::NotFound, "there is nothing under this path; see /openapi.json").into()
}

async fn method_not_allowed() -> Problem {
    Refusal::new(Reason::MethodNotAllowed, "the path does not take this method").into()
}

/// Authenticates the caller before a handler runs.
impl FromRequestParts<Shared> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Problem> {
        use snavio_model::time::Clock;

        let registry = app.gate.registry();
        Ok(app.sessions.principal(&parts.headers, &app.platform, &registry, app.clock.now())?)
    }
}
