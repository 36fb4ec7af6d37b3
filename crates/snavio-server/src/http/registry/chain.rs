//! The chain over the changelog, for whoever verifies it (REG-5): its seals, and the changes as they were sealed.
//! The node gives what it has; whoever asks does the verifying.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::bounds;
use snavio_model::identity::permission::Permission;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Evidence, LoggedChange, Seal, Signer as _, Skipped};
use snavio_store::StoreError;
use utoipa::{IntoParams, ToSchema};

use super::super::answer::json;
use super::super::extract::{Params, page_limit, within};
use super::super::{Problem, Shared};
use crate::principal::Principal;

/// Which part of the chain.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct After {
    /// Seals after this number.
    #[serde(default)]
    after: i64,
    /// Seals of the page: 100 when not said, and at most.
    limit: Option<usize>,
}

/// Some seals, oldest first.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Seals {
    items: Vec<Seal>,
    /// The `after` to go on from.
    next: i64,
    /// The registry's version: the changelog must reach it.
    version: i64,
    /// Versions that no change made, because the store was restored.
    skipped: Vec<Skipped>,
    /// What this node's seals are verified with, in hex. An auditor takes it from elsewhere.
    public_key: String,
}

/// The chain after a number.
#[utoipa::path(get, path = "/v1/registry/seals", tag = "audit", params(After),
    responses((status = 200, body = Seals)))]
pub(in crate::http) async fn seals(
    State(app): State<Shared>,
    principal: Principal,
    Params(page): Params<After>,
) -> Result<Response, Problem> {
    principal.may(Permission::Record)?;
    let most = bounds::SEALS_PAGE_MAX;
    let limit = within("limit", page.limit.unwrap_or(most), 1, most)?;
    let version = app.gate.store().version().await?;
    let notes = app.gate.store().notes(Skipped::NOTES).await?;
    let skipped = notes.iter().filter_map(|(name, value)| Skipped::of_note(name, value)).collect();
    let items = app.gate.store().seals(page.after, limit).await.map_err(told)?;
    let next = items.last().map_or(page.after, |seal| seal.number);
    let public_key = app.platform.public_key().to_string();
    Ok(json(StatusCode::OK, &Seals { items, next, version, skipped, public_key }))
}

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

/// Some changes as they are sealed, oldest first.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Evidences {
    items: Vec<Evidence>,
    /// The `since` to go on from.
    next: i64,
}

/// The changelog after a version as it is sealed: each entry as the text that was written, with a digest in the place
/// of its secrets.
#[utoipa::path(get, path = "/v1/registry/evidence", tag = "audit", params(Since),
    responses((status = 200, body = Evidences)))]
pub(in crate::http) async fn evidence(
    State(app): State<Shared>,
    principal: Principal,
    Params(since): Params<Since>,
) -> Result<Response, Problem> {
    principal.may(Permission::Record)?;
    let limit = page_limit(since.limit)?;
    let logged = app.gate.store().logged_since(since.since, limit).await.map_err(told)?;
    let next = logged.last().map_or(since.since, |change| change.version);
    let items = logged.iter().map(LoggedChange::evidence).collect();
    Ok(json(StatusCode::OK, &Evidences { items, next }))
}

/// Whoever verifies is told which row cannot even be read.
fn told(error: StoreError) -> Problem {
    match error {
        damaged @ StoreError::Damaged { .. } => Refusal::new(Reason::Unavailable, damaged.to_string()).into(),
        error => error.into(),
    }
}
