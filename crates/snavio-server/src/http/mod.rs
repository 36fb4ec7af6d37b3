//! The HTTP surface: one file per noun.

mod admin;
mod answer;
mod audit;
mod body;
mod claim_import;
mod claims;
mod commands;
mod conflicts;
mod dead_letters;
mod dry_run;
mod entities;
mod erasures;
mod events;
mod exchange;
mod explain;
mod extract;
mod health;
mod holds;
mod hooks;
mod message;
mod metrics;
mod openapi;
mod pages;
mod problem;
mod processed;
mod queues;
mod reason;
mod registry;
mod stream;
mod subscribed;
mod telemetry;
mod tenant_config;
mod timing;
mod token;
mod unknown;
mod whose;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::routing::any;
use http::request::Parts;
use snavio_gate::Gate;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::Registry;
use snavio_model::time::{Clock, Timestamp};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::failures::Failures;
use crate::key_sets::KeySets;
use crate::load::{Bounded, Class, Load, Room, Taken};
use crate::machine::MachineClock;
use crate::overreach::Overreach;
use crate::platform::Platform;
use crate::polls::Polls;
use crate::principal::{Caller, Nobody, Principal, Sessions, sends};
use crate::processor::Calls;
pub(crate) use admin::admin_router;
pub(crate) use message::written;
pub(crate) use metrics::{QueueFigures, SharedCount};
pub(crate) use problem::Problem;
use registry::{
    adapters, bans, chain, changes, event_types, file, grants, issuers, keys, list, past, push, requests,
    services, subscriptions, tenants, tokens, workloads,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What every handler works with.
pub(crate) struct App {
    pub(crate) gate: Arc<Gate>,
    pub(crate) platform: Arc<Platform>,
    pub(crate) sessions: Sessions,
    pub(crate) failures: Failures,
    pub(crate) polls: Polls,
    pub(crate) overreach: Overreach,
    pub(crate) key_sets: KeySets,
    pub(crate) processors: Arc<Calls>,
    pub(crate) load: Arc<Load>,
    /// The bytes of webhooks' bodies in memory.
    pub(crate) hook_bodies: Arc<Bounded>,
    pub(crate) clock: Arc<MachineClock>,
    pub(crate) body_bytes_max: usize,
    pub(crate) relaxed: bool,
    pub(crate) metrics: metrics_exporter_prometheus::PrometheusHandle,
    pub(crate) queue_figures: QueueFigures,
    pub(crate) open_conflicts: SharedCount<()>,
    pub(crate) body_timeout: Duration,
    pub(crate) data_folder: PathBuf,
    pub(crate) disk_free_bytes_min: u64,
    pub(crate) started_at: Timestamp,
    /// Its name among the nodes of its store.
    pub(crate) node: String,
    /// Told when the node is about to stop: it says so, and serves on.
    pub(crate) draining: CancellationToken,
    /// Told when it stops: what waits or goes on without end, ends.
    pub(crate) stopping: CancellationToken,
}

impl App {
    /// Whether the node says that it is about to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// How long the node has been running.
    pub(crate) fn uptime(&self) -> Duration {
        self.clock.now().since(self.started_at)
    }

    /// The places of a stream, which goes on after its request was answered: one of the node's, one of its
    /// tenant's.
    fn stream_places(&self, caller: Option<&Caller>) -> Result<Places, Refusal> {
        let of_tenant = caller.map(Caller::another_place).transpose()?;
        Ok(Places { _node: self.load.enter(Class::Ordinary)?, _tenant: of_tenant })
    }

    /// Room for a body, of the node's and of the share that the request has a part in.
    fn body_room(&self, parts: &Parts) -> Result<Room, Refusal> {
        let share = parts.extensions.get::<BodyShare>().map(|BodyShare(bytes)| bytes);
        self.load.room(class_of(parts.uri.path()), share)
    }

    /// Waits for something to happen. False when the time is over, or the node stops: who waits then answers
    /// with what there is.
    async fn wait(&self, happens: impl Future<Output = ()>, deadline: Instant) -> bool {
        tokio::select! {
            () = happens => true,
            () = tokio::time::sleep_until(deadline) => false,
            () = self.stopping.cancelled() => false,
        }
    }
}

/// What a stream holds for as long as it goes on.
struct Places {
    _node: Taken,
    _tenant: Option<Taken>,
}

/// The bytes of bodies in memory that a request's is counted among: those of its tenant, or of all webhooks, which anybody
/// can send. Kept with the request, because bodies are read after the caller is known.
#[derive(Clone)]
struct BodyShare(Arc<Bounded>);

pub(crate) type Shared = Arc<App>;

/// All endpoints.
pub(crate) fn router(app: Shared) -> Router {
    let (router, document) = routes().split_for_parts();
    let timings = timing::timings(document.paths.paths.keys());
    router
        .route_layer(axum::middleware::from_fn_with_state(timings, timing::measure))
        .fallback(any(not_found))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

/// Every route, each with its description.
fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(openapi::opening())
        .routes(routes!(commands::send))
        .routes(routes!(commands::send_batch))
        .routes(routes!(events::send))
        .routes(routes!(events::send_batch))
        .routes(routes!(hooks::take))
        .routes(routes!(queues::attributes))
        .routes(routes!(queues::receive))
        .routes(routes!(queues::acknowledge))
        .routes(routes!(queues::extend))
        .routes(routes!(queues::release))
        .routes(routes!(queues::purge))
        .routes(routes!(queues::redrive))
        .routes(routes!(explain::explain))
        .routes(routes!(claims::list))
        .routes(routes!(claim_import::import, claim_import::look_up))
        .routes(routes!(claims::look_up))
        .routes(routes!(claims::answer))
        .routes(routes!(claims::message))
        .routes(routes!(work::begin))
        .routes(routes!(work::complete))
        .routes(routes!(work::fail))
        .routes(routes!(work::extend))
        .routes(routes!(claims::reprocess))
        .routes(routes!(claims::settle))
        .routes(routes!(conflicts::list))
        .routes(routes!(conflicts::show))
        .routes(routes!(conflicts::change_state))
        .routes(routes!(entities::show))
        .routes(routes!(entities::reset))
        .routes(routes!(entities::skip))
        .routes(routes!(holds::list, holds::set))
        .routes(routes!(holds::lift))
        .routes(routes!(erasures::list, erasures::erase))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::show))
        .routes(routes!(dead_letters::redrive))
        .routes(routes!(telemetry::read))
        .routes(routes!(tenants::all))
        .routes(routes!(tenants::show, tenants::register, tenants::unregister))
        .routes(routes!(services::show, services::register, services::unregister))
        .routes(routes!(keys::list))
        .routes(routes!(keys::rotate))
        .routes(routes!(keys::revoke))
        .routes(routes!(tenant_config::tenant_config))
        .routes(routes!(registry::platform_key::show, registry::platform_key::replace))
        .routes(routes!(registry::routes::show, registry::routes::register, registry::routes::unregister))
        .routes(routes!(event_types::show, event_types::register, event_types::unregister))
        .routes(routes!(subscriptions::show, subscriptions::register, subscriptions::unregister))
        .routes(routes!(push::rotate_route))
        .routes(routes!(push::rotate_subscription))
        .routes(routes!(adapters::show, adapters::register, adapters::unregister))
        .routes(routes!(grants::all, grants::give, grants::take_back))
        .routes(routes!(requests::waiting, requests::ask))
        .routes(routes!(requests::approve))
        .routes(routes!(requests::decline))
        .routes(routes!(tokens::all, tokens::issue))
        .routes(routes!(tokens::revoke))
        .routes(routes!(issuers::all, issuers::trust, issuers::distrust))
        .routes(routes!(workloads::all, workloads::bind, workloads::release))
        .routes(routes!(list::everything))
        .routes(routes!(changes::since))
        .routes(routes!(bans::all))
        .routes(routes!(bans::show, bans::set, bans::lift))
        .routes(routes!(chain::seals))
        .routes(routes!(chain::evidence))
        .routes(routes!(past::at))
        .routes(routes!(past::compare))
        .routes(routes!(past::roll_back))
        .routes(routes!(audit::deeds))
        .routes(routes!(file::apply))
        .routes(routes!(dry_run::dry_run))
        .routes(routes!(token::issue))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(health::status))
        .routes(routes!(metrics::metrics))
        .routes(routes!(openapi::openapi))
        .routes(routes!(pages::docs::docs))
        .routes(routes!(pages::front::front))
        .routes(routes!(pages::style))
}

/// What an overload must know of a request, before any route has seen it.
pub(crate) fn class_of(path: &str) -> Class {
    let ends_work =
        ["/ack", "/extend", "/release", "/complete", "/fail"].iter().any(|ending| path.ends_with(ending));
    match path {
        "/livez" | "/readyz" => Class::Health,
        "/v1/token" => Class::Token,
        // Whatever an adapter may be called.
        _ if path.starts_with("/v1/hooks/") => Class::Ordinary,
        _ if ends_work => Class::EndsWork,
        _ => Class::Ordinary,
    }
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
        let now = app.clock.now();
        let path = parts.uri.path();
        let resolved = app.sessions.principal(&parts.headers, path, &app.platform, &registry, now);
        let principal = resolved.map_err(|nobody| match nobody {
            Nobody::Refused(refusal) => refusal,
            Nobody::Forger => app.failures.refuse(&parts.extensions, now, "the token is not valid"),
        })?;
        principal.known_lately(app, &registry, sends(path)).await?;
        if let Some(bytes) = principal.body_bytes() {
            parts.extensions.insert(BodyShare(bytes));
        }
        Ok(principal)
    }
}

impl Principal {
    /// Whoever is known by the registry is known by one that is not too old (REG-15), and is asked about again if it
    /// had to be renewed. Messages are refused by the gate itself, with their names.
    async fn known_lately(&self, app: &App, seen: &Registry, sends: bool) -> Result<(), Refusal> {
        if matches!(self, Self::Operator) {
            return Ok(());
        }
        let young = app.gate.check_age().await;
        let registry = app.gate.registry();
        let now = app.clock.now();
        match self {
            _ if registry.version() == seen.version() => {}
            Self::Service(caller) if sends => caller.session().check(&registry, now)?,
            _ => self.check_again(&registry, now)?,
        }
        if sends { Ok(()) } else { young }
    }
}
