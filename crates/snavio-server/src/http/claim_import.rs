//! Ids that were seen elsewhere, taken over (CLM-10): from then on they are duplicates here.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::bounds;
use snavio_model::claim::{Claim, ClaimKey};
use snavio_model::id::{MessageId, Serial};
use snavio_model::identity::permission::Permission;
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::{Clock, Timestamp};
use utoipa::ToSchema;

use super::answer::json;
use super::claims::{self, Found, LookUp};
use super::extract::{JsonBody, Params, Segments, objects, within};
use super::queues::act;
use super::{Problem, Shared, whose};
use crate::principal::Principal;

/// Ids that were seen elsewhere.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportBody {
    /// The service that sent them, and will go on sending them here.
    source: ServiceName,
    /// Where they went: a route or subscription that claims, for example `tenant/service:name`.
    destination: String,
    /// Up to 1000 of them.
    #[serde(deserialize_with = "objects")]
    items: Vec<SeenId>,
    /// Why, for the record.
    why: String,
}

/// An id, and when it was first seen.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SeenId {
    id: String,
    #[schema(format = DateTime)]
    first_seen_at: String,
}

/// What was taken over.
#[derive(Serialize, ToSchema)]
pub(super) struct Imported {
    /// Ids that are taken from now on.
    imported: usize,
    /// Ids that were taken here already, or whose time is over.
    left_out: usize,
}

/// Takes over ids that were seen elsewhere. A claim counts from when its id was first seen, and is kept for as long as
/// its destination's policy says.
#[utoipa::path(post, path = "/v1/claims/import", tag = "claims", request_body = ImportBody,
    responses((status = 200, body = Imported)))]
pub(super) async fn import(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(body): JsonBody<ImportBody>,
) -> Result<Response, Problem> {
    within("the number of items", body.items.len(), 1, bounds::PAGE_MAX)?;
    let owner = body.destination.split('/').next().unwrap_or_default();
    for tenant in [owner, body.source.tenant()] {
        whose::tenant(&app, &principal, Permission::Manage, Some(tenant)).await?;
    }
    let keep = keep(&app, &body)?;
    let (now, act) = (app.clock.now(), act(&app, &principal, &body.why)?);
    let tenant = TenantName::new(body.source.tenant())
        .map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
    let asked = body.items.len();
    let claims = body.items.into_iter().map(|item| {
        let wrong = |what: &str| {
            let detail = format!("{what} of item {:?} cannot be read", item.id);
            Refusal::new(Reason::InvalidRequest, detail)
        };
        let first_seen_at = Timestamp::parse(&item.first_seen_at).ok_or_else(|| wrong("first_seen_at"))?;
        let key = ClaimKey {
            id: MessageId::asked_for(&item.id).ok_or_else(|| wrong("the id"))?,
            tenant: tenant.clone(),
            destination: body.destination.as_str().into(),
        };
        let claim = Claim {
            source: body.source.clone(),
            message: Serial(0),
            first_seen_at: first_seen_at.min(now),
            expires_at: first_seen_at.min(now).plus(keep),
            hot_until: None,
            progress: None,
        };
        Ok((key, claim))
    });
    let claims = claims.collect::<Result<Vec<_>, Refusal>>()?;
    let live: Vec<_> = claims.into_iter().filter(|(_, claim)| claim.is_live(now)).collect();
    let imported = if live.is_empty() { 0 } else { app.gate.store().import(live, act).await? };
    Ok(json(StatusCode::OK, &Imported { imported, left_out: asked - imported }))
}

/// What became of the id `import`: its path is taken by the call above.
#[utoipa::path(get, path = "/v1/claims/import", tag = "claims", operation_id = "look_up_import", params(LookUp),
    responses((status = 200, body = Found)))]
pub(super) async fn look_up(
    app: State<Shared>,
    principal: Principal,
    asked: Params<LookUp>,
) -> Result<Response, Problem> {
    claims::look_up(app, principal, Segments("import".to_owned()), asked).await
}

/// How long claims at the destination are kept: contents cannot be compared with what is not there.
fn keep(app: &Shared, body: &ImportBody) -> Result<Duration, Refusal> {
    let registry = app.gate.registry();
    let missing = || Refusal::new(Reason::NotFound, "there is no such destination");
    let route = registry.destination(&body.destination).ok_or_else(missing)?;
    // A typo would take the ids for a service that is not there, and from the one that sends them.
    let wrong = |detail: String| Err(Refusal::new(Reason::InvalidRequest, detail));
    if registry.service(body.source.as_str()).is_none() {
        return wrong(format!("there is no service {}: register it first", body.source));
    }
    if let Some(publisher) = route.route.events_of.as_ref().filter(|it| **it != body.source) {
        return wrong(format!("it is a subscription to events of {publisher}: no other service sends to it"));
    }
    let policy = route.route.claim;
    match policy.keep().filter(|_| policy.compares().is_none() && !route.route.processing.is_tracked()) {
        Some(keep) => Ok(keep),
        None => {
            let detail = format!(
                "its policy is {}: only ids can be taken over, so the policy must be seen or strict, on a plain queue",
                policy.name()
            );
            Err(Refusal::new(Reason::InvalidRequest, detail))
        }
    }
}
