//! The changelog: who changed what, when and why (REG-5).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use snavio_model::bounds;
use snavio_model::identity::permission::{Over, Permission, Standing, Verdict};
use snavio_model::registry::{Change, Entry, Kind};
use utoipa::{IntoParams, ToSchema};

use super::super::answer::json;
use super::super::extract::{Params, page_limit};
use super::super::{App, Problem, Shared};
use super::shown;
use crate::principal::{Principal, forbidden, is_of};

/// Which part of the changelog.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Since {
    /// Changes after this version.
    #[serde(default)]
    since: i64,
    /// Changes of the page: 100 when not said, 1000 at most.
    limit: Option<usize>,
}

/// Some changes, oldest first.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Changes {
    items: Vec<Changed>,
    /// The `since` to go on from; the one asked for at the end.
    next: i64,
}

/// One change.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Changed {
    version: i64,
    at: String,
    who: String,
    why: String,
    kind: Kind,
    name: String,
    #[schema(value_type = Option<Entry>)]
    before: Option<Value>,
    #[schema(value_type = Option<Entry>)]
    after: Option<Value>,
}

/// The changelog after a version, as far as it is about what the caller's tenant owns.
#[utoipa::path(get, path = "/v1/registry/changes", tag = "registry", params(Since),
    responses((status = 200, body = Changes)))]
pub(in crate::http) async fn since(
    State(app): State<Shared>,
    principal: Principal,
    Params(since): Params<Since>,
) -> Result<Response, Problem> {
    let limit = page_limit(since.limit)?;
    let (changes, next) = page(&app, &principal, since.since, limit).await?;
    let standing = principal.standing();
    let items = changes.into_iter().map(|change| changed(standing, change)).collect();
    Ok(json(StatusCode::OK, &Changes { items, next }))
}

/// The next changes that the caller may see, and where to go on. Others' are passed over in large steps, and only so
/// far: the rest is for the next request.
async fn page(
    app: &App,
    principal: &Principal,
    mut since: i64,
    limit: usize,
) -> Result<(Vec<Change>, i64), Problem> {
    let standing = principal.standing();
    let over = standing.tenant().map_or(Over::Platform, Over::Tenant);
    if standing.judge(Permission::Record, over) != Verdict::Allowed {
        return Err(forbidden("your role does not show who did what").into());
    }
    let step = if standing.tenant().is_none() { limit } else { bounds::PAGE_MAX };
    let (mut seen, mut looked_at) = (Vec::new(), 0);
    loop {
        let changes = app.gate.store().changes_since(since, step).await?;
        let is_last = changes.len() < step;
        looked_at += changes.len();
        since = changes.last().map_or(since, |change| change.version);
        seen.extend(changes.into_iter().filter(|change| standing.sees_change(change)));
        if seen.len() >= limit {
            seen.truncate(limit);
            let next = seen.last().map_or(since, |change| change.version);
            return Ok((seen, next));
        }
        if is_last || looked_at >= bounds::CHANGES_LOOKED_AT_MAX {
            return Ok((seen, since));
        }
    }
}

fn changed(standing: Standing<'_>, change: Change) -> Changed {
    let (who, why) = told(standing, &change);
    let seen = |entry: &Entry| shown(&standing.view(entry));
    Changed {
        version: change.version,
        at: change.at.to_string(),
        before: change.before.as_ref().map(seen),
        after: change.after.as_ref().map(seen),
        who,
        why,
        kind: change.key.kind,
        name: change.key.name,
    }
}

/// Who made a change, and why. Who of another tenant asked for a grant or withdrew that is told as the tenant, and
/// their reason is their own: to the owner they speak by the request's purpose (REG-8).
fn told(standing: Standing<'_>, change: &Change) -> (String, String) {
    if let Some(Entry::GrantRequest(it)) = change.after.as_ref().or(change.before.as_ref()) {
        let asking = it.source.tenant();
        if !standing.reads(asking) && is_of(&change.who, asking) {
            return (asking.to_owned(), String::new());
        }
    }
    (change.who.clone(), change.why.clone())
}
