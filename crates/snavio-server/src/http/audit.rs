//! What people did with messages and the store: purges, redrives, restores, moves. What they did with the registry is
//! in its changelog.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::id::Serial;
use snavio_model::identity::permission::Permission;
use snavio_store::AuditEntry;
use utoipa::{IntoParams, ToSchema};

use super::answer::json;
use super::extract::{Params, page_limit};
use super::{Problem, Shared};
use crate::principal::Principal;

/// Which page of the record.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct After {
    /// The `next` of the page before.
    #[serde(default)]
    after: i64,
    /// Deeds of the page: 100 when not said, 1000 at most.
    limit: Option<usize>,
}

/// Some deeds, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Deeds {
    items: Vec<Deed>,
    /// The `after` to go on from.
    next: i64,
}

/// Something that somebody did.
#[derive(Serialize, ToSchema)]
pub(super) struct Deed {
    number: i64,
    at: String,
    who: String,
    why: String,
    /// What was done, for example `queue.purge`.
    action: String,
    /// To what.
    object: String,
    /// What came of it.
    outcome: String,
}

/// What people did, besides changes of the registry.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(After), responses((status = 200, body = Deeds)))]
pub(super) async fn deeds(
    State(app): State<Shared>,
    principal: Principal,
    Params(page): Params<After>,
) -> Result<Response, Problem> {
    principal.may(Permission::Record)?;
    let limit = page_limit(page.limit)?;
    let entries = app.gate.store().audit(Serial(page.after), limit).await?;
    let next = entries.last().map_or(page.after, |entry| entry.number.0);
    Ok(json(StatusCode::OK, &Deeds { items: entries.into_iter().map(deed).collect(), next }))
}

fn deed(entry: AuditEntry) -> Deed {
    Deed {
        number: entry.number.0,
        at: entry.act.at.to_string(),
        who: entry.act.who,
        why: entry.act.why,
        action: entry.action,
        object: entry.object,
        outcome: entry.outcome,
    }
}
