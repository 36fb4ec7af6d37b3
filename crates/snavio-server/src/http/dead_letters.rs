//! Dead letters: list, show, redrive. Services and people see those of their own tenant's queues.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::claim::IdKey;
use snavio_model::delivery::{DeadLetter, DeadReason};
use snavio_model::id::Serial;
use snavio_model::identity::permission::Permission;
use snavio_model::name::{QueueKey, QueueName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::Clock;
use snavio_store::{ListedDeadLetter, StoreError, StoredClaim, StoredDeadLetter};
use utoipa::{IntoParams, ToSchema};

use super::answer::json;
use super::extract::{JsonBody, Params, Segments, page_limit};
use super::message::MessageDocument;
use super::queues::{RedriveBody, Redriven, does, in_doubt, no_route, receivable};
use super::unknown::unknown;
use super::whose::{self, Whose};
use super::{App, Problem, Shared, conflicts};
use crate::principal::{Principal, forbidden};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    tenant: Option<String>,
    queue: Option<String>,
    #[serde(default)]
    after: i64,
    limit: Option<usize>,
}

/// Dead letters of a tenant's queues.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead letters", params(Filter),
    responses((status = 200, body = DeadLetters)))]
pub(super) async fn list(
    State(app): State<Shared>,
    principal: Principal,
    Params(filter): Params<Filter>,
) -> Result<Response, Problem> {
    let tenant = whose::tenant(&app, &principal, Permission::Read, filter.tenant.as_deref()).await?;
    let queue = filter.queue.as_deref().map(QueueName::new).transpose();
    let queue = queue.map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
    let queue = queue.map(|queue| QueueKey::new(&tenant, &queue));
    let limit = page_limit(filter.limit)?;
    let letters = app.gate.store().dead_letters(&tenant, queue.as_ref(), Serial(filter.after), limit).await?;
    if let Some(queue) = queue.as_ref().filter(|_| letters.is_empty()) {
        check_dead_letter_queue(&app, &tenant, queue).await?;
    }
    let next = letters.last().map_or(filter.after, |it| it.letter.delivery.id.0);
    let items = letters.iter().map(Head::from).collect();
    Ok(json(StatusCode::OK, &DeadLetters { items, next }))
}

/// Refuses a queue that no route of the tenant names as its dead-letter queue, and that holds no dead letter.
async fn check_dead_letter_queue(app: &App, tenant: &str, queue: &QueueKey) -> Result<(), Problem> {
    let registry = app.gate.registry();
    let queues = registry.routes().map(|route| &route.dead_letter_queue);
    let known: Vec<_> = queues.filter(|known| known.tenant() == tenant).collect();
    if known.contains(&queue)
        || !app.gate.store().dead_letters(tenant, Some(queue), Serial(0), 1).await?.is_empty()
    {
        return Ok(());
    }
    Err(unknown("dead-letter queue", queue.queue(), known.into_iter().map(QueueKey::queue)).into())
}

/// Some dead letters, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct DeadLetters<'a> {
    items: Vec<Head<'a>>,
    /// The `after` to go on from.
    next: i64,
}

/// What a list shows: everything but the message itself.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(super) struct Head<'a> {
    id: i64,
    reason: DeadReason,
    /// The conflict that it is the evidence of, where its reason is that.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict_id: Option<i64>,
    /// What went wrong with its last attempt, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// The dead-letter queue it is in.
    queue: &'a str,
    /// The queue it came from.
    origin: &'a str,
    /// The route it came by.
    route: &'a str,
    attempts: u32,
    queued_at: String,
    dead_at: String,
    /// The message's number in the log.
    message: i64,
    message_id: &'a str,
    source: &'a str,
    correlation_id: &'a str,
}

/// A dead letter with its message.
#[derive(Serialize, ToSchema)]
#[schema(as = WholeDeadLetter)]
pub(super) struct Whole<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    /// Of the evidence of a conflict: the number of the message that was first, where the caller may see that.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<i64>,
    content: MessageDocument<'a>,
}

impl<'a> Head<'a> {
    fn of(letter: &'a DeadLetter, message_id: &'a str, source: &'a str, correlation_id: &'a str) -> Self {
        Self {
            id: letter.delivery.id.0,
            reason: letter.reason,
            conflict_id: letter.conflict().map(|it| it.0),
            error: letter.error.as_deref(),
            queue: letter.delivery.dead_letter_queue.queue(),
            origin: letter.delivery.queue.queue(),
            route: &letter.delivery.destination,
            attempts: letter.delivery.receives,
            queued_at: letter.delivery.queued_at.to_string(),
            dead_at: letter.dead_at.to_string(),
            message: letter.delivery.message.0,
            message_id,
            source,
            correlation_id,
        }
    }
}

impl<'a> From<&'a ListedDeadLetter> for Head<'a> {
    fn from(it: &'a ListedDeadLetter) -> Self {
        Self::of(&it.letter, it.message_id.as_str(), it.source.as_str(), it.correlation.as_str())
    }
}

impl<'a> From<&'a StoredDeadLetter> for Head<'a> {
    fn from(stored: &'a StoredDeadLetter) -> Self {
        let message = &stored.message;
        Self::of(&stored.letter, message.id.as_str(), message.source.as_str(), message.correlation.as_str())
    }
}

/// One dead letter, with its message.
#[utoipa::path(get, path = "/v1/dead-letters/{id}", tag = "dead letters", params(("id" = i64, Path), Whose),
    responses((status = 200, body = Whole)))]
pub(super) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments(id): Segments<i64>,
    Params(whose): Params<Whose>,
) -> Result<Response, Problem> {
    let tenant = whose::tenant(&app, &principal, Permission::Read, whose.tenant.as_deref()).await?;
    let nothing = || Refusal::new(Reason::NotFound, "there is no such dead letter");
    let stored = app.gate.store().dead_letter(&tenant, Serial(id)).await?.ok_or_else(nothing)?;
    let original = original(&app, &principal, &stored).await?;
    let content = MessageDocument::try_from(&stored.message)?;
    let whole = Whole { head: Head::from(&stored), original, content };
    Ok(json(StatusCode::OK, &whole))
}

/// The number of the message that a dead letter is in conflict with, for those who are shown that message too.
async fn original(
    app: &App,
    principal: &Principal,
    stored: &StoredDeadLetter,
) -> Result<Option<i64>, StoreError> {
    let Some(id) = stored.letter.conflict() else { return Ok(None) };
    let conflict = match app.gate.store().conflict(id).await {
        // It says what was sent all the same.
        Err(StoreError::Damaged { .. }) => None,
        other => other?,
    };
    let conflict = conflict.filter(|it| it.conflict.dead_letter == stored.letter.delivery.id);
    let Some(mut conflict) = conflict else { return Ok(None) };
    // Where the archive cannot be read now, the dead letter is shown without it.
    let _unreadable = conflicts::fetch_original(app, &mut conflict).await;
    Ok(conflicts::seen_original(app, principal, &conflict).await?.map(|first| first.number.0))
}

/// CLM-20: whether the claim of a dead letter is over, where its destination claims or did when the message came: the same
/// id may have been taken up again since.
pub(super) async fn is_beyond_horizon(app: &App, stored: &StoredDeadLetter) -> Result<bool, StoreError> {
    let StoredDeadLetter { letter, message } = stored;
    let destination = &letter.delivery.destination;
    let key = IdKey { id: message.id.clone(), tenant: message.tenant.clone() };
    let claims = app.gate.store().claims_of(&key, app.clock.now()).await?;
    let is_its_own = |it: &StoredClaim| {
        *it.key.destination == **destination && it.claim.message == letter.delivery.message
    };
    if claims.iter().any(is_its_own) {
        return Ok(false);
    }
    let registry = app.gate.registry();
    let claims_now = registry.destination(destination).is_some_and(|it| it.route.claim.keep().is_some());
    Ok(letter.delivery.tracking.is_tracked()
        || claims_now
        || app.gate.may_have_claimed_at(destination, message.received_at).await?)
}

pub(super) fn beyond_horizon() -> Refusal {
    let detail = "the claim of this message is over: it may have been sent and processed again since";
    Refusal::new(Reason::BeyondHorizon, detail)
}

/// Puts one dead letter back where it came from.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/redrive", tag = "dead letters", params(("id" = i64, Path), Whose),
    request_body = RedriveBody,
    responses((status = 200, body = Redriven)))]
pub(super) async fn redrive(
    State(app): State<Shared>,
    principal: Principal,
    Segments(id): Segments<i64>,
    Params(whose): Params<Whose>,
    JsonBody(body): JsonBody<RedriveBody>,
) -> Result<Response, Problem> {
    let tenant = whose::tenant(&app, &principal, Permission::Mend, whose.tenant.as_deref()).await?;
    let act = body.act(&app, &principal)?;
    let letter = app.gate.store().dead_letter(&tenant, Serial(id)).await?;
    if letter.as_ref().is_some_and(|it| it.letter.reason == DeadReason::Conflict) {
        let detail =
            "it is the evidence of a conflict, and is never dispatched; resolve the conflict instead";
        return Err(Refusal::new(Reason::ConflictState, detail).into());
    }
    if let Some(letter) = &letter {
        if !does(&principal, &letter.letter.delivery.destination) {
            return Err(forbidden("only the service that does the work may do this").into());
        }
        let is_over = is_beyond_horizon(&app, letter).await?;
        if is_over && !body.beyond_horizon {
            return Err(beyond_horizon().into());
        }
    }
    let registry = app.gate.registry();
    let origin = letter.as_ref().map(|letter| &letter.letter.delivery.queue);
    if origin.is_some_and(|origin| !receivable(&registry).any(|queue| queue == origin)) {
        return Err(no_route().into());
    }
    let redriven = app.gate.store().redrive(&tenant, vec![Serial(id)], act).await?;
    if let Some(letter) = letter.filter(|_| !redriven.in_doubt.is_empty()) {
        let (message, destination) = (&letter.message, &letter.letter.delivery.destination);
        return Err(in_doubt(&format!("id {} of {} at {destination}", message.id, message.tenant)).into());
    }
    let redriven = Redriven::of(redriven, 0)?;
    if redriven.redriven == 0 {
        return Err(Refusal::new(Reason::NotFound, "there is no such dead letter").into());
    }
    Ok(json(StatusCode::OK, &redriven))
}
