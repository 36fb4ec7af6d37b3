//! A service's keys: which there are, a new one on demand, and taking one back (REG-10, REG-12).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_model::registry::{EntryKey, Key, KeyRing, KeyState, Registry};
use snavio_model::time::{Clock, Timestamp};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::super::answer::{json, no_store};
use super::super::extract::{JsonBody, Segments};
use super::super::{App, Problem, Shared};
use super::services::service_name;
use super::{change, named, nothing};
use crate::principal::Principal;

/// A service's keys, oldest first, without their secrets.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Keys {
    keys: Vec<KeyDocument>,
    /// When the next one is made on schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    rotates_at: Option<String>,
    /// When the service last asked for its configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    polled_at: Option<String>,
}

/// One version of a service's key.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyVersionState)]
pub(in crate::http) struct KeyDocument {
    version: KeyVersion,
    state: KeyState,
    created_at: String,
    /// When it is not accepted any more, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_at: Option<String>,
}

/// A key that was just made. Shown once.
#[derive(Serialize, ToSchema)]
#[schema(as = NewKey)]
pub(in crate::http) struct NewKeyDocument {
    /// The service.
    source: ServiceName,
    /// The version to name in `metadata.version_id`.
    hmac_version: KeyVersion,
    /// The secret to sign with.
    #[schema(value_type = String)]
    hmac_secret: Zeroizing<String>,
}

/// What a revocation did.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Revoked {
    /// The version that is not accepted any more.
    revoked: KeyVersion,
    /// The key in its place, if it was the current one. Shown once.
    #[serde(skip_serializing_if = "Option::is_none")]
    replacement: Option<NewKeyDocument>,
}

/// Why a key is made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RotateBody {
    /// Why, for the changelog.
    #[serde(default)]
    pub(super) why: String,
}

/// Why a key is taken back, and what comes after it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RevokeBody {
    /// Why, for the changelog.
    #[serde(default)]
    why: String,
    /// Whether the current key is replaced by a new one: true when not said. Without it the service may be left with
    /// no key that is accepted, and schedules make none until a person does.
    #[serde(default = "yes")]
    replace: bool,
}

fn yes() -> bool {
    true
}

/// The keys of a ring as they may be shown.
pub(in crate::http) fn shown(ring: &KeyRing<'_>, now: Timestamp) -> Vec<KeyDocument> {
    let document = |key: &&Key| KeyDocument {
        version: key.version.clone(),
        state: ring.state(key, now),
        created_at: key.created_at.to_string(),
        ends_at: key.ends_at().map(|end| end.to_string()),
    };
    ring.keys().iter().map(document).collect()
}

/// The versions of a service's key, and what each is good for.
#[utoipa::path(get, path = "/v1/tenants/{tenant}/services/{service}/keys", tag = "keys", params(("tenant" = String, Path), ("service" = String, Path)),
    responses((status = 200, body = Keys)))]
pub(in crate::http) async fn list(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, service)): Segments<(String, String)>,
) -> Result<Response, Problem> {
    let name = service_name(&tenant, &service)?;
    let registry = app.gate.registry();
    let entry = registry.get(&EntryKey::service(&name)).filter(|entry| principal.standing().sees(entry));
    let ring = entry.and_then(|_| KeyRing::of(&registry, &name)).ok_or_else(nothing)?;
    let keys = Keys {
        keys: shown(&ring, app.clock.now()),
        rotates_at: ring.rotates_at().map(|at| at.to_string()),
        polled_at: app.gate.last_poll(&name).await?.map(|at| at.to_string()),
    };
    Ok(json(StatusCode::OK, &keys))
}

/// Makes a new key, and shows it this once. The one before is accepted for the service's overlap, older ones end now.
#[utoipa::path(post, path = "/v1/tenants/{tenant}/services/{service}/keys/rotate", tag = "keys", params(("tenant" = String, Path), ("service" = String, Path)),
    request_body = RotateBody,
    responses((status = 201, body = NewKeyDocument)))]
pub(in crate::http) async fn rotate(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, service)): Segments<(String, String)>,
    JsonBody(body): JsonBody<RotateBody>,
) -> Result<Response, Problem> {
    let name = service_name(&tenant, &service)?;
    let decide = |registry: &Registry| {
        let Some(ring) = KeyRing::of(registry, &name) else { return (Vec::new(), None) };
        let (secret, sealed) = app.platform.new_key();
        let new = ring.rotate(sealed, app.clock.now());
        (new.wishes, Some(document(&name, new.version, secret)))
    };
    let (_, made) = change(&app, &principal, &body.why, decide).await?;
    Ok(no_store(json(StatusCode::CREATED, &made.ok_or_else(nothing)?)))
}

/// Takes a key back at once. In the place of the current one a new one is made, and shown this once.
#[utoipa::path(post, path = "/v1/tenants/{tenant}/services/{service}/keys/{version}/revoke", tag = "keys",
    params(("tenant" = String, Path), ("service" = String, Path), ("version" = String, Path)),
    request_body = RevokeBody,
    responses((status = 200, body = Revoked)))]
pub(in crate::http) async fn revoke(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, service, version)): Segments<(String, String, String)>,
    JsonBody(body): JsonBody<RevokeBody>,
) -> Result<Response, Problem> {
    let name = service_name(&tenant, &service)?;
    let version = KeyVersion::new(&version).map_err(named)?;
    let decide = |registry: &Registry| revocation(&app, registry, &name, &version, body.replace);
    let (_, revoked) = change(&app, &principal, &body.why, decide).await?;
    Ok(no_store(json(StatusCode::OK, &revoked.ok_or_else(nothing)?)))
}

fn revocation(
    app: &App,
    registry: &Registry,
    name: &ServiceName,
    version: &KeyVersion,
    replace: bool,
) -> (Vec<snavio_model::registry::Wish>, Option<Revoked>) {
    let (secret, sealed) = app.platform.new_key();
    let revocation = KeyRing::of(registry, name)
        .and_then(|ring| ring.revoke(version, replace.then_some(sealed), app.clock.now()));
    let Some(revocation) = revocation else { return (Vec::new(), None) };
    let replacement = revocation.replacement.map(|version| document(name, version, secret));
    (revocation.wishes, Some(Revoked { revoked: version.clone(), replacement }))
}

fn document(
    source: &ServiceName,
    hmac_version: KeyVersion,
    secret: snavio_model::signature::signing::Secret,
) -> NewKeyDocument {
    NewKeyDocument { source: source.clone(), hmac_version, hmac_secret: secret.expose() }
}
