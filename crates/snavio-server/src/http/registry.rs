//! The registry over HTTP: tenants, services, routes, grants, whole files, and the changelog (REG-1, REG-5).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use snavio_model::limits;
use snavio_model::name::{CommandName, InvalidName, KeyVersion, ServiceName, TenantName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{
    Author, Change, Client, Entry, EntryKey, Grant, Key, Kind, Registry, Route, Service, Tenant, Wish, plan,
};
use snavio_model::signing::Secret;
use snavio_model::time::Clock;

use super::body::JsonBody;
use super::commands::json_response;
use super::parameters::{Path, Query};
use super::{App, Problem, Shared};
use crate::machine::random;
use crate::platform::{new_client_id, new_client_secret};
use crate::principal::Principal;

/// How often a change is decided anew when somebody else changed the registry meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// Why a change is made, for the changelog.
#[derive(Deserialize)]
pub(super) struct Why {
    #[serde(default)]
    why: String,
}

fn named(invalid: InvalidName) -> Refusal {
    Refusal::new(Reason::InvalidName, invalid.to_string())
}

fn nothing() -> Problem {
    Refusal::new(Reason::NotFound, "there is nothing registered under this name").into()
}

/// Decides and makes changes; the answer is what changed.
async fn change(
    app: &App,
    principal: &Principal,
    why: &str,
    wishes: Vec<Wish>,
) -> Result<Vec<Change>, Problem> {
    let decide = |_: &Registry| (wishes.clone(), Vec::new());
    change_by(app, principal, why, decide).await.map(|(changes, _)| changes)
}

/// The same for wishes that depend on the registry, and the credentials they make: both are decided anew when
/// somebody else changed it meanwhile.
async fn change_by(
    app: &App,
    principal: &Principal,
    why: &str,
    decide: impl Fn(&Registry) -> (Vec<Wish>, Vec<Value>),
) -> Result<(Vec<Change>, Vec<Value>), Problem> {
    principal.operator()?;
    if why.chars().count() > limits::REASON_CHARS_MAX {
        return Err(Refusal::new(Reason::InvalidRequest, "the reason is too long").into());
    }
    let _turn = app.gate.registry_turn().await;
    for _ in 0..ATTEMPTS_MAX {
        let registry = app.gate.registry();
        let (wishes, credentials) = decide(&registry);
        let author = Author { who: principal.name(), why: why.to_owned(), at: app.clock.now() };
        let changes = plan(&registry, wishes, &author, app.gate.window())
            .map_err(|problems| Refusal::new(Reason::RegistryConflict, problems.join("; ")))?;
        if changes.is_empty() {
            return Ok((changes, credentials));
        }
        match app.gate.change_registry(changes.clone()).await {
            Ok(()) => return Ok((changes, credentials)),
            Err(snavio_store::StoreError::Stale { .. }) => app.gate.refresh_registry().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refusal::new(Reason::RegistryConflict, "the registry changes too quickly; try again").into())
}

fn get(app: &App, principal: &Principal, key: &EntryKey) -> Result<Response, Problem> {
    let registry = app.gate.registry();
    let entry = registry.get(key).filter(|entry| may_see(principal, entry)).ok_or_else(nothing)?;
    Ok(json_response(StatusCode::OK, &shown(entry)))
}

/// A service sees what its own tenant owns; what belongs to others is not found (QUA-5).
fn may_see(principal: &Principal, entry: &Entry) -> bool {
    match principal {
        Principal::Operator => true,
        Principal::Service(session) => entry.owner() == session.service.tenant(),
    }
}

/// An entry as people see it: without what is secret, even encrypted.
fn shown(entry: &Entry) -> Value {
    let mut value = serde_json::to_value(entry).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.remove("secret");
        members.remove("secret_hash");
    }
    value
}

fn status(changes: &[Change]) -> StatusCode {
    let added = changes.iter().any(|change| change.before.is_none() && change.after.is_some());
    if added { StatusCode::CREATED } else { StatusCode::OK }
}

pub(super) async fn list_tenants(
    State(app): State<Shared>,
    principal: Principal,
) -> Result<Response, Problem> {
    Ok(list(&app, &principal, Kind::Tenant))
}

fn list(app: &App, principal: &Principal, kind: Kind) -> Response {
    let registry = app.gate.registry();
    let entries = registry.entries().filter(|entry| entry.key().kind == kind && may_see(principal, entry));
    json_response(StatusCode::OK, &json!({ "items": entries.map(shown).collect::<Vec<_>>() }))
}

pub(super) async fn get_tenant(
    State(app): State<Shared>,
    principal: Principal,
    Path(tenant): Path<String>,
) -> Result<Response, Problem> {
    get(&app, &principal, &EntryKey::tenant(&TenantName::new(&tenant).map_err(named)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantBody {
    contact: Option<String>,
    #[serde(default)]
    suspended: bool,
}

pub(super) async fn put_tenant(
    State(app): State<Shared>,
    principal: Principal,
    Path(tenant): Path<String>,
    Query(why): Query<Why>,
    JsonBody(body): JsonBody<TenantBody>,
) -> Result<Response, Problem> {
    let name = TenantName::new(&tenant).map_err(named)?;
    let entry = Entry::Tenant(Tenant { name, contact: body.contact, suspended: body.suspended });
    put(&app, &principal, &why, entry).await
}

async fn put(app: &App, principal: &Principal, why: &Why, entry: Entry) -> Result<Response, Problem> {
    let document = shown(&entry);
    let changes = change(app, principal, &why.why, vec![Wish::Put(entry)]).await?;
    Ok(json_response(status(&changes), &document))
}

pub(super) async fn delete_tenant(
    State(app): State<Shared>,
    principal: Principal,
    Path(tenant): Path<String>,
    Query(why): Query<Why>,
) -> Result<Response, Problem> {
    remove(&app, &principal, &why, vec![EntryKey::tenant(&TenantName::new(&tenant).map_err(named)?)]).await
}

async fn remove(
    app: &App,
    principal: &Principal,
    why: &Why,
    keys: Vec<EntryKey>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let registry = app.gate.registry();
    if keys.iter().any(|key| registry.get(key).is_none()) {
        return Err(nothing());
    }
    let changes = change(app, principal, &why.why, keys.into_iter().map(Wish::Remove).collect()).await?;
    let removed: Vec<_> = changes.iter().map(|change| change.key.to_string()).collect();
    Ok(json_response(StatusCode::OK, &json!({ "removed": removed })))
}

fn service_name((tenant, service): &(String, String)) -> Result<ServiceName, Problem> {
    let tenant = TenantName::new(tenant).map_err(named)?;
    Ok(ServiceName::of(&tenant, service).map_err(named)?)
}

pub(super) async fn get_service(
    State(app): State<Shared>,
    principal: Principal,
    Path(path): Path<(String, String)>,
) -> Result<Response, Problem> {
    get(&app, &principal, &EntryKey::service(&service_name(&path)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceBody {
    description: Option<String>,
}

pub(super) async fn put_service(
    State(app): State<Shared>,
    principal: Principal,
    Path(path): Path<(String, String)>,
    Query(why): Query<Why>,
    JsonBody(body): JsonBody<ServiceBody>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let service = Service { name: service_name(&path)?, description: body.description };
    let decide = |registry: &Registry| with_credentials(&app, registry, service.clone());
    let (changes, credentials) = change_by(&app, &principal, &why.why, decide).await?;
    let mut document = shown(&Entry::Service(service.clone()));
    for (name, value) in credentials.iter().filter_map(Value::as_object).flatten() {
        document[name] = value.clone();
    }
    Ok(json_response(status(&changes), &document))
}

/// A service that is new gets a client and a first HMAC key; their secrets are shown this once.
fn with_credentials(app: &App, registry: &Registry, service: Service) -> (Vec<Wish>, Vec<Value>) {
    let name = service.name.clone();
    let mut wishes = vec![Wish::Put(Entry::Service(service))];
    if registry.service(name.as_str()).is_some() {
        return (wishes, Vec::new());
    }
    let (client_id, client_secret) = (new_client_id(), new_client_secret());
    let secret = Secret::from_bytes(random());
    let version = KeyVersion::new("hmac-v1").expect("hmac-v1 is a key version");
    let created_at = app.clock.now();
    wishes.push(Wish::Put(Entry::Client(Client {
        secret_hash: app.platform.hash_client_secret(&client_id, &client_secret),
        id: client_id.clone(),
        service: name.clone(),
        created_at,
    })));
    let key = Key {
        service: name.clone(),
        version: version.clone(),
        secret: app.platform.seal(&secret),
        created_at,
    };
    wishes.push(Wish::Put(Entry::Key(key)));
    let credentials = json!({
        "source": name,
        "client_id": client_id,
        "client_secret": client_secret,
        "hmac_version": version,
        "hmac_secret": secret.expose().as_str(),
    });
    (wishes, vec![credentials])
}

/// A service goes together with its own keys and clients.
pub(super) async fn delete_service(
    State(app): State<Shared>,
    principal: Principal,
    Path(path): Path<(String, String)>,
    Query(why): Query<Why>,
) -> Result<Response, Problem> {
    let name = service_name(&path)?;
    let registry = app.gate.registry();
    let own = registry.entries().filter(|entry| match entry {
        Entry::Key(key) => key.service == name,
        Entry::Client(client) => client.service == name,
        _ => false,
    });
    let mut keys: Vec<_> = own.map(Entry::key).collect();
    keys.push(EntryKey::service(&name));
    remove(&app, &principal, &why, keys).await
}

type RoutePath = Path<(String, String, String)>;

fn route_parts(path: &(String, String, String)) -> Result<(ServiceName, CommandName), Problem> {
    let target = service_name(&(path.0.clone(), path.1.clone()))?;
    Ok((target, CommandName::new(&path.2).map_err(named)?))
}

pub(super) async fn get_route(
    State(app): State<Shared>,
    principal: Principal,
    Path(path): RoutePath,
) -> Result<Response, Problem> {
    let (target, name) = route_parts(&path)?;
    get(&app, &principal, &EntryKey::route(&target, &name))
}

pub(super) async fn put_route(
    State(app): State<Shared>,
    principal: Principal,
    Path(path): RoutePath,
    Query(why): Query<Why>,
    JsonBody(body): JsonBody<Map<String, Value>>,
) -> Result<Response, Problem> {
    let (target, name) = route_parts(&path)?;
    let mut body = body;
    body.insert("target".into(), json!(target));
    body.insert("name".into(), json!(name));
    let route: Route = fits(body)?;
    put(&app, &principal, &why, Entry::Route(route)).await
}

fn fits<T: serde::de::DeserializeOwned>(body: Map<String, Value>) -> Result<T, Problem> {
    let read = serde_json::from_value(Value::Object(body));
    read.map_err(|error| {
        Refusal::new(Reason::InvalidRequest, format!("the body does not fit: {error}")).into()
    })
}

pub(super) async fn delete_route(
    State(app): State<Shared>,
    principal: Principal,
    Path(path): RoutePath,
    Query(why): Query<Why>,
) -> Result<Response, Problem> {
    let (target, name) = route_parts(&path)?;
    remove(&app, &principal, &why, vec![EntryKey::route(&target, &name)]).await
}

pub(super) async fn list_grants(
    State(app): State<Shared>,
    principal: Principal,
) -> Result<Response, Problem> {
    Ok(list(&app, &principal, Kind::Grant))
}

pub(super) async fn put_grant(
    State(app): State<Shared>,
    principal: Principal,
    Query(why): Query<Why>,
    JsonBody(grant): JsonBody<Grant>,
) -> Result<Response, Problem> {
    put(&app, &principal, &why, Entry::Grant(grant)).await
}

pub(super) async fn delete_grant(
    State(app): State<Shared>,
    principal: Principal,
    Query(why): Query<Why>,
    JsonBody(grant): JsonBody<Grant>,
) -> Result<Response, Problem> {
    remove(&app, &principal, &why, vec![Entry::Grant(grant).key()]).await
}

pub(super) async fn get_registry(
    State(app): State<Shared>,
    principal: Principal,
) -> Result<Response, Problem> {
    let registry = app.gate.registry();
    let entries = registry.entries().filter(|entry| may_see(&principal, entry)).map(shown);
    let document = json!({ "version": registry.version(), "entries": entries.collect::<Vec<_>>() });
    Ok(json_response(StatusCode::OK, &document))
}

/// A registry file: what shall be registered.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegistryFile {
    #[serde(default)]
    tenants: Vec<Tenant>,
    #[serde(default)]
    services: Vec<Service>,
    #[serde(default)]
    routes: Vec<Route>,
    #[serde(default)]
    grants: Vec<Grant>,
    /// Only say what would change.
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    why: String,
}

impl RegistryFile {
    /// What the file asks for, and the credentials of services that are new.
    fn decide(&self, app: &App, registry: &Registry) -> (Vec<Wish>, Vec<Value>) {
        let put = |entry| Wish::Put(entry);
        let mut wishes: Vec<_> = self.tenants.iter().map(|it| put(Entry::Tenant(it.clone()))).collect();
        let mut credentials = Vec::new();
        for service in &self.services {
            let (more, made) = with_credentials(app, registry, service.clone());
            wishes.extend(more);
            credentials.extend(made);
        }
        wishes.extend(self.routes.iter().map(|it| put(Entry::Route(it.clone()))));
        wishes.extend(self.grants.iter().map(|it| put(Entry::Grant(it.clone()))));
        (wishes, credentials)
    }
}

/// Registers a file's entries in one transaction; what is there already changes nothing (REG-4).
pub(super) async fn apply(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(file): JsonBody<RegistryFile>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let registry = app.gate.registry();
    let (changes, credentials) = if file.dry_run {
        let author = Author { who: principal.name(), why: file.why.clone(), at: app.clock.now() };
        let changes = plan(&registry, file.decide(&app, &registry).0, &author, app.gate.window())
            .map_err(|problems| Refusal::new(Reason::RegistryConflict, problems.join("; ")))?;
        (changes, Vec::new())
    } else {
        change_by(&app, &principal, &file.why, |registry| file.decide(&app, registry)).await?
    };
    let document = json!({
        "version": changes.last().map_or(registry.version(), |change| change.version),
        "changes": changes.iter().map(summary).collect::<Vec<_>>(),
        "credentials": credentials,
        "dry_run": file.dry_run,
    });
    Ok(json_response(StatusCode::OK, &document))
}

fn summary(change: &Change) -> Value {
    let step = match (&change.before, &change.after) {
        (None, _) => "add",
        (Some(_), Some(_)) => "change",
        (Some(_), None) => "remove",
    };
    json!({ "step": step, "kind": change.key.kind, "name": change.key.name })
}

#[derive(Deserialize)]
pub(super) struct Since {
    #[serde(default)]
    since: i64,
    limit: Option<usize>,
}

/// The changelog after a version.
pub(super) async fn changes(
    State(app): State<Shared>,
    principal: Principal,
    Query(since): Query<Since>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let limit = since.limit.unwrap_or(limits::PAGE_DEFAULT).clamp(1, limits::PAGE_MAX);
    let changes = app.gate.store().changes_since(since.since, limit).await?;
    let items: Vec<_> = changes
        .iter()
        .map(|change| {
            json!({
                "version": change.version,
                "at": change.at.to_string(),
                "who": change.who,
                "why": change.why,
                "kind": change.key.kind,
                "name": change.key.name,
                "before": change.before.as_ref().map(shown),
                "after": change.after.as_ref().map(shown),
            })
        })
        .collect();
    let next = changes.last().map_or(since.since, |change| change.version);
    Ok(json_response(StatusCode::OK, &json!({ "items": items, "next": next })))
}
