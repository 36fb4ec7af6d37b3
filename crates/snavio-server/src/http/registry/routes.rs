//! Routes: where a command goes and how it is treated.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use snavio_model::name::{CommandName, ServiceName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Entry, EntryKey, Kind, Route};

use super::super::extract::{JsonBody, Members, Params, Segments, from_members};
use super::super::{Problem, Shared};
use super::push::{PutRoute, of_route, put_route};
use super::services::service_name;
use super::{Removed, Why, get, named, remove};
use crate::principal::Principal;

pub(super) type Parts = (String, String, String);

fn parts((tenant, service, name): &Parts) -> Result<(ServiceName, CommandName), Problem> {
    Ok((service_name(tenant, service)?, CommandName::new(name).map_err(named)?))
}

/// What a path names.
pub(super) fn key(path: &Parts) -> Result<EntryKey, Problem> {
    let (target, name) = parts(path)?;
    Ok(EntryKey::route(&target, &name))
}

/// One route.
#[utoipa::path(get, path = "/v1/routes/{tenant}/{service}/{name}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Route)))]
pub(in crate::http) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<Parts>,
) -> Result<Response, Problem> {
    get(&app, &principal, &key(&path)?)
}

/// Registers a route, or changes it. The path says target and name; a body may repeat them.
///
/// One that pushes for the first time gets a secret, which is in the answer, this once.
#[utoipa::path(put, path = "/v1/routes/{tenant}/{service}/{name}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), ("name" = String, Path), Why),
    request_body = Route,
    responses((status = 200, body = PutRoute), (status = 201, body = PutRoute)))]
pub(in crate::http) async fn register(
    State(app): State<Shared>,
    principal: Principal,
    Segments(path): Segments<Parts>,
    Params(why): Params<Why>,
    JsonBody(Members(mut body)): JsonBody<Members>,
) -> Result<Response, Problem> {
    let (target, name) = parts(&path)?;
    agree(&mut body, "kind", json!(Kind::Route))?;
    body.remove("kind");
    agree(&mut body, "target", json!(target))?;
    agree(&mut body, "name", json!(name))?;
    let route: Route = from_members(body)?;
    put_route(&app, &principal, &why, Entry::Route, route).await
}

/// What the path says, the body must not contradict.
pub(super) fn agree(body: &mut Map<String, Value>, member: &str, value: Value) -> Result<(), Refusal> {
    if body.get(member).is_some_and(|said| *said != value) {
        let detail = format!("the body's {member} is not that of the path");
        return Err(Refusal::new(Reason::InvalidRequest, detail));
    }
    body.insert(member.to_owned(), value);
    Ok(())
}

/// Removes a route.
#[utoipa::path(delete, path = "/v1/routes/{tenant}/{service}/{name}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), ("name" = String, Path), Why),
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
