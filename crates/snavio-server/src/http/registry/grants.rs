//! Grants: who may send what to whom.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use snavio_model::name::{GrantedName, ServiceName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Entry, Grant, Kind};
use utoipa::IntoParams;

use super::super::extract::{JsonBody, Members, Params, from_members};
use super::super::{Problem, Shared};
use super::list::{Cursor, Page, list};
use super::{Removed, Why, put, remove};
use crate::principal::Principal;

/// All grants that the caller may see: those its tenant gave.
#[utoipa::path(get, path = "/v1/grants", tag = "registry", params(Cursor),
    responses((status = 200, body = Page)))]
pub(in crate::http) async fn all(
    State(app): State<Shared>,
    principal: Principal,
    Params(cursor): Params<Cursor>,
) -> Result<Response, Problem> {
    list(&app, &principal, Kind::Grant, &cursor)
}

/// Gives a grant: the target's owner does.
#[utoipa::path(put, path = "/v1/grants", tag = "registry", params(Why),
    request_body = Grant,
    responses((status = 200, body = Grant), (status = 201, body = Grant)))]
pub(in crate::http) async fn give(
    State(app): State<Shared>,
    principal: Principal,
    Params(why): Params<Why>,
    JsonBody(grant): JsonBody<Grant>,
) -> Result<Response, Problem> {
    put(&app, &principal, &why, |_| Entry::Grant(grant.clone())).await
}

/// Which grant, and why it ends.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Which {
    /// Who may send.
    source: Option<ServiceName>,
    /// To whom.
    target: Option<ServiceName>,
    /// Which command.
    name: Option<GrantedName>,
    /// Why, for the changelog.
    #[serde(default)]
    why: String,
}

/// Takes a grant back.
///
/// The parameters name it, all three of them; without any, the body does. Many clients and proxies drop the body
/// of a DELETE.
#[utoipa::path(delete, path = "/v1/grants", tag = "registry", params(Which),
    request_body = Option<Grant>,
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn take_back(
    State(app): State<Shared>,
    principal: Principal,
    Params(which): Params<Which>,
    JsonBody(Members(body)): JsonBody<Members>,
) -> Result<Response, Problem> {
    let why = Why { why: which.why };
    let grant = match (which.source, which.target, which.name) {
        (Some(source), Some(target), Some(name)) if body.is_empty() => Grant::new(source, target, name),
        (None, None, None) => from_members(body)?,
        _ => {
            let detail = "name the grant by source, target and name, all in the query or all in the body";
            return Err(Refusal::new(Reason::InvalidRequest, detail).into());
        }
    };
    remove(&app, &principal, &why, Entry::Grant(grant).key(), |_| Vec::new()).await
}
