//! Tenants: the owners of services.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use snavio_model::name::TenantName;
use snavio_model::registry::{Entry, EntryKey, Kind, Registry, Tenant};
use utoipa::ToSchema;

use super::super::extract::{JsonBody, Params, Segments};
use super::super::{Problem, Shared};
use super::list::{Cursor, Page, list};
use super::{Removed, Why, get, named, put, remove};
use crate::principal::Principal;

/// A tenant's settings.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct TenantBody {
    /// Where to reach its people.
    contact: Option<String>,
    /// A suspended tenant's messages are refused. Not said, it stays as it is.
    suspended: Option<bool>,
}

/// A tenant as a registry file gives it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct FileTenant {
    name: TenantName,
    /// Where to reach its people.
    contact: Option<String>,
    /// A suspended tenant's messages are refused. Not said, it stays as it is.
    suspended: Option<bool>,
}

impl FileTenant {
    pub(super) fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The tenant as it shall be. Who suspended it did so for a reason: only saying so lifts it (REG-4).
    pub(super) fn entry(&self, registry: &Registry) -> Entry {
        let as_it_is = || registry.tenant(self.name.as_str()).is_some_and(|tenant| tenant.suspended);
        Entry::Tenant(Tenant {
            name: self.name.clone(),
            contact: self.contact.clone(),
            suspended: self.suspended.unwrap_or_else(as_it_is),
        })
    }
}

/// All tenants that the caller may see.
#[utoipa::path(get, path = "/v1/tenants", tag = "registry", params(Cursor),
    responses((status = 200, body = Page)))]
pub(in crate::http) async fn all(
    State(app): State<Shared>,
    principal: Principal,
    Params(cursor): Params<Cursor>,
) -> Result<Response, Problem> {
    list(&app, &principal, Kind::Tenant, &cursor)
}

/// One tenant.
#[utoipa::path(get, path = "/v1/tenants/{tenant}", tag = "registry", params(("tenant" = String, Path)),
    responses((status = 200, body = Tenant)))]
pub(in crate::http) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments(tenant): Segments<String>,
) -> Result<Response, Problem> {
    get(&app, &principal, &EntryKey::tenant(&TenantName::new(&tenant).map_err(named)?))
}

/// Registers a tenant, or changes its settings.
#[utoipa::path(put, path = "/v1/tenants/{tenant}", tag = "registry", params(("tenant" = String, Path), Why),
    request_body = TenantBody,
    responses((status = 200, body = Tenant), (status = 201, body = Tenant)))]
pub(in crate::http) async fn register(
    State(app): State<Shared>,
    principal: Principal,
    Segments(tenant): Segments<String>,
    Params(why): Params<Why>,
    JsonBody(body): JsonBody<TenantBody>,
) -> Result<Response, Problem> {
    let name = TenantName::new(&tenant).map_err(named)?;
    let tenant = FileTenant { name, contact: body.contact, suspended: body.suspended };
    put(&app, &principal, &why, |registry| tenant.entry(registry)).await
}

/// Removes a tenant that owns nothing any more, together with its people's tokens and what others asked of it.
#[utoipa::path(delete, path = "/v1/tenants/{tenant}", tag = "registry", params(("tenant" = String, Path), Why),
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn unregister(
    State(app): State<Shared>,
    principal: Principal,
    Segments(tenant): Segments<String>,
    Params(why): Params<Why>,
) -> Result<Response, Problem> {
    let name = TenantName::new(&tenant).map_err(named)?;
    let own = |registry: &Registry| {
        let kinds = [Kind::PersonalToken, Kind::GrantRequest];
        let of_kinds = kinds.into_iter().flat_map(|kind| registry.entries_of(kind));
        of_kinds.filter(|entry| entry.owner() == name.as_str()).map(Entry::key).collect()
    };
    remove(&app, &principal, &why, EntryKey::tenant(&name), own).await
}
