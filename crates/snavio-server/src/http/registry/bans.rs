//! Bans: sources that an operator shut out (LIM-7). They act within seconds on every node (REG-12).

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use snavio_model::identity::permission::Permission;
use snavio_model::registry::{Ban, Entry, EntryKey, Kind};
use snavio_model::time::Timestamp;
use utoipa::ToSchema;

use super::super::extract::{JsonBody, Params, Segments};
use super::super::{Problem, Shared};
use super::list::{Cursor, Page, list};
use super::services::service_name;
use super::{Removed, Why, get, put, remove};
use crate::principal::Principal;

/// Why and for how long.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct BanBody {
    /// For what reason, for people.
    #[serde(default)]
    reason: String,
    /// When it ends, as RFC 3339; without it, when it is lifted.
    #[serde(default, with = "snavio_model::time::text")]
    #[schema(value_type = Option<String>)]
    until: Option<Timestamp>,
}

/// All bans.
#[utoipa::path(get, path = "/v1/bans", tag = "registry", params(Cursor),
    responses((status = 200, body = Page)))]
pub(in crate::http) async fn all(
    State(app): State<Shared>,
    principal: Principal,
    Params(cursor): Params<Cursor>,
) -> Result<Response, Problem> {
    principal.may(Permission::Read)?;
    list(&app, &principal, Kind::Ban, &cursor)
}

/// One ban.
#[utoipa::path(get, path = "/v1/bans/{tenant}/{service}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path)),
    responses((status = 200, body = Ban)))]
pub(in crate::http) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, service)): Segments<(String, String)>,
) -> Result<Response, Problem> {
    principal.may(Permission::Read)?;
    get(&app, &principal, &EntryKey::ban(&service_name(&tenant, &service)?))
}

/// Bans a source, or changes for how long.
#[utoipa::path(put, path = "/v1/bans/{tenant}/{service}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), Why),
    request_body = BanBody,
    responses((status = 200, body = Ban), (status = 201, body = Ban)))]
pub(in crate::http) async fn set(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, service)): Segments<(String, String)>,
    Params(why): Params<Why>,
    JsonBody(BanBody { reason, until }): JsonBody<BanBody>,
) -> Result<Response, Problem> {
    let source = service_name(&tenant, &service)?;
    put(&app, &principal, &why, |_| Entry::Ban(Ban { source: source.clone(), reason: reason.clone(), until }))
        .await
}

/// Lifts a ban.
#[utoipa::path(delete, path = "/v1/bans/{tenant}/{service}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), Why),
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn lift(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, service)): Segments<(String, String)>,
    Params(why): Params<Why>,
) -> Result<Response, Problem> {
    // First: nobody else is told whether there is one.
    principal.operator()?;
    remove(&app, &principal, &why, EntryKey::ban(&service_name(&tenant, &service)?), |_| Vec::new()).await
}
