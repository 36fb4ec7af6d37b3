//! `POST /v1/token`: OAuth 2.0 client credentials (REG-7).

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CACHE_CONTROL};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::json;
use snavio_model::limits;
use snavio_model::time::Clock;
use snavio_model::token::TokenClaims;

use super::body::read;
use super::commands::json_response;
use super::{App, Problem, Shared};

const FORM_BYTES_MAX: usize = 16 * 1024;

#[derive(Deserialize)]
struct Form {
    grant_type: String,
    client_id: Option<String>,
    client_secret: Option<String>,
}

/// Exchanges a client's id and secret, in the form or as Basic authentication, for a token.
pub(super) async fn issue(State(app): State<Shared>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let Some(form) = form(body).await? else {
        return Ok(error("invalid_request", "send grant_type=client_credentials as a form"));
    };
    if form.grant_type != "client_credentials" {
        return Ok(error("unsupported_grant_type", "the grant type must be client_credentials"));
    }
    let Some((id, secret)) = basic(&parts.headers).or_else(|| form.client_id.zip(form.client_secret)) else {
        return Ok(error("invalid_client", "client_id and client_secret are missing"));
    };
    Ok(exchange(&app, &id, &secret))
}

fn exchange(app: &App, id: &str, secret: &str) -> Response {
    let registry = app.gate.registry();
    let client = registry.client(id).filter(|it| app.platform.is_client_secret(id, secret, &it.secret_hash));
    let Some(client) = client else {
        metrics::counter!("snavio_token_failures_total").increment(1);
        return error("invalid_client", "client_id or client_secret is wrong");
    };
    let now = app.clock.now().0 / 1000;
    let lifetime = limits::TOKEN_LIFETIME.as_secs();
    let claims = TokenClaims {
        sub: client.id.clone(),
        service: client.service.clone(),
        iat: now,
        exp: now + i64::try_from(lifetime).unwrap_or(0),
    };
    let token = app.platform.issue(&claims);
    let document = json!({ "access_token": token, "token_type": "Bearer", "expires_in": lifetime });
    no_store(json_response(StatusCode::OK, &document))
}

async fn form(body: Body) -> Result<Option<Form>, Problem> {
    let bytes = read(body, FORM_BYTES_MAX).await?;
    Ok(serde_urlencoded::from_bytes(&bytes).ok())
}

fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let (scheme, credentials) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((id.to_owned(), secret.to_owned()))
}

/// RFC 6749's own form of error.
fn error(code: &str, description: &str) -> Response {
    let status = if code == "invalid_client" { StatusCode::UNAUTHORIZED } else { StatusCode::BAD_REQUEST };
    no_store(
        json_response(status, &json!({ "error": code, "error_description": description })).into_response(),
    )
}

fn no_store(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
