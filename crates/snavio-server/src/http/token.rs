//! `POST /v1/token`: OAuth 2.0 client credentials, and the exchange of a workload's JWT (REG-7), with the errors of
//! RFC 6749.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use snavio_model::bounds;
use snavio_model::identity::token::TokenClaims;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Client, EntryKey};
use snavio_model::time::Clock;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::answer::{json, no_store};
use super::body::{check_encoding, essence, read};
use super::exchange::{self, Unfit};
use super::{App, Problem, Shared};
use crate::principal::check_active;

const CLIENT_CREDENTIALS: &str = "client_credentials";
/// RFC 7523.
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// RFC 8693.
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_TYPE: &str = "urn:ietf:params:oauth:token-type:jwt";
const ACCESS_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";

/// What a client or a workload sends.
#[derive(Deserialize, ToSchema)]
#[schema(as = TokenRequest)]
pub(super) struct Form {
    /// `client_credentials`; for a workload `urn:ietf:params:oauth:grant-type:jwt-bearer`, or
    /// `urn:ietf:params:oauth:grant-type:token-exchange`.
    grant_type: String,
    /// The client's id, unless it comes as Basic authentication.
    client_id: Option<String>,
    /// The client's secret, unless it comes as Basic authentication.
    #[schema(value_type = Option<String>)]
    client_secret: Option<Zeroizing<String>>,
    /// A workload's JWT, with `jwt-bearer`.
    #[schema(value_type = Option<String>)]
    assertion: Option<Zeroizing<String>>,
    /// A workload's JWT, with `token-exchange`.
    #[schema(value_type = Option<String>)]
    subject_token: Option<Zeroizing<String>>,
    /// With `token-exchange`: `urn:ietf:params:oauth:token-type:jwt`.
    subject_token_type: Option<String>,
}

/// How whoever asks proves to be a service.
enum Proof {
    Client(String, Secret),
    Workload { token: Secret, is_exchange: bool },
}

/// A token.
#[derive(Serialize, ToSchema)]
pub(super) struct Token {
    access_token: String,
    token_type: &'static str,
    /// Seconds.
    expires_in: u64,
    /// With `token-exchange`: that it is an access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    issued_token_type: Option<&'static str>,
}

/// RFC 6749's own form of error.
#[derive(Serialize, ToSchema)]
pub(super) struct OAuthError {
    /// `invalid_request`, `invalid_client`, `invalid_grant` or `unsupported_grant_type`.
    error: &'static str,
    #[schema(value_type = String)]
    error_description: Cow<'static, str>,
}

/// Exchanges a client's id and secret, in the form or as Basic authentication, or a workload's JWT, for a token.
#[utoipa::path(post, path = "/v1/token", tag = "tokens",
    security(()),
    request_body(content = Form, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, body = Token), (status = 400, body = OAuthError), (status = 401, body = OAuthError)))]
pub(super) async fn issue(State(app): State<Shared>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    app.gate.check_age().await?;
    let form = match form(&app, &parts, body).await? {
        Ok(form) => form,
        Err(wrong) => return Ok(wrong.response()),
    };
    match proof(&parts.headers, form) {
        Ok(Proof::Client(id, secret)) => match authenticated(&app, &id, &secret) {
            Some(client) => Ok(told(&token(&app, client.id.clone(), &client.service)?)),
            None => denied(&app, &parts.extensions),
        },
        Ok(Proof::Workload { token, is_exchange }) => {
            of_workload(&app, &parts.extensions, &token, is_exchange).await
        }
        Err(wrong) => Ok(wrong.response()),
    }
}

async fn of_workload(
    app: &App,
    extensions: &Extensions,
    shown: &str,
    is_exchange: bool,
) -> Result<Response, Problem> {
    match exchange::workload(app, extensions, shown).await {
        Ok(workload) => {
            // The key's name: an issuer's holds no space, and no client's id does.
            let subject = EntryKey::workload(&workload.issuer, &workload.subject).name;
            let issued_token_type = is_exchange.then_some(ACCESS_TOKEN_TYPE);
            Ok(told(&Token { issued_token_type, ..token(app, subject, &workload.service)? }))
        }
        Err(Unfit::Wrong(why)) => Ok(wrong("invalid_grant", why).response()),
        Err(Unfit::Refused(refusal)) => Err(refusal.into()),
    }
}

fn told(token: &Token) -> Response {
    no_store(json(StatusCode::OK, token))
}

async fn form(app: &App, parts: &Parts, body: Body) -> Result<Result<Form, OAuthError>, Refusal> {
    let headers = &parts.headers;
    check_encoding(headers)?;
    let named = headers.contains_key(CONTENT_TYPE);
    if named && !essence(headers).eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let detail = "the content type must be application/x-www-form-urlencoded";
        return Err(Refusal::new(Reason::UnsupportedMediaType, detail));
    }
    let bytes = read(app, parts, body, bounds::FORM_BYTES_MAX).await?;
    let unfit =
        |_| wrong("invalid_request", "send grant_type and what goes with it as a form, each member once");
    Ok(serde_urlencoded::from_bytes(&bytes).map_err(unfit))
}

type Secret = Zeroizing<String>;

/// How the request proves whose it is.
fn proof(headers: &HeaderMap, form: Form) -> Result<Proof, OAuthError> {
    let is_exchange = match form.grant_type.as_str() {
        CLIENT_CREDENTIALS => return client(headers, form).map(|(id, secret)| Proof::Client(id, secret)),
        JWT_BEARER => false,
        TOKEN_EXCHANGE => true,
        _ => {
            let known = "the grant type must be client_credentials, jwt-bearer or token-exchange";
            return Err(wrong("unsupported_grant_type", known));
        }
    };
    if form.client_secret.is_some() || basic(headers).is_some() {
        return Err(wrong("invalid_request", "show a client's secret or a workload's token, not both"));
    }
    if is_exchange && form.subject_token_type.as_deref() != Some(JWT_TYPE) {
        return Err(wrong("invalid_request", "subject_token_type must be that of a JWT"));
    }
    let (token, missing) = match is_exchange {
        true => (form.subject_token, "subject_token is missing"),
        false => (form.assertion, "assertion is missing"),
    };
    let token = token.ok_or_else(|| wrong("invalid_request", missing))?;
    Ok(Proof::Workload { token, is_exchange })
}

/// Whose credentials the request shows. Two ways at once are refused, as RFC 6749 2.3 has it; an Authorization
/// of another scheme says nothing about the client.
fn client(headers: &HeaderMap, form: Form) -> Result<(String, Secret), OAuthError> {
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

fn token(app: &App, sub: String, service: &ServiceName) -> Result<Token, Refusal> {
    check_active(&app.gate.registry(), service.tenant())?;
    let now = app.clock.now().0 / 1000;
    let expires_in = bounds::TOKEN_LIFETIME.as_secs();
    let claims = TokenClaims {
        sub,
        service: service.clone(),
        iat: now,
        exp: now + i64::try_from(expires_in).unwrap_or(0),
    };
    let access_token = app.platform.issue(&claims);
    Ok(Token { access_token, token_type: "Bearer", expires_in, issued_token_type: None })
}

/// Refuses in RFC 6749's words, until there were too many failures.
fn denied(app: &App, extensions: &Extensions) -> Result<Response, Problem> {
    let detail = "client_id or client_secret is wrong";
    let refusal = app.failures.refuse(extensions, app.clock.now(), detail);
    match refusal.reason {
        Reason::AuthThrottled => Err(refusal.into()),
        _ => Ok(wrong("invalid_client", detail).response()),
    }
}

fn wrong(error: &'static str, why: impl Into<Cow<'static, str>>) -> OAuthError {
    OAuthError { error, error_description: why.into() }
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
