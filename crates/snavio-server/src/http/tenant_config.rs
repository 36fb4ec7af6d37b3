//! `GET /v1/tenant-config`: what a service has to know of itself, and how it learns of a new key (REG-11).

use std::convert::Infallible;

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use snavio_model::bounds;
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_model::registry::{
    Entry, EntryKey, EventType, Grant, KeyRing, Kind, LiveKey, Registry, Route, ServiceView,
};
use snavio_model::signature::signed_request;
use snavio_model::time::{Clock, Timestamp};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::answer::{json, no_store};
use super::commands::webhook;
use super::registry::keys::{KeyDocument, shown};
use super::{App, Problem, Shared};
use crate::door::Confidential;
use crate::polls::Poll;
use crate::principal::{Principal, gone};

/// What a service has to know of itself.
#[derive(Serialize, ToSchema)]
pub(super) struct TenantConfig {
    service: ServiceName,
    /// The registry's version that all of this is of.
    registry_version: i64,
    /// The gateway's time.
    now: String,
    /// Its keys, oldest first.
    keys: Vec<KeyDocument>,
    /// When the next key is made on schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    rotates_at: Option<String>,
    /// The key to sign with from now on: only for a request that is signed, over TLS or on the same machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<CurrentKey>,
    /// Why the key to sign with is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<&'static str>,
    limits: Limits,
    /// The routes to it.
    routes: Listed<Route>,
    /// What it publishes.
    event_types: Listed<EventType>,
    /// Its subscriptions to events.
    subscriptions: Listed<Route>,
    /// What others may send to it.
    grants_given: Listed<Grant>,
    /// What it may send to others.
    grants_held: Listed<Grant>,
}

/// The key to sign with.
#[derive(Serialize, ToSchema)]
pub(super) struct CurrentKey {
    /// The version to name in `metadata.version_id`.
    hmac_version: KeyVersion,
    /// The secret to sign with.
    #[schema(value_type = String)]
    hmac_secret: Zeroizing<String>,
}

/// What holds for everything that this service sends and receives.
#[derive(Serialize, ToSchema)]
#[schema(as = ServiceLimits)]
pub(super) struct Limits {
    body_bytes_max: usize,
    batch_messages_max: usize,
    batch_bytes_max: usize,
    /// How far signing and receipt may be apart.
    replay_window_seconds: u64,
    token_seconds: u64,
    receive_messages_max: usize,
    receive_wait_seconds_max: u64,
    visibility_seconds_max: u64,
    ack_messages_max: usize,
    /// How often to ask for this document.
    poll_seconds: u64,
}

/// Some entries, by name, of which there may be more than are told here.
#[derive(Serialize, ToSchema)]
pub(super) struct Listed<T> {
    items: Vec<T>,
    /// Whether there are more; `GET /v1/registry` tells all of the own tenant's, page by page.
    more: bool,
}

impl<T> Listed<T> {
    fn of(items: impl Iterator<Item = T>, key: impl Fn(&T) -> EntryKey) -> Self {
        let mut items: Vec<_> = items.take(bounds::PAGE_MAX + 1).collect();
        let more = items.len() > bounds::PAGE_MAX;
        items.truncate(bounds::PAGE_MAX);
        items.sort_by_cached_key(key);
        Self { items, more }
    }
}

/// What a service has to know of itself: its keys, limits, routes and grants.
///
/// Ask every 12 hours. The secret of the current key is told only when the request is also signed with a key of this
/// service that is still accepted, as a Standard Webhook whose body is the text `GET /v1/tenant-config`, and comes over
/// TLS or from the same machine. Each signed request is good once: its id must be a new one.
#[utoipa::path(get, path = "/v1/tenant-config", tag = "keys",
    params(
        ("webhook-id" = Option<String>, Header, description = "Standard Webhooks: a new id for each request, 1 to 128 printable characters"),
        ("webhook-timestamp" = Option<String>, Header, description = "Standard Webhooks: seconds since 1970, within the replay window"),
        ("webhook-signature" = Option<String>, Header, description = "Standard Webhooks: `v1,` and the base64 of the signature of id, timestamp and the text `GET /v1/tenant-config`"),
    ),
    responses((status = 200, body = TenantConfig)))]
pub(super) async fn tenant_config(
    State(app): State<Shared>,
    principal: Principal,
    confidential: Confidential,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let caller = principal.caller()?;
    // A key that was revoked a moment ago on another node must not fetch the next.
    app.gate.refresh_registry().await?;
    let (registry, now) = (app.gate.registry(), app.clock.now());
    let service = registry.service(caller.service.as_str()).ok_or_else(gone)?;
    let told = entitled(&app, service, &headers, confidential, now).await?;
    let given = told.as_ref().ok().map(|key| &key.version);
    let poll =
        Poll { who: principal.name(), client: &caller.client, service: &caller.service, given, at: now };
    app.polls.write_down(&app.gate, &poll).await?;
    let label = if given.is_some() { "given" } else { "withheld" };
    metrics::counter!("snavio_config_polls_total", "secret" => label).increment(1);
    let config = config(&app, &registry, service, told, now).ok_or_else(gone)?;
    Ok(no_store(json(StatusCode::OK, &config)))
}

/// The key to tell, or why it is not told. A signature that does not hold, or was used before, is refused. It is used up
/// where nothing is told, too: what was taken off an open network must not be good over TLS.
async fn entitled<'a>(
    app: &App,
    service: &'a ServiceView,
    headers: &HeaderMap,
    confidential: Confidential,
    now: Timestamp,
) -> Result<Result<&'a LiveKey, &'static str>, Problem> {
    let Some(signature) = webhook(headers).transpose()? else {
        return Ok(Err("the request is not signed"));
    };
    signed_request::check(&signature, signed_request::TENANT_CONFIG, service, now, app.gate.window())
        .map_err(|refusal| app.gate.throttle_signature(&service.name, refusal, now))?;
    app.polls.take(&app.gate, &service.name, &signature, now).await?;
    if !confidential.0 {
        return Ok(Err("the connection is not encrypted: ask over TLS"));
    }
    Ok(service.current_key(now).map(AsRef::as_ref).ok_or("no key is accepted any more"))
}

fn config(
    app: &App,
    registry: &Registry,
    service: &ServiceView,
    told: Result<&LiveKey, &'static str>,
    now: Timestamp,
) -> Option<TenantConfig> {
    let ring = KeyRing::of(registry, &service.name)?;
    let current =
        |key: &LiveKey| CurrentKey { hmac_version: key.version.clone(), hmac_secret: key.secret.expose() };
    Some(TenantConfig {
        service: service.name.clone(),
        registry_version: registry.version(),
        now: now.to_string(),
        keys: shown(&ring, now),
        rotates_at: ring.rotates_at().map(|at| at.to_string()),
        current: told.ok().map(current),
        withheld: told.err(),
        limits: limits_of(app),
        routes: Listed::of(service.routes().map(|it| it.route.clone()), Route::key),
        event_types: Listed::of(service.event_types().map(|it| (**it).clone()), |it| {
            EntryKey::event_type(&it.owner, &it.name)
        }),
        subscriptions: Listed::of(service.subscriptions().map(|it| it.route.clone()), Route::key),
        grants_given: Listed::of(service.grants().map(|it| (**it).clone()), grant_key),
        grants_held: held(registry, &service.name),
    })
}

fn grant_key(grant: &Grant) -> EntryKey {
    EntryKey::grant(&grant.source, &grant.target, &grant.name)
}

/// The grants of a source stand side by side: their names begin with it.
fn held(registry: &Registry, source: &ServiceName) -> Listed<Grant> {
    let before = EntryKey { kind: Kind::Grant, name: format!("{source}>") };
    let own = registry.entries_after(Some(&before)).map_while(|entry| match entry {
        Entry::Grant(grant) if grant.source == *source => Some(grant.clone()),
        _ => None,
    });
    Listed::of(own, grant_key)
}

fn limits_of(app: &App) -> Limits {
    Limits {
        body_bytes_max: app.body_bytes_max,
        batch_messages_max: bounds::BATCH_MESSAGES_MAX,
        batch_bytes_max: bounds::BATCH_BYTES_MAX,
        replay_window_seconds: app.gate.window().as_secs(),
        token_seconds: bounds::TOKEN_LIFETIME.as_secs(),
        receive_messages_max: bounds::RECEIVE_MESSAGES_MAX,
        receive_wait_seconds_max: bounds::RECEIVE_WAIT_MAX.as_secs(),
        visibility_seconds_max: bounds::VISIBILITY_MAX.as_secs(),
        ack_messages_max: bounds::ACK_MESSAGES_MAX,
        poll_seconds: bounds::CONFIG_POLL.as_secs(),
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Confidential {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(false)))
    }
}
