//! Registry files: what shall be registered, in one transaction (REG-4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use snavio_model::identity::permission::{Over, Permission, Verdict};
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{
    Author, Change, Entry, EntryKey, EventType, Grant, Kind, Registry, Route, Service, Wish,
};
use snavio_model::time::{Clock, Timestamp};
use utoipa::ToSchema;

use super::super::answer::{json, no_store};
use super::super::extract::{JsonBody, objects};
use super::super::{App, Problem, Shared};
use super::adapters::{AdapterBody, Asked};
use super::push::{NewPushSecret, as_it_stands, with_secret};
use super::services::{Credentials, with_credentials};
use super::tenants::FileTenant;
use super::{change, planned, shown};
use crate::principal::{Principal, forbidden};

/// Entries that a refusal names one by one.
const PROBLEMS_TOLD_MAX: usize = 20;

/// What shall be registered.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RegistryFile {
    #[serde(default, deserialize_with = "objects")]
    tenants: Vec<FileTenant>,
    #[serde(default, deserialize_with = "objects")]
    services: Vec<Service>,
    #[serde(default, deserialize_with = "objects")]
    routes: Vec<Route>,
    #[serde(default, deserialize_with = "objects")]
    event_types: Vec<EventType>,
    #[serde(default, deserialize_with = "objects")]
    subscriptions: Vec<Route>,
    #[serde(default, deserialize_with = "objects")]
    grants: Vec<Grant>,
    #[serde(default, deserialize_with = "objects")]
    #[schema(value_type = Vec<AdapterBody>)]
    adapters: Vec<Asked>,
    /// Also remove services, routes, event types, subscriptions, grants and adapters that the tenants of the file own and the file does not name.
    #[serde(default)]
    prune: bool,
    /// Only say what would change.
    #[serde(default)]
    dry_run: bool,
    /// Why, for the changelog.
    #[serde(default)]
    why: String,
}

impl RegistryFile {
    /// What the file asks for, and the credentials of the services that it adds.
    fn wishes(&self, app: &App, registry: &Registry) -> (Vec<Wish>, Made) {
        let (mut wishes, mut made) = (Vec::new(), Made::default());
        for entry in self.entries(app, registry) {
            if let Entry::Service(service) = entry {
                let (more, credentials) = with_credentials(app, registry, service);
                wishes.extend(more);
                made.credentials.extend(credentials);
                continue;
            }
            if let Entry::Route(route) | Entry::Subscription(route) = &entry
                && let Some((wish, secret)) = with_secret(app, registry, route)
            {
                wishes.push(wish);
                made.push_secrets.push(secret);
            }
            wishes.push(Wish::Put(entry));
        }
        if self.prune {
            let named: BTreeSet<_> = wishes.iter().map(Wish::key).collect();
            wishes.extend(self.left_out(registry, &named).into_iter().map(Wish::Remove));
        }
        (wishes, made)
    }

    /// What the tenants of the file own and the file does not name. A service goes with its keys and clients.
    fn left_out(&self, registry: &Registry, named: &BTreeSet<EntryKey>) -> Vec<EntryKey> {
        let is_owner = |owner: &str| self.tenants.iter().any(|tenant| tenant.name() == owner);
        let is_gone = |service: &ServiceName| !named.contains(&EntryKey::service(service));
        let goes = |service: &ServiceName| is_owner(service.tenant()) && is_gone(service);
        let is_left_out = |entry: &&Entry| match entry {
            Entry::Service(service) => goes(&service.name),
            Entry::Key(key) => goes(&key.service),
            Entry::Client(client) => goes(&client.service),
            Entry::PushSecret(it) => is_owner(it.owner()) && !named.contains(&it.route_key()),
            Entry::Workload(workload) => goes(&workload.service),
            // Whoever it waits for.
            Entry::GrantRequest(it) => goes(&it.source) || goes(&it.target),
            Entry::Route(_)
            | Entry::EventType(_)
            | Entry::Subscription(_)
            | Entry::Grant(_)
            | Entry::Adapter(_) => is_owner(entry.owner()) && !named.contains(&entry.key()),
            _ => false,
        };
        registry.entries().filter(is_left_out).map(Entry::key).collect()
    }

    /// What the file says, without what comes with it.
    fn entries(&self, app: &App, registry: &Registry) -> impl Iterator<Item = Entry> {
        let tenants = self.tenants.iter().map(|tenant| tenant.entry(registry));
        let services = self.services.iter().cloned().map(Entry::Service);
        let standing = |route: &Route| as_it_stands(registry, route);
        let routes = self.routes.iter().map(standing).map(Entry::Route);
        let event_types = self.event_types.iter().cloned().map(Entry::EventType);
        let subscriptions = self.subscriptions.iter().map(standing).map(Entry::Subscription);
        let grants = self.grants.iter().cloned().map(Entry::Grant);
        let adapters = self.adapters.iter().map(|asked| asked.entry(app, registry));
        let own = tenants.chain(services).chain(routes).chain(event_types).chain(adapters);
        own.chain(subscriptions).chain(grants)
    }
}

/// Secrets that were made with what a file adds.
#[derive(Default)]
struct Made {
    credentials: Vec<Credentials>,
    push_secrets: Vec<NewPushSecret>,
}

/// What a file changed, or would change.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Applied {
    /// The registry's version afterwards.
    version: i64,
    changes: Vec<Step>,
    /// Of the services that are new. Shown once.
    credentials: Vec<Credentials>,
    /// Of the routes and subscriptions that push for the first time. Shown once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    push_secrets: Vec<NewPushSecret>,
    /// Grants of the file for which there is no route and no event type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    dry_run: bool,
}

/// One change of many.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Step {
    /// `add`, `change` or `remove`.
    step: &'static str,
    kind: Kind,
    name: String,
    /// Of a change: each member that is another one afterwards.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    members: BTreeMap<String, Member>,
}

/// A member before and after a change.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Member {
    #[schema(value_type = Value)]
    before: Value,
    #[schema(value_type = Value)]
    after: Value,
}

/// The registry as it would be with a file applied.
pub(in crate::http) async fn assumed(
    app: &App,
    principal: &Principal,
    file: &RegistryFile,
) -> Result<Registry, Problem> {
    let registry = app.gate.registry();
    check_own(app, principal, &registry, file)?;
    let author = Author { who: principal.name(), why: String::new(), at: app.clock.now() };
    let (wishes, _) = file.wishes(app, &registry);
    let changes = planned(app, &registry, wishes, &author).await?;
    Ok(registry.with(&changes, &*app.platform))
}

/// Registers a file's entries; what is there already changes nothing.
#[utoipa::path(post, path = "/v1/registry/apply", tag = "registry", request_body = RegistryFile,
    responses((status = 200, body = Applied)))]
pub(in crate::http) async fn apply(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(file): JsonBody<RegistryFile>,
) -> Result<Response, Problem> {
    check_own(&app, &principal, &app.gate.registry(), &file)?;
    let (changes, made, after) = if file.dry_run {
        let author = Author { who: principal.name(), why: file.why.clone(), at: app.clock.now() };
        let registry = app.gate.registry();
        let (wishes, _) = file.wishes(&app, &registry);
        let changes = planned(&app, &registry, wishes, &author).await?;
        let after = Arc::new(registry.with(&changes, &*app.platform));
        (changes, Made::default(), after)
    } else {
        let (changes, made) =
            change(&app, &principal, &file.why, |registry| file.wishes(&app, registry)).await?;
        (changes, made, app.gate.registry())
    };
    let applied = Applied {
        version: changes.last().map_or_else(|| app.gate.registry().version(), |change| change.version),
        changes: changes.iter().map(step).collect(),
        credentials: made.credentials,
        push_secrets: made.push_secrets,
        warnings: warnings(&file.grants, &after, app.clock.now()),
        dry_run: file.dry_run,
    };
    Ok(no_store(json(StatusCode::OK, &applied)))
}

fn warnings(grants: &[Grant], registry: &Registry, at: Timestamp) -> Vec<String> {
    let mut warnings: Vec<_> = grants.iter().filter_map(|grant| registry.grant_warning(grant, at)).collect();
    let rest = warnings.len().saturating_sub(PROBLEMS_TOLD_MAX);
    warnings.truncate(PROBLEMS_TOLD_MAX);
    warnings.extend((rest > 0).then(|| format!("{rest} more grants have no route and no event type")));
    warnings
}

/// Whoever applies a file is told each entry that is not theirs to register. What is there of others does not matter
/// for the answer, and does not show in it (QUA-5).
fn check_own(
    app: &App,
    principal: &Principal,
    registry: &Registry,
    file: &RegistryFile,
) -> Result<(), Problem> {
    let standing = principal.standing();
    let over = standing.tenant().map_or(Over::Platform, Over::Tenant);
    if standing.judge(Permission::Manage, over) != Verdict::Allowed {
        return Err(forbidden("your role may not change what is registered").into());
    }
    let problem = |wish: Wish| {
        let told = match standing.judge_wish(registry, &wish) {
            Verdict::Allowed => return None,
            Verdict::Forbidden => "your role may not change this",
            Verdict::Hidden => "it is not of your tenant",
        };
        Some(format!("{}: {told}", wish.key()))
    };
    let problems: Vec<_> =
        file.entries(app, registry).filter_map(|entry| problem(Wish::Put(entry))).collect();
    if problems.is_empty() {
        return Ok(file.adapters.iter().try_for_each(|asked| asked.check_kept(registry))?);
    }
    let rest = problems.len().saturating_sub(PROBLEMS_TOLD_MAX);
    let mut told = problems[..problems.len() - rest].join("; ");
    if rest > 0 {
        told.push_str(&format!("; and {rest} more"));
    }
    Err(Refusal::new(Reason::Forbidden, told).into())
}

/// What a change comes to, for people.
pub(super) fn step(change: &Change) -> Step {
    steps(&change.key, change.before.as_ref(), change.after.as_ref())
}

/// What it means that an entry was the one and is the other.
pub(super) fn steps(key: &EntryKey, before: Option<&Entry>, after: Option<&Entry>) -> Step {
    let step = match (before, after) {
        (None, _) => "add",
        (Some(_), Some(_)) => "change",
        (Some(_), None) => "remove",
    };
    let members = match (before, after) {
        (Some(before), Some(after)) => members(&shown(before), &shown(after)),
        _ => BTreeMap::new(),
    };
    Step { step, kind: key.kind, name: key.name.clone(), members }
}

/// What differs between two documents, by member; what is missing is null.
fn members(before: &Value, after: &Value) -> BTreeMap<String, Member> {
    let names = [before, after].into_iter().filter_map(Value::as_object).flat_map(|it| it.keys());
    let differs = names.filter(|name| before[*name] != after[*name]);
    let member = |name: &String| Member { before: before[name].clone(), after: after[name].clone() };
    differs.map(|name| (name.clone(), member(name))).collect()
}
