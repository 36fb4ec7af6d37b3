//! Entities whose messages are ordered: how far each is, and what a person does about it (ORD-6, ORD-7).

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::bounds::ENTITY_SENDERS_MAX;
use snavio_model::claim::IdKey;
use snavio_model::id::MessageId;
use snavio_model::identity::permission::Permission;
use snavio_model::name::TenantName;
use snavio_model::ordering::{EntityKey, EntityState, Gap, Mode, NumberKind};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::BoundRoute;
use snavio_model::time::Clock;
use snavio_store::{Reset, StoredClaim};
use utoipa::{IntoParams, ToSchema};

use super::answer::json;
use super::extract::{JsonBody, Params, Segments};
use super::queues::act;
use super::unknown::{destinations, unknown};
use super::{App, Problem, Shared, whose};
use crate::principal::{Principal, forbidden};

/// Which entity of that name.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// The route or subscription, as claims name it: `tenant/service:name`; or what several of one target count together
    /// as: `tenant/service#scope`.
    destination: String,
    /// The tenant whose messages they are: the destination's own when not said.
    of: Option<String>,
    /// The entity in place of the path's, which is then not looked at: some names are none of a path's, as `..`.
    entity: Option<String>,
}

/// How far an entity is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Entity)]
pub(super) struct EntityDocument {
    entity: String,
    /// The route, or what several of one target count together as.
    scope: String,
    /// The tenant whose messages they are.
    tenant: String,
    /// The highest number that was accepted.
    last: i64,
    /// The message that had it. Of services, only its sender and its recipients see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_id: Option<String>,
    /// What its numbers count: `sequence` or `time`.
    counts: &'static str,
    /// The mode that it was last judged by; nothing once it is forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    /// Numbers below the last that have not come, as far as they are tracked.
    gaps: Vec<Gap>,
    /// How many numbers these gaps have.
    missing: u64,
    /// How many more were missing when their gaps ceased to be tracked, because there were too many. Which of them have come
    /// since is not known.
    untracked: u64,
    /// Messages that wait for those before them, lowest first.
    waiting: Vec<WaitingDocument>,
    /// Whether its completion was accepted, and nothing since.
    closed: bool,
    /// The number that failed for good, behind which later ones queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    parked_at: Option<i64>,
    /// From when on nothing is known of it.
    expires_at: String,
}

/// A message that waits for those before it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WaitingMessage)]
pub(super) struct WaitingDocument {
    number: i64,
    /// Of services, only its sender and its recipients see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    until: String,
}

impl EntityDocument {
    fn new(key: &EntityKey, state: &EntityState, mode: Option<Mode>, ids: &VisibleIds) -> Self {
        let waiting = state.waiting.iter().map(|waiting| WaitingDocument {
            number: waiting.number,
            event_id: ids.show(&waiting.id),
            until: waiting.until.to_string(),
        });
        Self {
            entity: key.entity.clone(),
            scope: key.scope.to_string(),
            tenant: key.tenant.to_string(),
            last: state.last,
            last_id: ids.show(&state.last_id),
            counts: match state.kind {
                NumberKind::Sequence => "sequence",
                NumberKind::Time => "time",
            },
            mode,
            gaps: state.gaps.open().to_vec(),
            missing: state.gaps.missing(),
            untracked: state.gaps.untracked(),
            waiting: waiting.collect(),
            closed: state.closed,
            parked_at: state.parked_at(),
            expires_at: state.expires_at.to_string(),
        }
    }
}

/// How far an entity is: its last number, what is missing, what waits, and whether it is closed or parked.
#[utoipa::path(get, path = "/v1/entities/{entity}", tag = "order", params(("entity" = String, Path, description = "The entity, as its messages name it"), Which),
    responses((status = 200, body = EntityDocument)))]
pub(super) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments(entity): Segments<String>,
    Params(which): Params<Which>,
) -> Result<Response, Problem> {
    for key in keys(&app, &principal, Permission::Read, entity, &which).await? {
        if let Some(found) = app.gate.store().entity(&key, app.clock.now()).await? {
            let ids = visible_ids(&app, &principal, &key, &found.state).await?;
            let document = EntityDocument::new(&key, &found.state, Some(found.rules.mode), &ids);
            return Ok(json(StatusCode::OK, &document));
        }
    }
    if bound(&app, &which.destination).is_none() && !which.destination.contains('#') {
        let registry = app.gate.registry();
        return Err(unknown("destination", &which.destination, destinations(&registry, &principal)).into());
    }
    Err(nothing().into())
}

/// Why it is done.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetBody {
    /// For the record.
    why: String,
    /// Whether it is forgotten though deliveries of it are there: messages that are numbered anew are handed out amid them,
    /// by their numbers.
    #[serde(default)]
    force: bool,
}

/// What was known of an entity.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it tells readers of the description what to expect")]
pub(super) enum ResetAnswer {
    Known(EntityDocument),
    Damaged(DamagedDocument),
}

/// An entity of which nothing is known any more, and of which what was known could not be trusted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DamagedEntity)]
pub(super) struct DamagedDocument {
    entity: String,
    scope: String,
    tenant: String,
    /// True.
    damaged: bool,
}

/// Forgets an entity, and says what was known of it, or that it was damaged: its next message is the first. What waits is
/// handed out in order, and what is parked goes on. While deliveries of it are there, only with `force`.
#[utoipa::path(post, path = "/v1/entities/{entity}/reset", tag = "order", params(("entity" = String, Path, description = "The entity, as its messages name it"), Which),
    request_body = ResetBody, responses((status = 200, body = inline(ResetAnswer))))]
pub(super) async fn reset(
    State(app): State<Shared>,
    principal: Principal,
    Segments(entity): Segments<String>,
    Params(which): Params<Which>,
    JsonBody(body): JsonBody<ResetBody>,
) -> Result<Response, Problem> {
    let keys = keys(&app, &principal, Permission::Mend, entity, &which).await?;
    let act = act(&app, &principal, &body.why)?;
    for key in keys {
        return Ok(match app.gate.store().reset_entity(&key, body.force, act.clone()).await? {
            Reset::Unknown => continue,
            Reset::Forgotten(was) => {
                json(StatusCode::OK, &EntityDocument::new(&key, &was, None, &VisibleIds::All))
            }
            Reset::Damaged => {
                let (scope, tenant) = (key.scope.to_string(), key.tenant.to_string());
                json(StatusCode::OK, &DamagedDocument { entity: key.entity, scope, tenant, damaged: true })
            }
            Reset::Busy { deliveries } => {
                let detail = format!(
                    "{deliveries} deliveries of it are there, amid which messages that are numbered anew would be handed \
                     out: wait until they have ended, or say force"
                );
                return Err(Refusal::new(Reason::RegistryConflict, detail).into());
            }
        });
    }
    Err(nothing().into())
}

/// What an entity is to go on behind.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SkipBody {
    /// The number that it is parked at.
    number: i64,
    /// For the record.
    why: String,
}

/// Lets the later messages of an entity go on that is parked behind one that failed for good. That one stays a dead letter.
#[utoipa::path(post, path = "/v1/entities/{entity}/skip", tag = "order", params(("entity" = String, Path, description = "The entity, as its messages name it"), Which),
    request_body = SkipBody, responses((status = 200, body = EntityDocument)))]
pub(super) async fn skip(
    State(app): State<Shared>,
    principal: Principal,
    Segments(entity): Segments<String>,
    Params(which): Params<Which>,
    JsonBody(body): JsonBody<SkipBody>,
) -> Result<Response, Problem> {
    let keys = keys(&app, &principal, Permission::Mend, entity, &which).await?;
    let act = act(&app, &principal, &body.why)?;
    for key in keys {
        if let Some(skipped) = app.gate.store().skip_parked(&key, body.number, act.clone()).await? {
            let state = skipped.map_err(|not| Refusal::new(Reason::RegistryConflict, not.to_string()))?;
            return Ok(json(StatusCode::OK, &EntityDocument::new(&key, &state, None, &VisibleIds::All)));
        }
    }
    Err(nothing().into())
}

/// The ids of messages that a caller sees in an entity. An id is enough to send a guess at its content.
enum VisibleIds {
    All,
    Some(HashSet<MessageId>),
}

impl VisibleIds {
    fn show(&self, id: &MessageId) -> Option<String> {
        let is_visible = match self {
            Self::All => true,
            Self::Some(ids) => ids.contains(id),
        };
        is_visible.then(|| id.to_string())
    }
}

/// People and the service that receives the messages see all ids; another service of its tenant sees those that it sent,
/// among the last one and the first that wait: each costs a query.
async fn visible_ids(
    app: &App,
    principal: &Principal,
    key: &EntityKey,
    state: &EntityState,
) -> Result<VisibleIds, Problem> {
    let Principal::Service(caller) = principal else { return Ok(VisibleIds::All) };
    if recipient(&key.scope) == Some(caller.service.as_str()) {
        return Ok(VisibleIds::All);
    }
    let mut ids = HashSet::new();
    if key.tenant.as_str() != caller.service.tenant() {
        return Ok(VisibleIds::Some(ids));
    }
    // Routes that order have claims, and those last as long as their entity. A claim elsewhere says nothing of these
    // messages: anyone can make one, with a guess at their ids.
    let is_here = |destination: &str| {
        *destination == *key.scope
            || scoped(app, &key.tenant, destination, &key.entity)
                .is_some_and(|scoped| scoped.scope == key.scope)
    };
    let shown = [&state.last_id].into_iter().chain(state.waiting.iter().map(|waiting| &waiting.id));
    for id in shown.take(ENTITY_SENDERS_MAX) {
        let claimed = IdKey { id: id.clone(), tenant: key.tenant.clone() };
        let claims = app.gate.store().claims_of(&claimed, app.clock.now()).await?;
        let is_own =
            |stored: &StoredClaim| stored.claim.source == caller.service && is_here(&stored.key.destination);
        if claims.iter().any(is_own) {
            ids.insert(claimed.id);
        }
    }
    Ok(VisibleIds::Some(ids))
}

/// The service that receives what a destination or scope names.
fn recipient(destination: &str) -> Option<&str> {
    destination.split([':', '#']).next()
}

fn nothing() -> Refusal {
    Refusal::new(Reason::NotFound, "nothing is known of such an entity")
}

/// The entities that may be meant, if the caller may do this to what the destination's tenant has: the first of which
/// anything is known is.
async fn keys(
    app: &App,
    principal: &Principal,
    permission: Permission,
    entity: String,
    which: &Which,
) -> Result<Vec<EntityKey>, Problem> {
    let owner = which.destination.split('/').next().unwrap_or_default();
    whose::tenant(app, principal, permission, Some(owner)).await?;
    if let Principal::Service(caller) = principal
        && permission == Permission::Mend
        && recipient(&which.destination) != Some(caller.service.as_str())
    {
        return Err(forbidden("only the service whose messages they are may do this").into());
    }
    if let Some(of) = &which.of {
        whose::known(app, principal, of).await?;
    }
    let of = which.of.as_deref().unwrap_or(owner);
    let tenant = TenantName::new(of).map_err(|it| Refusal::new(Reason::InvalidName, it.to_string()))?;
    let entity = which.entity.clone().unwrap_or(entity);
    // What a route counted by itself before it had a scope is known by its own name still.
    let own = EntityKey { tenant: tenant.clone(), scope: which.destination.as_str().into(), entity };
    let scoped = scoped(app, &tenant, &which.destination, &own.entity).filter(|it| *it != own);
    Ok(scoped.into_iter().chain([own]).collect())
}

/// A route that counts together with others is asked for by its own name, too.
fn scoped(app: &App, tenant: &TenantName, destination: &str, entity: &str) -> Option<EntityKey> {
    let route = bound(app, destination)?;
    Some(EntityKey::new(tenant, &route.route, route.route.order.as_ref()?, entity))
}

/// The route or subscription that claims name so.
pub(super) fn bound(app: &App, destination: &str) -> Option<Arc<BoundRoute>> {
    let registry = app.gate.registry();
    let service = destination.split(':').next().and_then(|it| registry.service(it));
    let mut routes = service.iter().flat_map(|it| it.routes().chain(it.subscriptions()));
    routes.find(|it| *it.destination == *destination).map(Arc::clone)
}
