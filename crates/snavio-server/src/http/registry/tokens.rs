//! People's tokens: an operator issues and revokes them (REG-9).

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use snavio_model::bounds;
use snavio_model::name::TenantName;
use snavio_model::registry::{Entry, EntryKey, Kind, PersonalToken, Role, Wish};
use snavio_model::time::Clock;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::super::answer::json;
use super::super::extract::{JsonBody, Params, Segments, within};
use super::super::{Problem, Shared};
use super::list::{Cursor, Page, list};
use super::{Removed, Why, change, remove};
use crate::person::NewToken;
use crate::principal::Principal;

/// For whom a token is, and what it shall be good for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct TokenBody {
    /// Whose it is: the name under which deeds go on the record.
    person: String,
    /// What the person may do,
    role: Role,
    /// and for which tenant. An operator has none; an auditor without one sees everything.
    tenant: Option<TenantName>,
    /// Days until it ends: 90 when not said.
    #[schema(minimum = 1, maximum = 365)]
    days: Option<u32>,
}

/// A new token. Shown once.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct NewPersonalToken {
    id: String,
    /// The token itself: `snavpt_<id>_<secret>`.
    #[schema(value_type = String)]
    token: Zeroizing<String>,
    person: String,
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantName>,
    expires_at: String,
}

/// People's tokens that the caller may see, without what is secret.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", params(Cursor),
    responses((status = 200, body = Page)))]
pub(in crate::http) async fn all(
    State(app): State<Shared>,
    principal: Principal,
    Params(cursor): Params<Cursor>,
) -> Result<Response, Problem> {
    list(&app, &principal, Kind::PersonalToken, &cursor)
}

/// Issues a token to a person. It is in the answer, this once.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", params(Why),
    request_body = TokenBody,
    responses((status = 201, body = NewPersonalToken)))]
pub(in crate::http) async fn issue(
    State(app): State<Shared>,
    principal: Principal,
    Params(why): Params<Why>,
    JsonBody(body): JsonBody<TokenBody>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let days = body.days.unwrap_or(bounds::PERSONAL_TOKEN_DAYS);
    within("days", days as usize, 1, bounds::PERSONAL_TOKEN_DAYS_MAX as usize)?;
    let made = NewToken::make(&app.platform);
    let created_at = app.clock.now();
    let token = PersonalToken {
        id: made.id,
        person: body.person,
        role: body.role,
        tenant: body.tenant,
        secret_hash: made.secret_hash,
        created_at,
        expires_at: created_at.plus(Duration::from_secs(u64::from(days) * 86_400)),
    };
    let decide = |_: &_| (vec![Wish::Put(Entry::PersonalToken(token.clone()))], ());
    change(&app, &principal, &why.why, decide).await?;
    let PersonalToken { id, person, role, tenant, expires_at, .. } = token;
    let document =
        NewPersonalToken { id, token: made.text, person, role, tenant, expires_at: expires_at.to_string() };
    let mut response = json(StatusCode::CREATED, &document);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Revokes a person's token: it is good for nothing any more.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tokens", params(("id" = String, Path), Why),
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn revoke(
    State(app): State<Shared>,
    principal: Principal,
    Segments(id): Segments<String>,
    Params(why): Params<Why>,
) -> Result<Response, Problem> {
    remove(&app, &principal, &why, EntryKey::personal_token(&id), |_| Vec::new()).await
}
