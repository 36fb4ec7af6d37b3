//! Requests for grants: a producer asks, and the target's owner says yes or no (REG-8).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use snavio_model::identity::permission::{Over, Permission, Standing, Verdict};
use snavio_model::name::{GrantedName, ServiceName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Entry, EntryKey, Grant, GrantRequest, Kind, Profile, Registry, Wish};
use snavio_model::time::{Clock, Timestamp};
use utoipa::ToSchema;

use super::super::answer::json;
use super::super::extract::{JsonBody, Params};
use super::super::{App, Problem, Shared};
use super::grants::Given;
use super::list::{Cursor, Page, list};
use super::{Removed, Why, change, nothing, put, remove};
use crate::principal::{Principal, forbidden};

/// Requests that wait for the caller's tenant, and those that it made.
#[utoipa::path(get, path = "/v1/grant-requests", tag = "registry", params(Cursor),
    responses((status = 200, body = Page)))]
pub(in crate::http) async fn waiting(
    State(app): State<Shared>,
    principal: Principal,
    Params(cursor): Params<Cursor>,
) -> Result<Response, Problem> {
    list(&app, &principal, Kind::GrantRequest, &cursor)
}

/// A grant that somebody would like to have.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct AskBody {
    /// Who would like to send: the caller, or a service of its tenant.
    source: ServiceName,
    /// To whom.
    target: ServiceName,
    /// Which command; `*` for all, but for those of critical routes.
    name: GrantedName,
    /// For what, for the target's owner to read.
    #[serde(default)]
    purpose: String,
}

/// Asks for a grant. A service asks for itself, a tenant's admin for its services.
///
/// The answer does not tell whether another tenant has such a target: a request for one that is not there waits too.
#[utoipa::path(post, path = "/v1/grant-requests", tag = "registry", params(Why),
    request_body = AskBody,
    responses((status = 200, body = GrantRequest), (status = 201, body = GrantRequest)))]
pub(in crate::http) async fn ask(
    State(app): State<Shared>,
    principal: Principal,
    Params(why): Params<Why>,
    JsonBody(body): JsonBody<AskBody>,
) -> Result<Response, Problem> {
    check_source(&app, &principal, &body).await?;
    let AskBody { source, target, name, purpose } = body;
    if app.gate.registry().get(&EntryKey::grant(&source, &target, &name)).is_some() {
        return Err(Refusal::new(Reason::RegistryConflict, "it is granted already").into());
    }
    let (asked_by, asked_at) = (principal.name(), app.clock.now());
    let asked = GrantRequest { source, target, name, purpose, asked_by, asked_at };
    put(&app, &principal, &why, |registry| Entry::GrantRequest(first_asked(registry, &asked))).await
}

/// Who asks again for the same has asked already.
fn first_asked(registry: &Registry, asked: &GrantRequest) -> GrantRequest {
    match registry.get(&EntryKey::grant_request(&asked.source, &asked.target, &asked.name)) {
        Some(Entry::GrantRequest(there)) if there.purpose == asked.purpose => there.clone(),
        _ => asked.clone(),
    }
}

/// Nobody asks for a source that is not theirs; the attempt goes on the record.
async fn check_source(app: &App, principal: &Principal, body: &AskBody) -> Result<(), Refusal> {
    let standing = principal.standing();
    let verdict = match standing {
        Standing::Service(own) if *own == body.source => Verdict::Allowed,
        Standing::Service(_) => Verdict::Hidden,
        _ => standing.judge(Permission::Manage, Over::Tenant(body.source.tenant())),
    };
    match verdict {
        Verdict::Allowed => Ok(()),
        Verdict::Forbidden => Err(forbidden("your role may not ask for grants")),
        Verdict::Hidden => {
            let asked = EntryKey::grant_request(&body.source, &body.target, &body.name);
            Err(app.overreach.refuse(app, principal, "grant_request.ask", asked.name).await)
        }
    }
}

/// Which request, and the grant that it becomes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ApproveBody {
    source: ServiceName,
    target: ServiceName,
    name: GrantedName,
    /// When the grant ends; never when not said.
    #[serde(default, with = "snavio_model::time::text")]
    #[schema(value_type = Option<String>)]
    expires_at: Option<Timestamp>,
    /// How quickly its end must act, if more quickly than its route says.
    profile: Option<Profile>,
}

/// Gives the grant that was asked for: the target's owner does, or an operator.
#[utoipa::path(post, path = "/v1/grant-requests/approve", tag = "registry", params(Why),
    request_body = ApproveBody,
    responses((status = 200, body = Given)))]
pub(in crate::http) async fn approve(
    State(app): State<Shared>,
    principal: Principal,
    Params(why): Params<Why>,
    JsonBody(body): JsonBody<ApproveBody>,
) -> Result<Response, Problem> {
    let ApproveBody { source, target, name, expires_at, profile } = body;
    if expires_at.is_some_and(|end| end <= app.clock.now()) {
        return Err(Refusal::new(Reason::InvalidRequest, "expires_at is over already").into());
    }
    let request = EntryKey::grant_request(&source, &target, &name);
    if app.gate.registry().get(&request).is_none() {
        return Err(nothing());
    }
    let grant = Grant { source, target, name, expires_at, profile };
    let wishes = || vec![Wish::Put(Entry::Grant(grant.clone())), Wish::Remove(request.clone())];
    change(&app, &principal, &why.why, |_| (wishes(), ())).await?;
    Ok(json(StatusCode::OK, &Given::new(&app, grant)))
}

/// Which request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DeclineBody {
    source: ServiceName,
    target: ServiceName,
    name: GrantedName,
}

/// Removes a request: the target's owner says no, or whoever asked withdraws it.
#[utoipa::path(post, path = "/v1/grant-requests/decline", tag = "registry", params(Why),
    request_body = DeclineBody,
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn decline(
    State(app): State<Shared>,
    principal: Principal,
    Params(why): Params<Why>,
    JsonBody(body): JsonBody<DeclineBody>,
) -> Result<Response, Problem> {
    let request = EntryKey::grant_request(&body.source, &body.target, &body.name);
    remove(&app, &principal, &why, request, |_| Vec::new()).await
}
