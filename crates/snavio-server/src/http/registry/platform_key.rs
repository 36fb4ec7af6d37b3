//! The platform key: which one is in force, and putting another in its place (REG-13).

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::adapter::Adapter;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Entry, Key, PushSecret, Registry, Sealed, Wish};
use snavio_model::time::Clock;
use snavio_store::{Act, Deed};
use utoipa::ToSchema;

use super::super::answer::json;
use super::super::extract::JsonBody;
use super::super::{App, Problem, Shared};
use super::change;
use crate::node::{HASH_KEY_PIN, HEARD_LATELY, KNOWS_NOTE, PLATFORM_KEY_PIN};
use crate::platform_key::sealed_under;
use crate::principal::Principal;

/// Keys that are sealed anew in one change.
const KEYS_AT_ONCE: usize = 500;

/// Platform keys by their fingerprints, which tell nothing else about them.
#[derive(Serialize, ToSchema)]
#[schema(as = PlatformKey)]
pub(in crate::http) struct PlatformKeys {
    /// The one that is in force.
    platform_key: String,
    /// Those that this node knows.
    known: Vec<String>,
    /// How many keys of services, secrets of pushes and secrets of adapters are sealed under each; before they said which,
    /// under `unnamed`.
    sealed_under: BTreeMap<String, usize>,
}

/// Which platform key is to be in force.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct PlatformKeyBody {
    /// Its fingerprint.
    to: String,
    /// Why, for the changelog.
    #[serde(default)]
    why: String,
}

fn document(app: &App) -> PlatformKeys {
    let mut sealed = BTreeMap::<_, usize>::new();
    let registry = app.gate.registry();
    for entry in registry.entries() {
        let secrets = match entry {
            Entry::Key(key) => vec![&key.secret],
            Entry::PushSecret(it) => [&it.secret].into_iter().chain(&it.previous_secret).collect(),
            Entry::Adapter(adapter) => adapter.secrets.iter().collect(),
            _ => Vec::new(),
        };
        for secret in secrets {
            *sealed.entry(sealed_under(secret).unwrap_or("unnamed").to_owned()).or_default() += 1;
        }
    }
    PlatformKeys {
        platform_key: app.platform.fingerprint().to_owned(),
        known: app.platform.known().into_iter().map(str::to_owned).collect(),
        sealed_under: sealed,
    }
}

/// The platform key that is in force, and what is sealed under it.
#[utoipa::path(get, path = "/v1/platform-key", tag = "keys", responses((status = 200, body = PlatformKeys)))]
pub(in crate::http) async fn show(
    State(app): State<Shared>,
    principal: Principal,
) -> Result<Response, Problem> {
    principal.operator()?;
    Ok(json(StatusCode::OK, &document(&app)))
}

/// Puts another platform key in force: seals everything under it, and has all nodes go by it. Every node must know it.
/// Asked for again it seals what is left.
#[utoipa::path(post, path = "/v1/platform-key", tag = "keys", request_body = PlatformKeyBody,
    responses((status = 200, body = PlatformKeys)))]
pub(in crate::http) async fn replace(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(body): JsonBody<PlatformKeyBody>,
) -> Result<Response, Problem> {
    principal.operator()?;
    check_known(&app, &body.to).await?;
    keep_hashes(&app, &body.to).await?;
    reseal_all(&app, &principal, &body).await?;
    put_in_force(&app, &principal, &body).await?;
    Ok(json(StatusCode::OK, &document(&app)))
}

/// A node that does not know the key could open nothing any more.
async fn check_known(app: &App, to: &str) -> Result<(), Problem> {
    let refused = |detail: String| Problem::from(Refusal::new(Reason::RegistryConflict, detail));
    if !app.platform.known().contains(&to) {
        let detail = "this node does not know the platform key; name its file with platform.second_key_file";
        return Err(refused(detail.to_owned()));
    }
    let store = app.gate.store();
    let mut ignorant = Vec::new();
    for node in store.nodes().await? {
        if node.state.id == app.node || node.silent_for >= HEARD_LATELY {
            continue;
        }
        let knows = store.note(&format!("{KNOWS_NOTE}{}", node.state.id)).await?.unwrap_or_default();
        if !knows.split(' ').any(|fingerprint| fingerprint == to) {
            ignorant.push(node.state.address);
        }
    }
    if ignorant.is_empty() {
        return Ok(());
    }
    Err(refused(format!(
        "nodes that do not know the platform key: {}; restart them with it",
        ignorant.join(", ")
    )))
}

/// Client secrets are known as hashes only: their key stays, sealed under the new platform key.
async fn keep_hashes(app: &App, to: &str) -> Result<(), Problem> {
    let store = app.gate.store();
    match store.pinned(HASH_KEY_PIN).await? {
        None => {
            if let Some(sealed) = app.platform.sealed_hash_key(to) {
                store.pin(HASH_KEY_PIN, &sealed.0).await?;
            }
        }
        Some(before) => {
            if let Some(sealed) = app.platform.reseal(&Sealed(before.clone()), to) {
                store.repin(HASH_KEY_PIN, &before, &sealed.0).await?;
            }
        }
    }
    Ok(())
}

async fn reseal_all(app: &Shared, principal: &Principal, body: &PlatformKeyBody) -> Result<(), Problem> {
    loop {
        let reseal = |entry: &Entry| match entry {
            Entry::Key(key) => {
                let secret = app.platform.reseal(&key.secret, &body.to)?;
                Some(Wish::Put(Entry::Key(Key { secret, ..key.clone() })))
            }
            Entry::PushSecret(it) => resealed(app, it, &body.to),
            Entry::Adapter(adapter) => resealed_adapter(app, adapter, &body.to),
            _ => None,
        };
        let decide =
            |registry: &Registry| (registry.entries().filter_map(reseal).take(KEYS_AT_ONCE).collect(), ());
        let (changes, ()) = change(app, principal, &body.why, decide).await?;
        if changes.is_empty() {
            return Ok(());
        }
    }
}

/// An adapter with its secrets sealed under another key; nothing if all are already.
fn resealed_adapter(app: &App, adapter: &Adapter, to: &str) -> Option<Wish> {
    let anew = |it: &Sealed| app.platform.reseal(it, to).unwrap_or_else(|| it.clone());
    let secrets: Vec<_> = adapter.secrets.iter().map(anew).collect();
    let is_changed = secrets != adapter.secrets;
    let after = Adapter { secrets, ..adapter.clone() };
    is_changed.then(|| Wish::Put(Entry::Adapter(Box::new(after))))
}

/// What pushes are signed with, sealed anew; nothing if it is under that key already.
fn resealed(app: &App, before: &PushSecret, to: &str) -> Option<Wish> {
    let reseal = |sealed: &Sealed| app.platform.reseal(sealed, to).unwrap_or_else(|| sealed.clone());
    let (secret, previous_secret) = (reseal(&before.secret), before.previous_secret.as_ref().map(reseal));
    let after = PushSecret { secret, previous_secret, ..before.clone() };
    if after == *before { None } else { Some(Wish::Put(Entry::PushSecret(after))) }
}

async fn put_in_force(app: &App, principal: &Principal, body: &PlatformKeyBody) -> Result<(), Problem> {
    let store = app.gate.store();
    let before = store.pinned(PLATFORM_KEY_PIN).await?.unwrap_or_default();
    if before != body.to {
        if !store.repin(PLATFORM_KEY_PIN, &before, &body.to).await? {
            let detail = "somebody else is changing the platform key; look, and try again";
            return Err(Refusal::new(Reason::RegistryConflict, detail).into());
        }
        let act = Act { who: principal.name(), why: body.why.clone(), at: app.clock.now() };
        let outcome = format!("in the place of {before}");
        let deed = Deed { action: "platform_key.replace", object: body.to.clone(), outcome };
        store.put_on_record(act, deed).await?;
    }
    app.platform.follow(&body.to);
    Ok(())
}
