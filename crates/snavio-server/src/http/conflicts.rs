//! Conflicts: ids that were used for two contents, side by side, and what people make of them (CLM-12 to CLM-14).

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::claim::conflict::{Conflict, ConflictState, Immovable, Move};
use snavio_model::id::{MessageId, Serial};
use snavio_model::identity::permission::{Over, Permission, Verdict};
use snavio_model::json::{Difference, differences};
use snavio_model::name::TenantName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::{Clock, Timestamp};
use snavio_store::{Act, LoggedMessage, StoreError, StoredClaim, StoredConflict};
use utoipa::{IntoParams, ToSchema};

use super::answer::json;
use super::extract::{JsonBody, Params, Segments, page_limit};
use super::message::MessageDocument;
use super::queues::does;
use super::unknown::unknown_word;
use super::{App, Problem, Shared, whose};
use crate::principal::{Principal, forbidden};

/// Which conflicts.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Whose; all of those that the caller may see when not said.
    #[param(value_type = Option<String>)]
    tenant: Option<TenantName>,
    /// Only those in this state.
    #[param(value_type = Option<ConflictState>)]
    state: Option<String>,
    /// Those after this id.
    #[serde(default)]
    after: i64,
    /// Conflicts of the page: 100 when not said, 1000 at most.
    limit: Option<usize>,
}

/// Some conflicts, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct ConflictPage {
    items: Vec<ConflictDocument>,
    /// The `after` to go on from, also where nothing of a page was the caller's; the end is where it stays the same.
    next: i64,
}

/// An id that was used for two contents.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Conflict)]
pub(super) struct ConflictDocument {
    conflict_id: i64,
    event_id: String,
    /// The tenant whose id it is.
    tenant: String,
    /// Whose affair it is: the target's tenant.
    owner: String,
    source: String,
    destination: String,
    original_domain_payload_hash: String,
    conflicting_domain_payload_hash: String,
    conflict_state: ConflictState,
    flagged_at: String,
    flagged_by: &'static str,
    last_seen_at: String,
    /// How often it was sent.
    count: u64,
    /// What people wrote, newest last.
    resolution_notes: String,
    /// The dead letter with the conflicting message.
    dlq_message_ref: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    compensating_event_id: Option<String>,
}

impl From<&Conflict> for ConflictDocument {
    fn from(it: &Conflict) -> Self {
        Self {
            conflict_id: it.id.0,
            event_id: it.event_id.to_string(),
            tenant: it.tenant.to_string(),
            owner: it.owner.to_string(),
            source: it.source.to_string(),
            destination: it.destination.to_string(),
            original_domain_payload_hash: it.original_hash.to_string(),
            conflicting_domain_payload_hash: it.hash.to_string(),
            conflict_state: it.state,
            flagged_at: it.flagged_at.to_string(),
            flagged_by: "gateway",
            last_seen_at: it.last_seen_at.to_string(),
            count: it.count,
            resolution_notes: it.notes.clone(),
            dlq_message_ref: it.dead_letter.0,
            compensating_event_id: it.compensating.as_ref().map(ToString::to_string),
        }
    }
}

/// A conflict with both messages, side by side.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WholeConflict)]
pub(super) struct WholeDocument<'a> {
    #[serde(flatten)]
    conflict: ConflictDocument,
    /// What was first; missing where it was meant for somebody else: a tenant, or of a service's own tenant another service.
    original: Option<MessageDocument<'a>>,
    /// Why what was first cannot be shown now, though it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    original_unreadable: Option<&'static str>,
    /// What came under the same id.
    conflicting: Option<MessageDocument<'a>>,
    /// Where their payloads differ, up to 100 places.
    differences: Vec<Difference>,
    /// How often this producer has caused conflicts of the same owner.
    conflicts_of_source: u64,
}

/// Conflicts of a tenant's targets: a service is shown those of what it sends or does.
#[utoipa::path(get, path = "/v1/conflicts", tag = "conflicts", params(Filter),
    responses((status = 200, body = ConflictPage)))]
pub(super) async fn list(
    State(app): State<Shared>,
    principal: Principal,
    Params(filter): Params<Filter>,
) -> Result<Response, Problem> {
    let owner = filter.tenant.as_ref().map(TenantName::as_str).or(principal.standing().tenant());
    may(&principal, Permission::Read, owner)?;
    if let Some(owner) = owner {
        whose::known(&app, &principal, owner).await?;
    }
    let state = filter.state.as_deref().map(conflict_state).transpose()?;
    let limit = page_limit(filter.limit)?;
    // Of a service's conflicts there may be few among those of its tenant: it is looked through a number of them at once.
    let looked_at = match &principal {
        Principal::Service(_) => bounds::PAGE_MAX,
        Principal::Operator | Principal::Person(_) => limit,
    };
    let (mut items, mut next) = (Vec::new(), filter.after);
    for conflict in app.gate.store().conflicts(owner, state, Serial(next), looked_at).await? {
        if items.len() == limit {
            break;
        }
        next = conflict.id.0;
        items.extend(is_concerned(&app, &principal, &conflict).then(|| ConflictDocument::from(&conflict)));
    }
    Ok(json(StatusCode::OK, &ConflictPage { items, next }))
}

/// What another service of the tenant meant by an id is none of this one's business (CLM-1): services are shown conflicts
/// of what they send or do, people all of those of their tenant. A conflict of an event is recorded once for its tenant, at
/// one of those subscriptions that compare: it concerns all that have the type.
pub(super) fn is_concerned(app: &App, principal: &Principal, conflict: &Conflict) -> bool {
    match principal {
        Principal::Service(caller) => {
            conflict.source == caller.service
                || does(principal, &conflict.destination)
                || has_type(app, caller.service.as_str(), conflict)
        }
        Principal::Operator | Principal::Person(_) => true,
    }
}

/// Whether a service is subscribed to the type of the events of a conflict.
fn has_type(app: &App, service: &str, conflict: &Conflict) -> bool {
    let of_event = conflict.destination.split_once(':').filter(|(_, of)| of.contains(':'));
    of_event.is_some_and(|(_, of)| app.gate.registry().destination(&format!("{service}:{of}")).is_some())
}

/// One conflict, with both messages and where they differ.
#[utoipa::path(get, path = "/v1/conflicts/{id}", tag = "conflicts", params(("id" = i64, Path)),
    responses((status = 200, body = WholeDocument)))]
pub(super) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments(id): Segments<i64>,
) -> Result<Response, Problem> {
    let mut stored = find(&app, &principal, Permission::Read, id).await?;
    if !is_concerned(&app, &principal, &stored.conflict) {
        return Err(nothing().into());
    }
    let unreadable = fetch_original(&app, &mut stored).await;
    let original = seen_original(&app, &principal, &stored).await?;
    let conflicting = stored.conflicting.as_ref();
    let is_erased = |it: &LoggedMessage| it.message.is_erased();
    let differences = match (original, conflicting) {
        (Some(one), Some(other)) if !is_erased(one) && !is_erased(other) => {
            compared(one.message.payload.clone(), other.message.payload.clone()).await
        }
        _ => Vec::new(),
    };
    let whole = WholeDocument {
        conflict: ConflictDocument::from(&stored.conflict),
        original_unreadable: unreadable,
        original: original.map(|it| MessageDocument::try_from(&it.message)).transpose()?,
        conflicting: conflicting.map(|it| MessageDocument::try_from(&it.message)).transpose()?,
        differences,
        conflicts_of_source: stored.of_source,
    };
    Ok(json(StatusCode::OK, &whole))
}

/// What was first, for whoever sent it or was sent it, and for nobody else: a conflict is easily provoked. Of a tenant all
/// people see what any of its services did, of its services each its own (CLM-1).
pub(super) async fn seen_original<'a>(
    app: &App,
    principal: &Principal,
    stored: &'a StoredConflict,
) -> Result<Option<&'a LoggedMessage>, StoreError> {
    let Some(original) = &stored.original else { return Ok(None) };
    let is_own = |service: &str| match principal {
        Principal::Service(caller) => service == caller.service.as_str(),
        Principal::Operator | Principal::Person(_) => {
            principal.standing().reads(service.split('/').next().unwrap_or_default())
        }
    };
    let message = &original.message;
    // An event's target is who published it.
    if is_own(message.source.as_str()) || is_own(message.target.as_str()) {
        return Ok(Some(original));
    }
    // Whoever subscribed later was never sent it: those who were have a claim of it, or had one that is over by now.
    let id = IdKey { id: message.id.clone(), tenant: message.tenant.clone() };
    let claims = app.gate.store().claims_of(&id, Timestamp(i64::MIN)).await?;
    let was_sent = |it: &StoredClaim| {
        it.claim.message == original.number
            && is_own(it.key.destination.split(':').next().unwrap_or_default())
    };
    if claims.iter().any(was_sent) {
        return Ok(Some(original));
    }
    // It is recorded at one of its tenant's subscriptions; a service had a claim at its own.
    let target = match principal {
        Principal::Service(caller) => caller.service.as_str(),
        Principal::Operator | Principal::Person(_) => {
            stored.conflict.destination.split(':').next().unwrap_or_default()
        }
    };
    if message.event.is_none() || !is_own(target) {
        return Ok(None);
    }
    let subscription = format!("{target}:{}:{}", message.source, message.name);
    let had_claim = app.gate.was_claiming_at(&subscription, original.settled_at).await?;
    Ok(had_claim.then_some(original))
}

/// What was first may be in the archive (CLM-16). Says why it is not shown, if that cannot be read now.
pub(super) async fn fetch_original(app: &App, stored: &mut StoredConflict) -> Option<&'static str> {
    if stored.original.is_some() {
        return None;
    }
    let Conflict { event_id, tenant, original, .. } = &stored.conflict;
    let id = IdKey { id: event_id.clone(), tenant: tenant.clone() };
    match app.gate.archived_message(&id, *original).await {
        Ok(found) => {
            stored.original = found.map(|it| LoggedMessage {
                number: it.number,
                path: it.path,
                settled_at: it.settled_at,
                message: it.message,
            });
            None
        }
        Err(trouble) => {
            let error = &trouble as &dyn std::error::Error;
            tracing::warn!(error, "what was first could not be read from the archive");
            Some("it is in the archive, which cannot be read now")
        }
    }
}

/// Large payloads take their time, and nobody else's.
async fn compared(original: Bytes, conflicting: Bytes) -> Vec<Difference> {
    let compare = move || differences(&original, &conflicting, bounds::CONFLICT_DIFFERENCES_MAX);
    tokio::task::spawn_blocking(compare).await.unwrap_or_default()
}

/// Where a conflict shall stand.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct MoveBody {
    /// `TRIAGED` first, then one of the three resolutions.
    state: ConflictState,
    /// Why, for the record.
    note: String,
    /// The event that makes up for it, sent since the conflict was noticed, and named by no other: required for `RESOLVED_ACCEPT_NEW`, and only there.
    compensating_event_id: Option<String>,
}

/// Moves a conflict on: accounting does, or an operator. Of two at once one wins, and the other is told.
#[utoipa::path(post, path = "/v1/conflicts/{id}/state", tag = "conflicts", params(("id" = i64, Path)),
    request_body = MoveBody, responses((status = 200, body = ConflictDocument)))]
pub(super) async fn change_state(
    State(app): State<Shared>,
    principal: Principal,
    Segments(id): Segments<i64>,
    JsonBody(body): JsonBody<MoveBody>,
) -> Result<Response, Problem> {
    let stored = find(&app, &principal, Permission::Resolve, id).await?;
    let compensating = body.compensating_event_id.as_deref().map(event_id).transpose()?;
    let to = Move { to: body.state, note: body.note, compensating };
    let act = Act { who: principal.name(), why: to.note.clone(), at: app.clock.now() };
    let immovable = |it: Immovable| Refusal::new(Reason::ConflictState, it.to_string());
    // Nobody is told to send a reversal for what cannot be moved anyway.
    stored.conflict.clone().moved(&to, &act.who, act.at).map_err(immovable)?;
    if let Some(reversal) = &to.compensating {
        check_sent(&app, &stored.conflict, reversal).await?;
    }
    let moved = app.gate.store().move_conflict(Serial(id), to, act).await?.ok_or_else(nothing)?;
    let moved = moved.map_err(immovable)?;
    Ok(json(StatusCode::OK, &ConflictDocument::from(&moved)))
}

/// CLM-13: the reversal is known at a destination of who decides, sent by the tenant that caused the conflict or by their
/// own, since the conflict was noticed. A typing error would be for good otherwise. Of ids that went elsewhere nothing is said.
/// Whether another conflict names it is for the store to say, with its commit.
async fn check_sent(app: &App, conflict: &Conflict, reversal: &MessageId) -> Result<(), Problem> {
    let mut first_seen = Vec::new();
    for tenant in [&conflict.tenant, &conflict.owner] {
        let id = IdKey { id: reversal.clone(), tenant: tenant.clone() };
        let claims = app.gate.store().claims_of(&id, app.clock.now()).await?;
        let owned = claims.iter().filter(|it| it.key.is_owned_by(conflict.owner.as_str()));
        first_seen.extend(owned.map(|it| it.claim.first_seen_at));
    }
    let refused = |it: Immovable| Refusal::new(Reason::ConflictState, it.to_string());
    conflict.check_reversal(first_seen).map_err(refused)?;
    Ok(())
}

/// An id that an event may have.
fn event_id(text: &str) -> Result<MessageId, Refusal> {
    let is_one = (1..=128).contains(&text.len()) && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let wrong = "compensatingEventId must be 1 to 128 printable ASCII characters";
    // A UUID is the same in any case.
    let id = || MessageId::uuid(text).unwrap_or_else(|| MessageId::stored(text));
    is_one.then(id).ok_or_else(|| Refusal::new(Reason::InvalidRequest, wrong))
}

async fn find(
    app: &App,
    principal: &Principal,
    permission: Permission,
    id: i64,
) -> Result<StoredConflict, Problem> {
    let stored = app.gate.store().conflict(Serial(id)).await?.ok_or_else(nothing)?;
    may(principal, permission, Some(stored.conflict.owner.as_str()))?;
    Ok(stored)
}

/// A conflict's state by its word.
fn conflict_state(word: &str) -> Result<ConflictState, Refusal> {
    let words = ConflictState::ALL.map(ConflictState::as_str);
    let state = ConflictState::stored(&word.to_ascii_uppercase());
    state.ok_or_else(|| unknown_word("state of a conflict", word, &words))
}

/// What is another tenant's is not there.
pub(super) fn may(principal: &Principal, permission: Permission, owner: Option<&str>) -> Result<(), Refusal> {
    let over = owner.map_or(Over::Platform, Over::Tenant);
    match principal.standing().judge(permission, over) {
        Verdict::Allowed => Ok(()),
        Verdict::Forbidden => Err(forbidden("your role may not do this")),
        Verdict::Hidden => Err(nothing()),
    }
}

fn nothing() -> Refusal {
    Refusal::new(Reason::NotFound, "there is no such conflict")
}
