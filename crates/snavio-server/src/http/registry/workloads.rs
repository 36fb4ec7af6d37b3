//! Workloads: which service an issuer's subject is (REG-7). A tenant's admin binds them to its own services.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use snavio_model::registry::{Entry, EntryKey, Kind, Workload};
use utoipa::IntoParams;

use super::super::extract::{JsonBody, Params};
use super::super::{Problem, Shared};
use super::list::{Cursor, Page, list};
use super::{Removed, Why, put, remove};
use crate::principal::Principal;

/// The workloads of the caller's tenant.
#[utoipa::path(get, path = "/v1/workloads", tag = "tokens", params(Cursor),
    responses((status = 200, body = Page)))]
pub(in crate::http) async fn all(
    State(app): State<Shared>,
    principal: Principal,
    Params(cursor): Params<Cursor>,
) -> Result<Response, Problem> {
    list(&app, &principal, Kind::Workload, &cursor)
}

/// Binds a workload to a service: its tokens are exchanged for that service's.
#[utoipa::path(put, path = "/v1/workloads", tag = "tokens", params(Why),
    request_body = Workload,
    responses((status = 200, body = Workload), (status = 201, body = Workload)))]
pub(in crate::http) async fn bind(
    State(app): State<Shared>,
    principal: Principal,
    Params(why): Params<Why>,
    JsonBody(workload): JsonBody<Workload>,
) -> Result<Response, Problem> {
    put(&app, &principal, &why, |_| Entry::Workload(workload.clone())).await
}

/// Which workload, and why it is released.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Which {
    /// The issuer's name.
    issuer: String,
    /// What the issuer calls the workload.
    subject: String,
    /// Why, for the changelog.
    #[serde(default)]
    why: String,
}

/// Releases a workload: its tokens are no service's any more, also those exchanged already.
#[utoipa::path(delete, path = "/v1/workloads", tag = "tokens", params(Which),
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn release(
    State(app): State<Shared>,
    principal: Principal,
    Params(which): Params<Which>,
) -> Result<Response, Problem> {
    let Which { issuer, subject, why } = which;
    let key = EntryKey::workload(&issuer, &subject);
    remove(&app, &principal, &Why { why }, key, |_| Vec::new()).await
}
