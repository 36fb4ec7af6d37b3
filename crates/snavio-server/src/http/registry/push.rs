//! What pushes are signed with: made with the first route that pushes to a destination, shown once, and replaced on demand
//! (DLV-1, MSG-4).

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use snavio_model::delivery::processing::ProcessingKind;
use snavio_model::registry::{Entry, EntryKey, Kind, PushSecret, Registry, Route, Wish};
use snavio_model::signature::signing::Secret;
use snavio_model::time::Clock;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::super::answer::{json, no_store};
use super::super::extract::{JsonBody, Segments};
use super::super::{App, Problem, Shared};
use super::keys::RotateBody;
use super::{Why, change, nothing, routes, status, subscriptions};
use crate::principal::Principal;

const DAY: Duration = Duration::from_secs(86_400);

/// What pushes to a destination are signed with. Shown once.
#[derive(Clone, Serialize, ToSchema)]
pub(in crate::http) struct NewPushSecret {
    /// The route or subscription.
    destination: String,
    /// The secret, as libraries of Standard Webhooks take it.
    #[schema(value_type = String)]
    push_secret: Zeroizing<String>,
}

impl NewPushSecret {
    fn of(destination: &str, secret: &Secret) -> Self {
        Self { destination: destination.to_owned(), push_secret: secret.expose() }
    }
}

/// A route or subscription as it is now.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct PutRoute {
    kind: Kind,
    #[serde(flatten)]
    route: Route,
    /// What its pushes are signed with, of one that pushes for the first time. Shown once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    push_secret: Option<Zeroizing<String>>,
}

/// The secret that a route needs and has not got yet, with the wish to keep it.
pub(super) fn with_secret(app: &App, registry: &Registry, route: &Route) -> Option<(Wish, NewPushSecret)> {
    let destination = route.destination();
    let is_needed = route.processing.kind == ProcessingKind::Push
        && registry.get(&EntryKey::push_secret(&destination)).is_none();
    is_needed.then(|| {
        let (secret, sealed) = app.platform.new_key();
        let entry = PushSecret::new(&destination, sealed, app.clock.now());
        (Wish::Put(Entry::PushSecret(entry)), NewPushSecret::of(&destination, &secret))
    })
}

/// Registers a route or subscription, and shows the secret of one that is the first to push to its destination.
pub(super) async fn put_route(
    app: &Shared,
    principal: &Principal,
    why: &Why,
    entry: impl Fn(Route) -> Entry,
    route: Route,
) -> Result<Response, Problem> {
    let decide = |registry: &Registry| {
        let (wish, made) = with_secret(app, registry, &route).unzip();
        (wish.into_iter().chain([Wish::Put(entry(route.clone()))]).collect(), made)
    };
    let (changes, made) = change(app, principal, &why.why, decide).await?;
    let (kind, push_secret) = (route.key().kind, made.map(|it| it.push_secret));
    Ok(no_store(json(status(&changes), &PutRoute { kind, route, push_secret })))
}

/// What goes with a route.
pub(super) fn of_route(registry: &Registry, route: &EntryKey) -> Vec<EntryKey> {
    let secret = EntryKey::push_secret(&route.name);
    registry.get(&secret).is_some().then_some(secret).into_iter().collect()
}

/// Makes a new secret for the pushes of a route, and shows it this once. For the target's key overlap requests are signed
/// with the one before, too.
#[utoipa::path(post, path = "/v1/routes/{tenant}/{service}/{name}/push-secret/rotate", tag = "keys", params(("tenant" = String, Path), ("service" = String, Path), ("name" = String, Path)),
    request_body = RotateBody,
    responses((status = 201, body = NewPushSecret)))]
pub(in crate::http) async fn rotate_route(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<routes::Parts>,
    JsonBody(body): JsonBody<RotateBody>,
) -> Result<Response, Problem> {
    rotate(&app, &principal, &routes::key(&path)?, &body.why).await
}

/// Makes a new secret for the pushes of a subscription, and shows it this once. For the subscriber's key overlap requests are
/// signed with the one before, too.
#[utoipa::path(post, path = "/v1/subscriptions/{tenant}/{service}/{publisher_tenant}/{publisher_service}/{type}/push-secret/rotate", tag = "keys", params(("tenant" = String, Path), ("service" = String, Path), ("publisher_tenant" = String, Path), ("publisher_service" = String, Path), ("type" = String, Path)),
    request_body = RotateBody,
    responses((status = 201, body = NewPushSecret)))]
pub(in crate::http) async fn rotate_subscription(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<subscriptions::Parts>,
    JsonBody(body): JsonBody<RotateBody>,
) -> Result<Response, Problem> {
    rotate(&app, &principal, &subscriptions::key(&path)?, &body.why).await
}

async fn rotate(app: &Shared, principal: &Principal, key: &EntryKey, why: &str) -> Result<Response, Problem> {
    let decide = |registry: &Registry| match next(app, registry, key) {
        Some((wish, made)) => (vec![wish], Some(made)),
        None => (Vec::new(), None),
    };
    let (_, made) = change(app, principal, why, decide).await?;
    Ok(no_store(json(StatusCode::CREATED, &made.ok_or_else(nothing)?)))
}

/// The next secret of a route that pushes, or its first if it has none.
fn next(app: &App, registry: &Registry, key: &EntryKey) -> Option<(Wish, NewPushSecret)> {
    let (Entry::Route(route) | Entry::Subscription(route)) = registry.get(key)? else { return None };
    if route.processing.kind != ProcessingKind::Push {
        return None;
    }
    let Some(Entry::PushSecret(before)) = registry.get(&EntryKey::push_secret(&key.name)) else {
        return with_secret(app, registry, route);
    };
    let Some(Entry::Service(service)) = registry.get(&EntryKey::service(&route.target)) else { return None };
    let (secret, sealed) = app.platform.new_key();
    let next = before.rotated(sealed, DAY * service.key_overlap_days(), app.clock.now());
    Some((Wish::Put(Entry::PushSecret(next)), NewPushSecret::of(&key.name, &secret)))
}

/// A route of a file: one that was disabled stays so until somebody says otherwise, or names another address.
pub(super) fn as_it_stands(registry: &Registry, route: &Route) -> Route {
    let there = registry.destination(&route.destination()).map(|it| &it.route);
    let same = there.filter(|it| it.processing.url == route.processing.url);
    let disabled = route.disabled.clone().or_else(|| same.and_then(|it| it.disabled.clone()));
    Route { disabled, ..route.clone() }
}
