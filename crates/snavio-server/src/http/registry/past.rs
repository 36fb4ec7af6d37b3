//! The registry as it was: shown, compared, and brought back as new changes (REG-5).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use snavio_model::bounds;
use snavio_model::identity::permission::Permission;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Author, Change, Differences, Entry, EntryKey, Kind, Registry, Rollback, Wish};
use snavio_model::time::Clock;
use utoipa::{IntoParams, ToSchema};

use super::super::answer::{json, no_store};
use super::super::extract::{JsonBody, Params, Segments};
use super::super::unknown::kind as kind_of;
use super::super::{App, Problem, Shared};
use super::file::{Step, step, steps};
use super::list::{page, parse};
use super::push::{NewPushSecret, with_secret};
use super::services::{Credentials, with_credentials};
use super::{ATTEMPTS_MAX, change, planned};
use crate::principal::Principal;

/// Which part of the registry.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Part {
    /// Only entries of this kind.
    #[param(value_type = Option<Kind>)]
    kind: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// Entries of the page: 100 when not said, 1000 at most.
    limit: Option<usize>,
}

/// A page of what was registered.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct PastPage {
    /// The version that was asked for.
    version: i64,
    #[schema(value_type = Vec<Entry>)]
    items: Vec<Value>,
    /// Where the next page begins; missing on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What was registered at a version.
#[utoipa::path(get, path = "/v1/registry/at/{version}", tag = "audit", params(("version" = i64, Path), Part),
    responses((status = 200, body = PastPage)))]
pub(in crate::http) async fn at(
    State(app): State<Shared>,
    principal: Principal,
    Segments(version): Segments<i64>,
    Params(part): Params<Part>,
) -> Result<Response, Problem> {
    principal.may(Permission::Record)?;
    let kind = part.kind.as_deref().map(kind_of).transpose()?;
    let first = |kind| EntryKey { kind, name: String::new() };
    let after = part.after.as_deref().map(parse).transpose()?.or(kind.map(first));
    let registry = app.gate.registry();
    let past = differences(&app, version, registry.version()).await?.undo(&registry, version);
    let (items, next) = page(&past, &principal, kind, after.as_ref(), part.limit)?;
    Ok(json(StatusCode::OK, &PastPage { version, items, next: next.map(|key| key.to_string()) }))
}

/// Which two versions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Versions {
    /// The earlier one.
    from: i64,
    /// The later one: the registry as it is, when not said.
    to: Option<i64>,
}

/// What differs between two versions.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Compared {
    from: i64,
    to: i64,
    /// What has to be done to get from the one to the other.
    changes: Vec<Step>,
}

/// Compares two versions of the registry.
#[utoipa::path(get, path = "/v1/registry/compare", tag = "audit", params(Versions),
    responses((status = 200, body = Compared)))]
pub(in crate::http) async fn compare(
    State(app): State<Shared>,
    principal: Principal,
    Params(versions): Params<Versions>,
) -> Result<Response, Problem> {
    principal.may(Permission::Record)?;
    let from = versions.from;
    let to = versions.to.unwrap_or_else(|| app.gate.registry().version());
    let differences = differences(&app, from, to).await?;
    let changes = differences.iter().map(|(key, before, after)| steps(key, before.as_ref(), after.as_ref()));
    Ok(json(StatusCode::OK, &Compared { from, to, changes: changes.collect() }))
}

/// What shall be brought back.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RollbackBody {
    /// The version to go back to.
    version: i64,
    /// Only say what would change.
    #[serde(default)]
    dry_run: bool,
    /// Why, for the changelog.
    #[serde(default)]
    why: String,
}

/// What going back changed, or would change.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct RolledBack {
    /// The registry's version afterwards: going back is a change like any other.
    version: i64,
    changes: Vec<Step>,
    /// What differs and stays as it is: keys, clients, personal tokens, requests and bans.
    left_alone: Vec<String>,
    /// Of the services that came back: their old keys and clients did not. Shown once.
    credentials: Vec<Credentials>,
    /// Of the routes and subscriptions that push again, and had no secret any more. Shown once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    push_secrets: Vec<NewPushSecret>,
    dry_run: bool,
}

/// Brings the registry back to what it was at a version, as new changes.
///
/// Keys, clients, personal tokens, grant requests and bans stay as they are: what was taken back because it was stolen
/// must not come back by itself. A service that comes back has new credentials, and a route that pushes a new secret.
#[utoipa::path(post, path = "/v1/registry/rollback", tag = "audit", request_body = RollbackBody,
    responses((status = 200, body = RolledBack)))]
pub(in crate::http) async fn roll_back(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(body): JsonBody<RollbackBody>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let why = match body.why.as_str() {
        "" => format!("back to version {}", body.version),
        why => format!("back to version {}: {why}", body.version),
    };
    let (changes, decided) = match body.dry_run {
        true => rehearse(&app, &principal, body.version, why).await?,
        false => make(&app, &principal, body.version, &why).await?,
    };
    let rolled_back = RolledBack {
        version: changes.last().map_or_else(|| app.gate.registry().version(), |change| change.version),
        changes: changes.iter().map(step).collect(),
        left_alone: decided.left_alone,
        credentials: if body.dry_run { Vec::new() } else { decided.credentials },
        push_secrets: if body.dry_run { Vec::new() } else { decided.push_secrets },
        dry_run: body.dry_run,
    };
    Ok(no_store(json(StatusCode::OK, &rolled_back)))
}

/// What is to be said of a rollback besides its changes.
struct Decided {
    left_alone: Vec<String>,
    credentials: Vec<Credentials>,
    push_secrets: Vec<NewPushSecret>,
}

async fn rehearse(
    app: &App,
    principal: &Principal,
    version: i64,
    why: String,
) -> Result<(Vec<Change>, Decided), Problem> {
    let registry = app.gate.registry();
    let differences = differences(app, version, registry.version()).await?;
    let (wishes, decided) = decide(app, &registry, &differences);
    let author = Author { who: principal.name(), why, at: app.clock.now() };
    Ok((planned(app, &registry, wishes, &author).await?, decided))
}

/// Decided on what differs from the registry as it is: if that moves on meanwhile, it is looked through again.
async fn make(
    app: &Shared,
    principal: &Principal,
    version: i64,
    why: &str,
) -> Result<(Vec<Change>, Decided), Problem> {
    for _ in 0..ATTEMPTS_MAX {
        let as_of = app.gate.registry().version();
        let differences = differences(app, version, as_of).await?;
        let decide = |registry: &Registry| match registry.version() == as_of {
            true => {
                let (wishes, decided) = decide(app, registry, &differences);
                (wishes, Some(decided))
            }
            false => (Vec::new(), None),
        };
        if let (changes, Some(decided)) = change(app, principal, why, decide).await? {
            return Ok((changes, decided));
        }
    }
    Err(Refusal::new(Reason::RegistryConflict, "the registry changes too quickly; try again").into())
}

fn decide(app: &App, registry: &Registry, differences: &Differences) -> (Vec<Wish>, Decided) {
    let rollback = Rollback::of(registry, differences);
    let left_alone = rollback.left_alone.iter().map(ToString::to_string).collect();
    let (mut wishes, mut credentials, mut push_secrets) = (Vec::new(), Vec::new(), Vec::new());
    for wish in rollback.wishes {
        match wish {
            Wish::Put(Entry::Service(service)) => {
                let (more, made) = with_credentials(app, registry, service);
                wishes.extend(more);
                credentials.extend(made);
            }
            Wish::Put(Entry::Route(ref route) | Entry::Subscription(ref route)) => {
                // The one that it had went with it, and may be known to somebody by now.
                if let Some((secret, made)) = with_secret(app, registry, route) {
                    wishes.push(secret);
                    push_secrets.push(made);
                }
                wishes.push(wish);
            }
            wish => wishes.push(wish),
        }
    }
    (wishes, Decided { left_alone, credentials, push_secrets })
}

/// What differs between two versions that there are.
async fn differences(app: &App, from: i64, to: i64) -> Result<Differences, Problem> {
    let now = app.gate.registry().version();
    if from < 0 || from > to || to > now {
        let detail = format!("versions are 0 to {now}, the earlier one first");
        return Err(Refusal::new(Reason::InvalidRequest, detail).into());
    }
    let differences = app.gate.differences(from, to, bounds::PAST_CHANGES_MAX).await?;
    let too_many = || {
        let detail = format!("the versions are more than {} changes apart", bounds::PAST_CHANGES_MAX);
        Refusal::new(Reason::InvalidRequest, detail)
    };
    Ok(differences.ok_or_else(too_many)?)
}
