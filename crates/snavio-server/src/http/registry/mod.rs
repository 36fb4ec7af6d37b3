//! The registry over HTTP: tenants, services, routes, event types, subscriptions, adapters, grants, people's tokens, whole files,
//! and the changelog (REG-1, REG-5).

pub(super) mod adapters;
pub(super) mod bans;
pub(super) mod chain;
pub(super) mod changes;
pub(super) mod event_types;
pub(super) mod file;
pub(super) mod grants;
pub(super) mod issuers;
mod kept;
pub(super) mod keys;
pub(super) mod list;
pub(super) mod past;
pub(super) mod platform_key;
pub(super) mod push;
pub(super) mod requests;
pub(super) mod routes;
pub(super) mod services;
pub(super) mod subscriptions;
pub(super) mod tenants;
pub(super) mod tokens;
pub(super) mod workloads;

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use snavio_model::identity::permission::Verdict;
use snavio_model::name::InvalidName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Author, Change, Entry, EntryKey, Registry, SECRET_MEMBERS, Wish, plan};
use snavio_model::time::Clock;
use utoipa::{IntoParams, ToSchema};

use super::answer::json;
use super::{App, Problem, Shared, reason};
use crate::outlive::Outlive;
use crate::principal::{Principal, forbidden};

/// How often a change is decided anew when somebody else changed the registry meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// Why a change is made, for the changelog.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Why {
    #[serde(default)]
    why: String,
}

/// The names of what was removed.
#[derive(Serialize, ToSchema)]
pub(super) struct Removed {
    removed: Vec<String>,
}

fn named(invalid: InvalidName) -> Refusal {
    Refusal::new(Reason::InvalidName, invalid.to_string())
}

fn nothing() -> Problem {
    Refusal::new(Reason::NotFound, "there is nothing registered under this name").into()
}

/// Decides and makes changes; the answer is what changed, and what else the decision came to. It is taken anew
/// when somebody else was quicker, because it may then be another one.
async fn change<T>(
    app: &Shared,
    principal: &Principal,
    why: &str,
    decide: impl Fn(&Registry) -> (Vec<Wish>, T),
) -> Result<(Vec<Change>, T), Problem> {
    let registry = app.gate.registry();
    // Before anybody waits for it.
    permit(principal, &registry, &decide(&registry).0)?;
    reason::check(why)?;
    let _turn = app.gate.registry_turn().await;
    for _ in 0..ATTEMPTS_MAX {
        let registry = app.gate.registry();
        let author = Author { who: principal.name(), why: why.to_owned(), at: app.clock.now() };
        let (wishes, besides) = decide(&registry);
        permit(principal, &registry, &wishes)?;
        let changes = planned(app, &registry, wishes, &author).await?;
        if changes.is_empty() || make(app, changes.clone()).await? {
            return Ok((changes, besides));
        }
        app.gate.refresh_registry().await?;
    }
    Err(Refusal::new(Reason::RegistryConflict, "the registry changes too quickly; try again").into())
}

/// All wishes are the caller's to have, or none is fulfilled: what is another tenant's is not found (QUA-5).
fn permit(principal: &Principal, registry: &Registry, wishes: &[Wish]) -> Result<(), Problem> {
    let standing = principal.standing();
    match wishes.iter().map(|wish| standing.judge_wish(registry, wish)).max() {
        None | Some(Verdict::Allowed) => Ok(()),
        Some(Verdict::Forbidden) => Err(forbidden("your role may not change this").into()),
        Some(Verdict::Hidden) => Err(nothing()),
    }
}

/// What the wishes come to, if the registry and what the store holds allow it.
async fn planned(
    app: &App,
    registry: &Registry,
    wishes: Vec<Wish>,
    author: &Author,
) -> Result<Vec<Change>, Problem> {
    let contradicted = |problems: Vec<String>| Refusal::new(Reason::RegistryConflict, problems.join("; "));
    let changes = plan(registry, wishes, author, app.gate.window()).map_err(contradicted)?;
    let mut problems = kept::problems(app, registry, &changes).await?;
    problems.extend(changes.iter().filter_map(|it| not_called(app, it)));
    if problems.is_empty() { Ok(changes) } else { Err(contradicted(problems).into()) }
}

/// QUA-6: why a change would name a processor that this node may not call, as far as can be told before its name is
/// resolved.
fn not_called(app: &App, change: &Change) -> Option<String> {
    let (Entry::Route(route) | Entry::Subscription(route)) = change.after.as_ref()? else { return None };
    let problem = app.processors.problem(&route.processing)?;
    Some(format!("{}: processing.url: {problem}", change.key))
}

/// Makes the changes, unless somebody else was quicker. A client that hangs up must not leave a change durable and
/// not in effect.
async fn make(app: &Shared, changes: Vec<Change>) -> Result<bool, Problem> {
    let running = Arc::clone(app);
    match Outlive::new(async move { running.gate.change_registry(changes).await }).await {
        Ok(()) => Ok(true),
        Err(snavio_store::StoreError::Stale { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn get(app: &App, principal: &Principal, key: &EntryKey) -> Result<Response, Problem> {
    let registry = app.gate.registry();
    let standing = principal.standing();
    let entry = registry.get(key).filter(|entry| standing.sees(entry)).ok_or_else(nothing)?;
    Ok(json(StatusCode::OK, &shown(&standing.view(entry))))
}

/// An entry as people see it: without what is secret, even encrypted.
fn shown(entry: &Entry) -> Value {
    let mut value = serde_json::to_value(entry).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        SECRET_MEMBERS.iter().for_each(|name| drop(members.remove(*name)));
    }
    value
}

async fn put(
    app: &Shared,
    principal: &Principal,
    why: &Why,
    entry: impl Fn(&Registry) -> Entry,
) -> Result<Response, Problem> {
    let decide = |registry: &Registry| {
        let entry = entry(registry);
        let document = shown(&entry);
        (vec![Wish::Put(entry)], document)
    };
    let (changes, document) = change(app, principal, &why.why, decide).await?;
    Ok(json(status(&changes), &document))
}

fn status(changes: &[Change]) -> StatusCode {
    let added = changes.iter().any(|change| change.before.is_none() && change.after.is_some());
    if added { StatusCode::CREATED } else { StatusCode::OK }
}

/// Removes an entry, together with what goes with it.
async fn remove(
    app: &Shared,
    principal: &Principal,
    why: &Why,
    key: EntryKey,
    with: impl Fn(&Registry) -> Vec<EntryKey>,
) -> Result<Response, Problem> {
    if app.gate.registry().get(&key).is_none() {
        return Err(nothing());
    }
    let decide = |registry: &Registry| {
        let there = registry.get(&key).is_some().then(|| key.clone());
        let keys = with(registry).into_iter().chain(there);
        (keys.map(Wish::Remove).collect(), ())
    };
    let (changes, ()) = change(app, principal, &why.why, decide).await?;
    let removed = changes.iter().map(|change| change.key.to_string()).collect();
    Ok(json(StatusCode::OK, &Removed { removed }))
}
