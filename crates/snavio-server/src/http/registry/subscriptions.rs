//! Subscriptions: where a service gets events, and how they are treated.

use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use snavio_model::name::{CommandName, ServiceName};
use snavio_model::registry::{Entry, EntryKey, Kind, Route};

use super::super::extract::{JsonBody, Members, Params, Segments, from_members};
use super::super::{Problem, Shared};
use super::push::{PutRoute, of_route, put_route};
use super::routes::agree;
use super::services::service_name;
use super::{Removed, Why, get, named, remove};
use crate::principal::Principal;

pub(super) type Parts = (String, String, String, String, String);

/// Who subscribes, to whose events, of which type.
struct Which {
    target: ServiceName,
    publisher: ServiceName,
    name: CommandName,
}

impl Which {
    fn of((tenant, service, publisher_tenant, publisher, name): &Parts) -> Result<Self, Problem> {
        Ok(Self {
            target: service_name(tenant, service)?,
            publisher: service_name(publisher_tenant, publisher)?,
            name: CommandName::event_type(name).map_err(named)?,
        })
    }
}

/// What a path names.
pub(super) fn key(path: &Parts) -> Result<EntryKey, Problem> {
    let Which { target, publisher, name } = Which::of(path)?;
    Ok(EntryKey::subscription(&target, &publisher, &name))
}

/// One subscription.
#[utoipa::path(get, path = "/v1/subscriptions/{tenant}/{service}/{publisher_tenant}/{publisher_service}/{type}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), ("publisher_tenant" = String, Path), ("publisher_service" = String, Path), ("type" = String, Path)),
    responses((status = 200, body = Route)))]
pub(in crate::http) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<Parts>,
) -> Result<Response, Problem> {
    get(&app, &principal, &key(&path)?)
}

/// Registers a subscription, or changes it. The path says who subscribes to what; a body may repeat it.
///
/// One that pushes for the first time gets a secret, which is in the answer, this once.
///
/// To another tenant's events only those may subscribe to whom their publisher has granted the type by its name.
#[utoipa::path(put, path = "/v1/subscriptions/{tenant}/{service}/{publisher_tenant}/{publisher_service}/{type}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), ("publisher_tenant" = String, Path), ("publisher_service" = String, Path), ("type" = String, Path), Why),
    request_body = Route,
    responses((status = 200, body = PutRoute), (status = 201, body = PutRoute)))]
pub(in crate::http) async fn register(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<Parts>,
    Params(why): Params<Why>,
    JsonBody(Members(mut body)): JsonBody<Members>,
) -> Result<Response, Problem> {
    let Which { target, publisher, name } = Which::of(&path)?;
    agree(&mut body, "kind", json!(Kind::Subscription))?;
    body.remove("kind");
    agree(&mut body, "target", json!(target))?;
    agree(&mut body, "events_of", json!(publisher))?;
    agree(&mut body, "name", json!(name))?;
    let route: Route = from_members(body)?;
    put_route(&app, &principal, &why, Entry::Subscription, route).await
}

/// Removes a subscription.
#[utoipa::path(delete, path = "/v1/subscriptions/{tenant}/{service}/{publisher_tenant}/{publisher_service}/{type}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), ("publisher_tenant" = String, Path), ("publisher_service" = String, Path), ("type" = String, Path), Why),
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn unregister(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<Parts>,
    Params(why): Params<Why>,
) -> Result<Response, Problem> {
    let key = key(&path)?;
    remove(&app, &principal, &why, key.clone(), |registry| of_route(registry, &key)).await
}
