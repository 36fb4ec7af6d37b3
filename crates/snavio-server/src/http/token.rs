//! `POST /v1/token`: OAuth 2.0 client credentials (REG-7), with the errors of RFC 6749.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use snavio_model::limits;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::Client;
use snavio_model::time::Clock;
use snavio_model::token::TokenClaims;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::answer::json;
use super::body::{check_encoding, essence, read};
use super::{App, Problem, Shared};
use crate::principal::check_active;

/// What a client sends.
#[derive(Deserialize, ToSchema)]
#[schema(as = TokenRequest)]
pub(super) struct Form {
    /// `client_credentials`.
    grant_type: String,
    /// The client's id, unless it comes as Basic authentication.
    client_id: Option<String>,
    /// The client's secret, unless it comes as Basic authentication.
    #[schema(value_type = Option<String>)]
    client_secret: Option<Zeroizing<String>>,
}

/// A token.
#[derive(Serialize, ToSchema)]
pub(super) struct Token {
    access_token: String,
    token_type: &'static str,
    /// Seconds.
    expires_in: u64,
}

/// RFC 6749's own form of error.
#[derive(Serialize, ToSchema)]
pub(super) struct OAuthError {
    /// `invalid_request`, `invalid_client` or `unsupported_grant_type`.
    error: &'static str,
    error_description: &'static str,
}

/// Exchanges a client's id and secret, in the form or as Basic authentication, for a token.
#[utoipa::path(post, path = "/v1/token", tag = "tokens",
    security(()),
    request_body(content = Form, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, body = Token), (status = 400, body = OAuthError), (status = 401, body = OAuthError)))]
pub(super) async fn issue(State(app): State<Shared>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let form = match form(&app, &parts, body).await? {
        Ok(form) => form,
        Err(wrong) => return Ok(wrong.response()),
    };
    Ok(match client(&parts.headers, form) {
        Ok((id, secret)) => {
            app.failures.check(&parts.extensions, &id, app.clock.now())?;
            match authenticated(&app, &id, &secret) {
                Some(client) => no_store(json(StatusCode::OK, &token(&app, &client)?)),
                None => denied(&app, &parts.extensions, &id)?,
            }
        }
        Err(wrong) => wrong.response(),
    })
}

async fn form(app: &App, parts: &Parts, body: Body) -> Result<Result<Form, OAuthError>, Refusal> {
    let headers = &parts.headers;
    check_encoding(headers)?;
    let named = headers.contains_key(CONTENT_TYPE);
    if named && !essence(headers).eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let detail = "the content type must be application/x-www-form-urlencoded";
        return Err(Refusal::new(Reason::UnsupportedMediaType, detail));
    }
    let bytes = read(app, parts, body, limits::FORM_BYTES_MAX).await?;
    let unfit =
        |_| wrong("invalid_request", "send grant_type=client_credentials as a form, each member once");
    Ok(serde_urlencoded::from_bytes(&bytes).map_err(unfit))
}

type Secret = Zeroizing<String>;

/// Whose credentials the request shows. Two ways at once are refused, as RFC 6749 2.3 has it; an Authorization
/// of another scheme says nothing about the client.
fn client(headers: &HeaderMap, form: Form) -> Result<(String, Secret), OAuthError> {
    if form.grant_type != "client_credentials" {
        return Err(wrong("unsupported_grant_type", "the grant type must be client_credentials"));
    }
    let Some(credentials) = basic(headers) else {
        let missing = || wrong("invalid_client", "client_id and client_secret are missing");
        return form.client_id.zip(form.client_secret).ok_or_else(missing);
    };
    if form.client_secret.is_some() {
        return Err(wrong("invalid_request", "show the client's secret in one way only"));
    }
    let unreadable = || wrong("invalid_client", "the Authorization header must be: Basic <credentials>");
    let (id, secret) = pair(credentials).ok_or_else(unreadable)?;
    if form.client_id.is_some_and(|other| other != id) {
        return Err(wrong("invalid_request", "client_id is not that of the Authorization header"));
    }
    Ok((id, secret))
}

/// What stands behind `Basic`, if the header is of that scheme.
fn basic(headers: &HeaderMap) -> Option<&str> {
    let (scheme, credentials) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("basic").then_some(credentials.trim())
}

/// RFC 6749 2.3.1: id and secret are each encoded as in a form before they are joined.
fn pair(credentials: &str) -> Option<(String, Secret)> {
    let text = Zeroizing::new(String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?);
    let (id, secret) = text.split_once(':')?;
    Some((form_decoded(id)?, Zeroizing::new(form_decoded(secret)?)))
}

fn form_decoded(text: &str) -> Option<String> {
    if text.contains(['&', '=']) {
        return None;
    }
    let [(_, decoded)] = <[(String, String); 1]>::try_from(
        serde_urlencoded::from_str::<Vec<(String, String)>>(&format!("it={text}")).ok()?,
    )
    .ok()?;
    Some(decoded)
}

/// The client, if the secret is its own.
fn authenticated(app: &App, id: &str, secret: &str) -> Option<Arc<Client>> {
    let client = Arc::clone(app.gate.registry().client(id)?);
    app.platform.is_client_secret(id, secret, &client.secret_hash).then_some(client)
}

fn token(app: &App, client: &Client) -> Result<Token, Refusal> {
    check_active(&app.gate.registry(), client.service.tenant())?;
    let now = app.clock.now().0 / 1000;
    let expires_in = limits::TOKEN_LIFETIME.as_secs();
    let claims = TokenClaims {
        sub: client.id.clone(),
        service: client.service.clone(),
        iat: now,
        exp: now + i64::try_from(expires_in).unwrap_or(0),
    };
    Ok(Token { access_token: app.platform.issue(&claims), token_type: "Bearer", expires_in })
}

/// Told in RFC 6749's words, until there were too many of them.
fn denied(app: &App, extensions: &Extensions, client: &str) -> Result<Response, Problem> {
    let (detail, now) = ("client_id or client_secret is wrong", app.clock.now());
    if app.gate.registry().client(client).is_some() {
        app.failures.count(extensions, client, now);
    }
    let refusal = app.failures.refuse(extensions, now, detail);
    match refusal.reason {
        Reason::AuthThrottled => Err(refusal.into()),
        _ => Ok(wrong("invalid_client", detail).response()),
    }
}

fn wrong(error: &'static str, error_description: &'static str) -> OAuthError {
    OAuthError { error, error_description }
}

impl OAuthError {
    fn response(&self) -> Response {
        if self.error != "invalid_client" {
            return no_store(json(StatusCode::BAD_REQUEST, self));
        }
        let mut response = no_store(json(StatusCode::UNAUTHORIZED, self));
        let challenge = HeaderValue::from_static("Basic realm=\"snavio\", charset=\"UTF-8\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        response
    }
}

fn no_store(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(text: &str) -> Option<(String, String)> {
        pair(&STANDARD.encode(text)).map(|(id, secret)| (id, secret.to_string()))
    }

    /// REG-7
    #[test]
    fn basic_credentials_are_encoded_as_in_a_form() {
        let pair = |id: &str, secret: &str| Some((id.to_owned(), secret.to_owned()));
        assert_eq!(credentials("id:secret"), pair("id", "secret"));
        assert_eq!(credentials("i%3Ad:s%2Be+c%26t"), pair("i:d", "s+e c&t"));
        assert_eq!(credentials("id:a:b"), pair("id", "a:b"));
        assert_eq!(credentials("id:"), pair("id", ""));
        assert_eq!(credentials("id:a&b"), None);
        assert_eq!(credentials("id"), None);
    }
}
