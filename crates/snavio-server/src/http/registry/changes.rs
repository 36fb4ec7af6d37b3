//! The changelog: who changed what, when and why (REG-5).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use snavio_model::registry::{Change, Entry, Kind};
use utoipa::{IntoParams, ToSchema};

use super::super::answer::json;
use super::super::extract::{Params, page_limit};
use super::super::{Problem, Shared};
use super::shown;
use crate::principal::Principal;

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
    /// The `since` to go on from.
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

/// The changelog after a version.
#[utoipa::path(get, path = "/v1/registry/changes", tag = "registry", params(Since),
    responses((status = 200, body = Changes)))]
pub(in crate::http) async fn since(
    State(app): State<Shared>,
    principal: Principal,
    Params(since): Params<Since>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let limit = page_limit(since.limit)?;
    let changes = app.gate.store().changes_since(since.since, limit).await?;
    let next = changes.last().map_or(since.since, |change| change.version);
    let items = changes.into_iter().map(changed).collect();
    Ok(json(StatusCode::OK, &Changes { items, next }))
}

fn changed(change: Change) -> Changed {
    Changed {
        version: change.version,
        at: change.at.to_string(),
        before: change.before.as_ref().map(shown),
        after: change.after.as_ref().map(shown),
        who: change.who,
        why: change.why,
        kind: change.key.kind,
        name: change.key.name,
    }
}
