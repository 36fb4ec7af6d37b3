//! Erasures: what an id said is destroyed, and that it was is on the record (CLM-18).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_model::identity::permission::{Over, Permission, Verdict};
use snavio_model::refusal::{Reason, Refusal};
use snavio_store::Erasure;
use utoipa::{IntoParams, ToSchema};

use super::answer::json;
use super::claims::{id_key, owner};
use super::extract::{JsonBody, Params, page_limit};
use super::holds::said;
use super::queues::act;
use super::{Problem, Shared, whose};
use crate::outlive::Outlive;
use crate::principal::Principal;

/// Pages of the record that are looked through at once.
const PAGES_MAX: usize = 10;
/// When to try again what is on its way, or was moved meanwhile.
const TRIED_AGAIN: Duration = Duration::from_secs(60);

/// What is to be destroyed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ErasureBody {
    /// The tenant whose id it is: the caller's own when not said.
    tenant: Option<String>,
    /// The message's id.
    event_id: String,
    /// For the record.
    why: String,
}

/// That it is destroyed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Erased {
    event_id: String,
    tenant: String,
    erased_at: String,
    /// Whether it was before, and nothing was done now.
    before: bool,
    /// Objects of the archive that may still have it in them: they are about to be deleted or written again. Ask again
    /// until it is 0.
    objects_left: u64,
}

/// Destroys what an id says: payloads, metadata and answers, in the store and in the archive. Hash, reference, status and
/// times stay, and so does the id: it is known, and compared, as before.
#[utoipa::path(post, path = "/v1/erasures", tag = "retention", request_body = ErasureBody,
    responses((status = 200, body = Erased)))]
pub(super) async fn erase(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(body): JsonBody<ErasureBody>,
) -> Result<Response, Problem> {
    let tenant = whose::tenant(&app, &principal, Permission::Resolve, body.tenant.as_deref()).await?;
    let id = id_key(&body.event_id, &tenant)?;
    let act = act(&app, &principal, said(&body.why)?)?;
    let (running, key) = (Arc::clone(&app), id.clone());
    let decides_for = principal.standing().tenant().map(str::to_owned);
    let erase = async move { running.gate.erase(&key, decides_for.as_deref(), act).await };
    let erased = Outlive::new(erase).await?;
    let refusal = match erased.erasure {
        Erasure::Erased { at, before } => {
            let (event_id, tenant) = (id.id.to_string(), id.tenant.to_string());
            let (erased_at, objects_left) = (at.to_string(), erased.objects_left);
            return Ok(json(StatusCode::OK, &Erased { event_id, tenant, erased_at, before, objects_left }));
        }
        Erasure::Held(hold) => Refusal::new(Reason::Held, format!("hold {hold} is on it")),
        Erasure::Disputed(conflict) => {
            let detail = format!(
                "it is the evidence of conflict {conflict}, which another tenant has not resolved yet: ask them to, or an operator"
            );
            Refusal::new(Reason::ConflictState, detail)
        }
        Erasure::Busy => {
            let detail = "it is on its way: erase it once it has ended, or purge its queue";
            Refusal::retry(Reason::InProgress, TRIED_AGAIN, detail)
        }
        Erasure::Moved => {
            Refusal::retry(Reason::Unavailable, TRIED_AGAIN, "it is being moved to the archive")
        }
        Erasure::Unknown => Refusal::new(
            Reason::NotFound,
            "nothing leads from this id to what it said: it was never sent, or its claim is over",
        ),
    };
    Err(refusal.into())
}

/// Which page of them.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct After {
    /// Whose ids; all of those that the caller may see when not said.
    tenant: Option<String>,
    /// The `next` of the page before.
    #[serde(default)]
    after: i64,
    /// Erasures of the page: 100 when not said, 1000 at most.
    limit: Option<usize>,
}

/// Some erasures, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct ErasurePage {
    items: Vec<ErasureDeed>,
    /// The `after` to go on from; it may move on though there are no items.
    next: i64,
}

/// That somebody had something destroyed.
#[derive(Serialize, ToSchema)]
pub(super) struct ErasureDeed {
    number: i64,
    at: String,
    who: String,
    why: String,
    /// Which id of whom.
    what: String,
    /// What was destroyed of it.
    outcome: String,
}

/// What was destroyed, as it is on record.
#[utoipa::path(get, path = "/v1/erasures", tag = "retention", params(After), responses((status = 200, body = ErasurePage)))]
pub(super) async fn list(
    State(app): State<Shared>,
    principal: Principal,
    Params(page): Params<After>,
) -> Result<Response, Problem> {
    // Whoever may erase sees what was.
    let over = principal.standing().tenant().map_or(Over::Platform, Over::Tenant);
    let permission = match principal.standing().judge(Permission::Resolve, over) {
        Verdict::Allowed => Permission::Resolve,
        Verdict::Forbidden | Verdict::Hidden => Permission::Record,
    };
    let tenant = owner(&app, &principal, permission, page.tenant.as_deref()).await?;
    // "<id> of <tenant>", and a tenant's name has no spaces.
    let is_meant = |object: &str| {
        tenant.as_ref().is_none_or(|it| object.rsplit_once(" of ").is_some_and(|(_, of)| of == it))
    };
    let limit = page_limit(page.limit)?;
    let (mut items, mut next) = (Vec::new(), page.after);
    for _ in 0..PAGES_MAX {
        let entries = app.gate.store().audit(Serial(next), bounds::PAGE_MAX).await?;
        for entry in &entries {
            if items.len() >= limit {
                break;
            }
            next = entry.number.0;
            if entry.action == "claim.erase" && is_meant(&entry.object) {
                items.push(ErasureDeed {
                    number: entry.number.0,
                    at: entry.act.at.to_string(),
                    who: entry.act.who.clone(),
                    why: entry.act.why.clone(),
                    what: entry.object.clone(),
                    outcome: entry.outcome.clone(),
                });
            }
        }
        if items.len() >= limit || entries.len() < bounds::PAGE_MAX {
            break;
        }
    }
    Ok(json(StatusCode::OK, &ErasurePage { items, next }))
}
