//! Services: sources and targets of messages, and the credentials that a new one gets.

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use snavio_model::name::{KeyVersion, ServiceName, TenantName};
use snavio_model::registry::{Client, Entry, EntryKey, Key, Kind, Registry, Service, Wish, version};
use snavio_model::time::Clock;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::super::answer::{json, no_store};
use super::super::extract::{JsonBody, Params, Segments};
use super::super::{App, Problem, Shared};
use super::{Removed, Why, change, get, named, remove, status};
use crate::platform::{new_client_id, new_client_secret};
use crate::principal::Principal;

/// A service's settings.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ServiceBody {
    /// What it is, for people.
    description: Option<String>,
    /// Days between two of its keys: 30 when not said.
    key_days: Option<u32>,
    /// Days for which a key is accepted beside the one after it: 7 when not said.
    key_overlap_days: Option<u32>,
    /// Whether its events must be signed: not when not said.
    #[serde(default)]
    signed_events: bool,
}

/// What a new service authenticates and signs with. Shown once.
#[derive(Clone, Serialize, ToSchema)]
pub(in crate::http) struct Credentials {
    /// The service.
    source: ServiceName,
    client_id: String,
    #[schema(value_type = String)]
    client_secret: Zeroizing<String>,
    /// The version to name in `metadata.version_id`.
    hmac_version: KeyVersion,
    /// The secret to sign with.
    #[schema(value_type = String)]
    hmac_secret: Zeroizing<String>,
}

/// A new service, with its credentials.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct NewService {
    kind: Kind,
    #[serde(flatten)]
    service: Service,
    #[serde(flatten)]
    credentials: Option<Credentials>,
}

pub(super) fn service_name(tenant: &str, service: &str) -> Result<ServiceName, Problem> {
    let tenant = TenantName::new(tenant).map_err(named)?;
    Ok(ServiceName::of(&tenant, service).map_err(named)?)
}

/// One service.
#[utoipa::path(get, path = "/v1/tenants/{tenant}/services/{service}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path)),
    responses((status = 200, body = Service)))]
pub(in crate::http) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, service)): Segments<(String, String)>,
) -> Result<Response, Problem> {
    get(&app, &principal, &EntryKey::service(&service_name(&tenant, &service)?))
}

/// Registers a service, or changes its settings. A new one's credentials are in the answer, this once.
#[utoipa::path(put, path = "/v1/tenants/{tenant}/services/{service}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), Why),
    request_body = ServiceBody,
    responses((status = 200, body = Service), (status = 201, body = NewService, description = "New; its credentials are shown this once")))]
pub(in crate::http) async fn register(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, service)): Segments<(String, String)>,
    Params(why): Params<Why>,
    JsonBody(body): JsonBody<ServiceBody>,
) -> Result<Response, Problem> {
    let name = service_name(&tenant, &service)?;
    let ServiceBody { description, key_days, key_overlap_days, signed_events } = body;
    let service = Service { name, description, key_days, key_overlap_days, signed_events };
    let decide = |registry: &Registry| with_credentials(&app, registry, service.clone());
    let (changes, credentials) = change(&app, &principal, &why.why, decide).await?;
    Ok(no_store(json(status(&changes), &NewService { kind: Kind::Service, service, credentials })))
}

/// A service that is new gets a client and a first HMAC key; their secrets are shown this once.
pub(super) fn with_credentials(
    app: &App,
    registry: &Registry,
    service: Service,
) -> (Vec<Wish>, Option<Credentials>) {
    let source = service.name.clone();
    let mut wishes = vec![Wish::Put(Entry::Service(service))];
    if registry.service(source.as_str()).is_some() {
        return (wishes, None);
    }
    let (secret, sealed) = app.platform.new_key();
    let credentials = Credentials {
        source,
        client_id: new_client_id(),
        client_secret: new_client_secret(),
        hmac_version: version(1),
        hmac_secret: secret.expose(),
    };
    let created_at = app.clock.now();
    wishes.push(Wish::Put(Entry::Client(Client {
        id: credentials.client_id.clone(),
        service: credentials.source.clone(),
        secret_hash: app.platform.hash_client_secret(&credentials.client_id, &credentials.client_secret),
        created_at,
    })));
    wishes.push(Wish::Put(Entry::Key(Key {
        service: credentials.source.clone(),
        version: credentials.hmac_version.clone(),
        secret: sealed,
        created_at,
        expires_at: None,
        revoked_at: None,
    })));
    (wishes, Some(credentials))
}

/// Removes a service together with its own keys, clients and workloads, and requests for grants from and to it.
#[utoipa::path(delete, path = "/v1/tenants/{tenant}/services/{service}", tag = "registry", params(("tenant" = String, Path), ("service" = String, Path), Why),
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn unregister(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, service)): Segments<(String, String)>,
    Params(why): Params<Why>,
) -> Result<Response, Problem> {
    let name = service_name(&tenant, &service)?;
    let own = |registry: &Registry| {
        let own = registry.entries().filter(|entry| match entry {
            Entry::Key(key) => key.service == name,
            Entry::Client(client) => client.service == name,
            Entry::Workload(workload) => workload.service == name,
            Entry::GrantRequest(it) => it.source == name || it.target == name,
            _ => false,
        });
        own.map(Entry::key).collect()
    };
    remove(&app, &principal, &why, EntryKey::service(&name), own).await
}
