//! Trusted issuers of workload identities (REG-7): an operator says whose word is taken.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Entry, EntryKey, Issuer, Kind, Registry};
use utoipa::IntoParams;

use super::super::extract::{JsonBody, Params};
use super::super::{Problem, Shared};
use super::list::{Cursor, Page, list};
use super::{Removed, Why, put, remove};
use crate::principal::Principal;

/// The trusted issuers, for whoever sees the whole platform.
#[utoipa::path(get, path = "/v1/issuers", tag = "tokens", params(Cursor),
    responses((status = 200, body = Page)))]
pub(in crate::http) async fn all(
    State(app): State<Shared>,
    principal: Principal,
    Params(cursor): Params<Cursor>,
) -> Result<Response, Problem> {
    list(&app, &principal, Kind::Issuer, &cursor)
}

/// Trusts an issuer, or changes where its keys are.
#[utoipa::path(put, path = "/v1/issuers", tag = "tokens", params(Why),
    request_body = Issuer,
    responses((status = 200, body = Issuer), (status = 201, body = Issuer)))]
pub(in crate::http) async fn trust(
    State(app): State<Shared>,
    principal: Principal,
    Params(why): Params<Why>,
    JsonBody(issuer): JsonBody<Issuer>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let unfit = |why| Refusal::new(Reason::InvalidRequest, format!("keys: {why}"));
    app.key_sets.check(&issuer.keys).map_err(unfit)?;
    put(&app, &principal, &why, |_| Entry::Issuer(issuer.clone())).await
}

/// Which issuer, and why it is not trusted any more.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Which {
    /// Its name.
    issuer: String,
    /// Why, for the changelog.
    #[serde(default)]
    why: String,
}

/// Trusts an issuer no more; the workloads that it vouched for go with it.
#[utoipa::path(delete, path = "/v1/issuers", tag = "tokens", params(Which),
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn distrust(
    State(app): State<Shared>,
    principal: Principal,
    Params(which): Params<Which>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let Which { issuer, why } = which;
    let workloads = |registry: &Registry| {
        let of_it = |entry: &&Entry| matches!(entry, Entry::Workload(it) if it.issuer == issuer);
        registry.entries_of(Kind::Workload).filter(of_it).map(Entry::key).collect()
    };
    remove(&app, &principal, &Why { why }, EntryKey::issuer(&issuer), workloads).await
}
