//! Every decision that was taken on a message, as far as its record is kept (PIP-11).

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json as document};
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::id::{MessageId, Serial};
use snavio_model::identity::permission::Permission;
use snavio_model::message::Message;
use snavio_model::ordering::{EntityRecord, Mode, Place};
use snavio_model::telemetry::StoredRecord;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::{ClaimLookUp, HeldDelivery, StoreError, StoredClaim, Use};
use utoipa::ToSchema;

use super::answer::json;
use super::claims::{id_key, seen_claims};
use super::conflicts::is_concerned;
use super::entities::bound;
use super::extract::{Params, Segments};
use super::whose::{self, Whose};
use super::{App, Problem, Shared};
use crate::principal::Principal;

/// Records of a tenant's telemetry that are looked through for an id, from the newest on.
const RECORDS_MAX: usize = 50_000;

/// The newest messages of a tenant that are looked through for an id which no claim leads from, and as many at once.
const MESSAGES_MAX: usize = 10_000;

/// What was decided, in the order of time.
#[derive(Serialize, ToSchema)]
pub(super) struct Explained {
    id: String,
    tenant: String,
    steps: Vec<Step>,
    /// Whether telemetry is longer than what is looked through, from its newest: what was refused long ago may be missing.
    searched_in_part: bool,
    /// Whether no claim is kept under the id, and there are more messages than the newest 10,000 of its tenant, which were
    /// looked through for it: one that was taken before may be missing.
    messages_searched_in_part: bool,
}

/// One decision.
#[derive(Serialize, ToSchema)]
pub(super) struct Step {
    at: String,
    /// `shield`, `fast`, `slow`, `delivery`, `processing`, `conflict` or `archive`.
    stage: &'static str,
    decision: String,
    /// What it was based on.
    #[schema(value_type = Object)]
    basis: Value,
}

fn step(at: impl ToString, stage: &'static str, decision: impl Into<String>, basis: Value) -> Step {
    Step { at: at.to_string(), stage, decision: decision.into(), basis }
}

/// Every decision on a message of the caller's tenant, accepted or refused, with what each was based on.
#[utoipa::path(get, path = "/v1/messages/{id}/explain", tag = "messages", params(("id" = String, Path), Whose),
    responses((status = 200, body = Explained)))]
pub(super) async fn explain(
    State(app): State<Shared>,
    principal: Principal,
    Segments(id): Segments<String>,
    Params(whose): Params<Whose>,
) -> Result<Response, Problem> {
    let tenant = whose::tenant(&app, &principal, Permission::Read, whose.tenant.as_deref()).await?;
    let key = id_key(&id, &tenant)?;
    let (mut steps, searched_in_part) = told(&app, &key).await?;
    if let Principal::Service(caller) = &principal {
        steps.retain(|it| it.basis["source"] == caller.service.as_str());
    }
    let look_up = ClaimLookUp {
        id: key.id.clone(),
        senders: vec![key.tenant.clone()],
        parties: Vec::new(),
        destination: None,
        service: None,
    };
    let claims = seen_claims(&app, &principal, &look_up).await?;
    let mut archived = Archived::default();
    for claim in &claims {
        of_claim(&app, claim, &mut archived, &mut steps).await?;
    }
    let (taken, messages_searched_in_part) = match claims.is_empty() {
        true => unclaimed(&app, &key).await?,
        false => (Vec::new(), false),
    };
    let is_own = |it: &&Use| match &principal {
        Principal::Service(caller) => it.source == caller.service,
        Principal::Operator | Principal::Person(_) => true,
    };
    steps.extend(taken.iter().filter(is_own).map(of_unclaimed));
    let conflicts = app.gate.store().conflicts_of(&key, None).await?;
    for conflict in conflicts.into_iter().filter(|it| is_concerned(&app, &principal, it)) {
        let basis = document!({
            "conflict_id": conflict.id, "original_hash": conflict.original_hash.to_string(),
            "conflicting_hash": conflict.hash.to_string(), "dead_letter": conflict.dead_letter,
            "count": conflict.count, "state": conflict.state,
        });
        let decision = format!("a conflict at {}: the id means something else", conflict.destination);
        steps.push(step(conflict.flagged_at, "conflict", decision, basis));
    }
    steps.sort_by(|one, other| one.at.cmp(&other.at));
    let (id, tenant) = (key.id.to_string(), key.tenant.to_string());
    let explained = Explained { id, tenant, steps, searched_in_part, messages_searched_in_part };
    Ok(json(StatusCode::OK, &explained))
}

/// Messages that were taken under an id which no claim leads from (it is over, or none was made), among the newest of its
/// tenant; and whether there are others. Messages have no index by their id.
async fn unclaimed(app: &App, key: &IdKey) -> Result<(Vec<Use>, bool), StoreError> {
    let (mut taken, mut before, mut left) = (Vec::new(), Serial(i64::MAX), MESSAGES_MAX);
    loop {
        let page =
            app.gate.store().uses(key.tenant.as_str(), before, left.clamp(1, bounds::PAGE_MAX)).await?;
        let Some(oldest) = page.last() else { return Ok((taken, false)) };
        if left == 0 {
            return Ok((taken, true));
        }
        before = oldest.number;
        left = left.saturating_sub(page.len());
        taken.extend(page.into_iter().filter(|it| it.id == key.id));
    }
}

fn of_unclaimed(used: &Use) -> Step {
    let basis = document!({
        "source": used.source, "target": used.target, "name": used.name, "key_version": used.key_version,
        "registry_version": used.registry_version, "correlation_id": used.correlation.as_str(),
        "message": used.number, "claim": null,
    });
    let decision = format!("granted, and taken as {} {}; no claim of it is kept", used.target, used.name);
    step(used.settled_at, "fast", decision, basis)
}

/// What telemetry tells of an id: refusals and duplicates, dead letters and late reports. That it was accepted is its
/// claim's to tell.
async fn told(app: &App, key: &IdKey) -> Result<(Vec<Step>, bool), StoreError> {
    let told = app.gate.store().told_of(key, RECORDS_MAX).await?;
    let is_it = |record: &StoredRecord| {
        ["command_id", "event_id"]
            .iter()
            .any(|it| record.body.get(*it).is_some_and(|id| id == key.id.as_str()))
    };
    let told_step = |record: StoredRecord| {
        let (stage, decision) = match record.kind.rsplit('.').next() {
            Some("duplicate") => ("slow", "seen before: nothing was dispatched"),
            Some("invalid") => ("shield", "refused: the message itself is at fault"),
            Some("failed") if record.body.contains_key("dead_letter_reason") => {
                ("delivery", "became a dead letter")
            }
            Some("failed") => ("fast", "refused: by who sent it, or the state of things"),
            Some("fenced") => ("processing", "a late report was refused"),
            Some("erased") => ("archive", "what it said was destroyed"),
            _ => ("slow", "was told of"),
        };
        let mut basis = Value::Object(record.body);
        basis["type"] = record.kind.into();
        step(record.at, stage, decision, basis)
    };
    Ok((told.records.into_iter().filter(is_it).map(told_step).collect(), told.is_part))
}

/// What a claim tells: by what its message was judged, and what became of the work.
async fn of_claim(
    app: &App,
    stored: &StoredClaim,
    archived: &mut Archived,
    steps: &mut Vec<Step>,
) -> Result<(), StoreError> {
    let StoredClaim { key, claim, held, .. } = stored;
    steps.extend(of_routing(app, stored, archived).await?);
    let basis = document!({
        "message": claim.message, "expires_at": claim.expires_at.to_string(),
        "hash": stored.hash.map(|it| it.to_string()), "repeats": stored.repeats,
        "last_seen_at": stored.last_seen_at.map(|it| it.to_string()),
    });
    let decision = format!("the id was claimed for {}", key.destination);
    steps.push(step(claim.first_seen_at, "slow", decision, basis));
    steps.extend(of_order(app, stored).await?);
    let Some(progress) = &claim.progress else { return Ok(()) };
    let (lease, due) = match held {
        Some(HeldDelivery::Leased { fence, attempt, until }) => {
            (Some(document!({ "fence": fence, "attempt": attempt, "until": until.to_string() })), None)
        }
        Some(HeldDelivery::Due(at)) => (None, Some(at.to_string())),
        None => (None, None),
    };
    let basis = document!({
        "delivery_id": progress.delivery, "fence": progress.fence, "attempts": progress.attempts,
        "reference": progress.reference, "error": progress.error, "lease": lease, "due_at": due,
    });
    let at = progress.ended_at.unwrap_or(claim.first_seen_at);
    let decision = format!("it is {}", stored.status(app.clock.now()).as_str());
    steps.push(step(at, "processing", decision, basis));
    Ok(())
}

/// What was read from the archive by what its messages were let in: each is asked for once, and nothing more once it is away
/// (CLM-17).
#[derive(Default)]
struct Archived {
    read: HashMap<Serial, Option<(Timestamp, Value)>>,
    is_away: bool,
}

impl Archived {
    /// When a message was settled and by what it was let in, if it is there.
    async fn find(&mut self, app: &App, id: &IdKey, message: Serial) -> Option<&(Timestamp, Value)> {
        if !self.is_away && !self.read.contains_key(&message) {
            match app.gate.archived_message(id, message).await {
                Ok(found) => {
                    self.read.insert(message, found.map(|it| (it.settled_at, of_archived(&it.message))));
                }
                Err(trouble) => {
                    let error = &trouble as &dyn std::error::Error;
                    tracing::warn!(error, "by what a message was let in could not be read from the archive");
                    self.is_away = true;
                }
            }
        }
        self.read.get(&message)?.as_ref()
    }
}

fn of_archived(message: &Message) -> Value {
    document!({
        "source": message.source, "target": message.target, "name": message.name,
        "key_version": message.key_version, "registry_version": message.registry_version,
        "correlation_id": message.correlation.as_str(), "archived": true,
    })
}

/// By what a claim's message was let in, wherever it is now.
async fn of_routing(
    app: &App,
    stored: &StoredClaim,
    archived: &mut Archived,
) -> Result<Option<Step>, StoreError> {
    let StoredClaim { key, claim, .. } = stored;
    let decision = format!("granted, and routed to {}", key.destination);
    let before = Serial(claim.message.0 + 1);
    let uses = app.gate.store().uses(key.tenant.as_str(), before, 1).await?;
    if let Some(used) = uses.first().filter(|it| it.number == claim.message) {
        let basis = document!({
            "source": used.source, "target": used.target, "name": used.name, "key_version": used.key_version,
            "registry_version": used.registry_version, "correlation_id": used.correlation.as_str(),
        });
        return Ok(Some(step(used.settled_at, "fast", decision, basis)));
    }
    if stored.archived_at.is_none() {
        return Ok(None);
    }
    let id = IdKey { id: key.id.clone(), tenant: key.tenant.clone() };
    if let Some((at, basis)) = archived.find(app, &id, claim.message).await {
        return Ok(Some(step(*at, "fast", decision, basis.clone())));
    }
    Ok(archived.is_away.then(|| {
        let decision = format!("{decision}; by what is in the archive, which cannot be read now");
        let basis = document!({ "source": claim.source, "archived": true });
        step(claim.first_seen_at, "fast", decision, basis)
    }))
}

/// Where its number stands in the order of its entity, as that is now: what it was then is told in the answer only.
async fn of_order(app: &App, stored: &StoredClaim) -> Result<Option<Step>, StoreError> {
    let StoredClaim { key, claim, .. } = stored;
    let Some(route) = bound(app, &key.destination).filter(|it| it.route.order.is_some()) else {
        return Ok(None);
    };
    // What is damaged keeps nobody from looking at the rest.
    let found = match app.gate.store().message(key.tenant.as_str(), claim.message).await {
        Err(StoreError::Damaged { .. }) => None,
        read => read?,
    };
    let Some(place) = found.and_then(|it| app.gate.place(&it.message, &route.route)) else { return Ok(None) };
    let known = app.gate.store().entity(&place.key, app.clock.now()).await.unwrap_or_default();
    let (decision, basis) = in_order(&place, known.as_ref(), &key.id);
    Ok(Some(step(claim.first_seen_at, "slow", format!("{decision}, at {}", key.destination), basis)))
}

fn in_order(place: &Place, known: Option<&EntityRecord>, id: &MessageId) -> (String, Value) {
    let Place { key, number, rules, .. } = place;
    let mut basis = document!({
        "sequence": { "entity": key.entity, "scope": &*key.scope, "number": number, "mode": rules.mode },
    });
    let Some(EntityRecord { state, .. }) = known else {
        return (format!("number {number} of an entity of which nothing is known now"), basis);
    };
    let waits = state.waiting.iter().find(|it| it.id == *id);
    let parked_at = state.parked_at().filter(|_| state.holds_back(*number));
    basis["sequence"]["last"] = state.last.into();
    basis["sequence"]["waits_until"] = waits.map(|it| it.until.to_string()).into();
    basis["sequence"]["parked_at"] = parked_at.into();
    let decision = match (waits, parked_at) {
        (Some(_), _) => format!("waiting: number {number}, and the last is {}", state.last),
        (None, Some(parked)) => {
            format!(
                "number {number}; its entity is parked at {parked}, which failed for good: what was not handed out waits"
            )
        }
        (None, None) if *number < state.last && rules.mode == Mode::Skip => {
            format!("number {number}, and the last is {}: skipped if it came after a later one", state.last)
        }
        (None, None) => format!("number {number}, and the last is {}", state.last),
    };
    (decision, basis)
}
