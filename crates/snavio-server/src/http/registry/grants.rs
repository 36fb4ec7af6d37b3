//! Grants: who may send what to whom.

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use snavio_model::name::{GrantedName, ServiceName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Entry, Grant, Kind, Registry, Wish};
use snavio_model::time::Clock;
use utoipa::{IntoParams, ToSchema};

use super::super::answer::json;
use super::super::extract::{JsonBody, Members, Params, from_members};
use super::super::{App, Problem, Shared};
use super::list::{Cursor, Page, list};
use super::{Removed, Why, change, remove, shown, status};
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

/// A grant that was given.
#[derive(Serialize, ToSchema)]
#[schema(as = GivenGrant)]
pub(super) struct Given {
    #[serde(flatten)]
    #[schema(value_type = Grant)]
    grant: Value,
    /// What its giver should know: that there is no route and no event type of this name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Given {
    pub(super) fn new(app: &App, grant: Grant) -> Self {
        let warning = app.gate.registry().grant_warning(&grant, app.clock.now());
        Self { grant: shown(&Entry::Grant(grant)), warnings: warning.into_iter().collect() }
    }
}

/// Gives a grant: the target's owner does. One for a route that does not exist is accepted with a warning.
#[utoipa::path(put, path = "/v1/grants", tag = "registry", params(Why),
    request_body = Grant,
    responses((status = 200, body = Given), (status = 201, body = Given)))]
pub(in crate::http) async fn give(
    State(app): State<Shared>,
    principal: Principal,
    Params(why): Params<Why>,
    JsonBody(grant): JsonBody<Grant>,
) -> Result<Response, Problem> {
    let decide = |_: &Registry| (vec![Wish::Put(Entry::Grant(grant.clone()))], ());
    let (changes, ()) = change(&app, &principal, &why.why, decide).await?;
    Ok(json(status(&changes), &Given::new(&app, grant)))
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
