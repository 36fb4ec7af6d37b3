//! The HTTP surface: one file per noun.

mod answer;
mod body;
mod commands;
mod dead_letters;
mod extract;
mod health;
mod message;
mod problem;
mod queues;
mod registry;
mod stream;
mod telemetry;
mod token;
mod whose;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::routing::{any, get, post};
use http::request::Parts;
use snavio_gate::Gate;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::Clock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::failures::Failures;
use crate::machine::MachineClock;
use crate::platform::Platform;
use crate::principal::{Nobody, Principal, Sessions};
pub(crate) use problem::Problem;
use registry::{changes, file, grants, list, routes, services, tenants};

/// What every handler works with.
pub(crate) struct App {
    pub(crate) gate: Arc<Gate>,
    pub(crate) platform: Arc<Platform>,
    pub(crate) sessions: Sessions,
    pub(crate) failures: Failures,
    pub(crate) clock: Arc<MachineClock>,
    pub(crate) body_bytes_max: usize,
    pub(crate) relaxed: bool,
    pub(crate) metrics: metrics_exporter_prometheus::PrometheusHandle,
    pub(crate) body_timeout: Duration,
    pub(crate) draining: CancellationToken,
}

impl App {
    /// Whether the node takes nothing new.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Waits for something to happen. False when the time is over, or the node stops: who waits then answers
    /// with what there is.
    async fn wait(&self, happens: impl Future<Output = ()>, deadline: Instant) -> bool {
        tokio::select! {
            () = happens => true,
            () = tokio::time::sleep_until(deadline) => false,
            () = self.draining.cancelled() => false,
        }
    }
}

pub(crate) type Shared = Arc<App>;

/// All endpoints.
pub(crate) fn router(app: Shared) -> Router {
    Router::new()
        .route("/v1/commands", post(commands::send))
        .route("/v1/commands/batch", post(commands::send_batch))
        .route("/v1/token", post(token::issue))
        .route("/v1/tenants", get(tenants::all))
        .route("/v1/tenants/{tenant}", get(tenants::show).put(tenants::register).delete(tenants::unregister))
        .route(
            "/v1/tenants/{tenant}/services/{service}",
            get(services::show).put(services::register).delete(services::unregister),
        )
        .route(
            "/v1/routes/{tenant}/{service}/{name}",
            get(routes::show).put(routes::register).delete(routes::unregister),
        )
        .route("/v1/grants", get(grants::all).put(grants::give).delete(grants::take_back))
        .route("/v1/registry", get(list::everything))
        .route("/v1/registry/apply", post(file::apply))
        .route("/v1/registry/changes", get(changes::since))
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
        .method_not_allowed_fallback(method_not_allowed)
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
        let registry = app.gate.registry();
        let resolved = app.sessions.principal(&parts.headers, &app.platform, &registry, app.clock.now());
        Ok(resolved.map_err(|nobody| match nobody {
            Nobody::Unknown(detail) => Refusal::new(Reason::Unauthenticated, detail),
            Nobody::Forger => {
                app.failures.refuse(&parts.extensions, app.clock.now(), "the token is not valid")
            }
        })?)
    }
}
