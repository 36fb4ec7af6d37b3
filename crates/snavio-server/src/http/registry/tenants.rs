//! Tenants: the owners of services.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use snavio_model::name::TenantName;
use snavio_model::registry::{Entry, EntryKey, Kind, Tenant};

use super::super::extract::{JsonBody, Params, Segments};
use super::super::{Problem, Shared};
use super::list::{Cursor, list};
use super::{Why, get, named, put, remove};
use crate::principal::Principal;

/// A tenant's settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct TenantBody {
    /// Where to reach its people.
    contact: Option<String>,
    /// A suspended tenant's messages are refused.
    #[serde(default)]
    suspended: bool,
}

/// All tenants that the caller may see.
pub(in crate::http) async fn all(
    State(app): State<Shared>,
    principal: Principal,
    Params(cursor): Params<Cursor>,
) -> Result<Response, Problem> {
    list(&app, &principal, Kind::Tenant, &cursor)
}

/// One tenant.
pub(in crate::http) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments(tenant): Segments<String>,
) -> Result<Response, Problem> {
    get(&app, &principal, &EntryKey::tenant(&TenantName::new(&tenant).map_err(named)?))
}

/// Registers a tenant, or changes its settings.
pub(in crate::http) async fn register(
    State(app): State<Shared>,
    principal: Principal,
    Segments(tenant): Segments<String>,
    Params(why): Params<Why>,
    JsonBody(body): JsonBody<TenantBody>,
) -> Result<Response, Problem> {
    let name = TenantName::new(&tenant).map_err(named)?;
    let entry = Entry::Tenant(Tenant { name, contact: body.contact, suspended: body.suspended });
    put(&app, &principal, &why, entry).await
}

/// Removes a tenant that owns nothing any more.
pub(in crate::http) async fn unregister(
    State(app): State<Shared>,
    principal: Principal,
    Segments(tenant): Segments<String>,
    Params(why): Params<Why>,
) -> Result<Response, Problem> {
    let key = EntryKey::tenant(&TenantName::new(&tenant).map_err(named)?);
    remove(&app, &principal, &why, key, |_| Vec::new()).await
}
