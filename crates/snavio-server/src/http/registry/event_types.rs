//! Event types: what a service publishes, and nobody else.

use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use snavio_model::name::{CommandName, ServiceName};
use snavio_model::registry::{Entry, EntryKey, EventType, Kind};

use super::super::extract::{JsonBody, Members, Params, Segments, from_members};
use super::super::{Problem, Shared};
use super::routes::agree;
use super::services::service_name;
use super::{Removed, Why, get, named, put, remove};
use crate::principal::Principal;

type Parts = (String, String, String);

fn parts((tenant, service, name): &Parts) -> Result<(ServiceName, CommandName), Problem> {
    Ok((service_name(tenant, service)?, CommandName::event_type(name).map_err(named)?))
}

/// One event type.
#[utoipa::path(get, path = "/v1/event-types/{tenant}/{service}/{type}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), ("type" = String, Path)),
    responses((status = 200, body = EventType)))]
pub(in crate::http) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<Parts>,
) -> Result<Response, Problem> {
    let (owner, name) = parts(&path)?;
    get(&app, &principal, &EntryKey::event_type(&owner, &name))
}

/// Registers an event type, or changes it. The path says owner and name; a body may repeat them.
#[utoipa::path(put, path = "/v1/event-types/{tenant}/{service}/{type}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), ("type" = String, Path), Why),
    request_body = EventType,
    responses((status = 200, body = EventType), (status = 201, body = EventType)))]
pub(in crate::http) async fn register(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<Parts>,
    Params(why): Params<Why>,
    JsonBody(Members(mut body)): JsonBody<Members>,
) -> Result<Response, Problem> {
    let (owner, name) = parts(&path)?;
    agree(&mut body, "kind", json!(Kind::EventType))?;
    body.remove("kind");
    agree(&mut body, "owner", json!(owner))?;
    agree(&mut body, "name", json!(name))?;
    let event_type: EventType = from_members(body)?;
    put(&app, &principal, &why, |_| Entry::EventType(event_type.clone())).await
}

/// Removes an event type, once nobody of its own tenant is subscribed to it.
#[utoipa::path(delete, path = "/v1/event-types/{tenant}/{service}/{type}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), ("type" = String, Path), Why),
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn unregister(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<Parts>,
    Params(why): Params<Why>,
) -> Result<Response, Problem> {
    let (owner, name) = parts(&path)?;
    remove(&app, &principal, &why, EntryKey::event_type(&owner, &name), |_| Vec::new()).await
}
