//! Claims: what became of an id, and what a person does with what failed (CLM-2, CLM-10, CLM-11).

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use snavio_model::bounds;
use snavio_model::claim::conflict::Conflict;
use snavio_model::claim::{IdKey, Status};
use snavio_model::hash::HASH_VERSION;
use snavio_model::id::{MessageId, Serial};
use snavio_model::identity::permission::Permission;
use snavio_model::name::{InvalidName, TenantName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::Involved;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::{ClaimFilter, ClaimLookUp, HeldBack, HeldDelivery, StoreError, StoredClaim};
use utoipa::{IntoParams, ToSchema};

use super::answer::json;
use super::extract::{JsonBody, Params, Segments, page_limit};
use super::message::MessageDocument;
use super::queues::{act, does};
use super::unknown::{destinations, unknown, unknown_word};
use super::work::check_reference;
use super::{App, Problem, Shared, whose};
use crate::principal::{Principal, forbidden};

/// Claims that are named where an id has several.
const CANDIDATES_TOLD_MAX: usize = 3;

/// Which claims.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Whose destinations; all of those that the caller may see when not said.
    tenant: Option<String>,
    /// `processing`, `failed` or `in_doubt`: all that are not complete when not said.
    status: Option<String>,
    /// Those after this message.
    #[serde(default)]
    after: i64,
    /// Claims of the page: 100 when not said, 1000 at most. Those of one message are on one page, which has more if need be.
    limit: Option<usize>,
}

/// Some claims, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct ClaimPage {
    items: Vec<ClaimDocument>,
    /// The `after` to go on from.
    next: i64,
}

/// A claim (CLM-2).
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Claim)]
pub(super) struct ClaimDocument {
    event_id: String,
    /// The tenant whose id it is.
    tenant: String,
    source: String,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain_payload_hash: Option<String>,
    hash_version: u16,
    /// `PROCESSING`, `COMPLETED`, `FAILED` or `IN_DOUBT`.
    status: &'static str,
    /// Of what failed: whether there is no further attempt unless a person asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#final: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gl_posting_reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    message: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_id: Option<i64>,
    /// The newest lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<i64>,
    attempts: u32,
    first_seen_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen_at: Option<String>,
    /// How often it was sent, the first time included.
    count: u64,
    /// Until when the attempt in progress must report.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<String>,
    /// When the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    expires_at: String,
    /// Its time is over: the id is free, or is kept from use by a hold or a conflict. Only people are shown it.
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    archived_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    archive_pointer: Option<String>,
    /// When what the message and the answer said was destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    erased_at: Option<String>,
}

impl ClaimDocument {
    fn new(stored: &StoredClaim, now: Timestamp) -> Self {
        let StoredClaim { key, claim, held, .. } = stored;
        let progress = claim.progress.as_deref();
        let (fence, attempts, deadline, due_at) = match held {
            Some(HeldDelivery::Leased { fence, attempt, until }) => {
                (Some(*fence), *attempt, Some(until.to_string()), None)
            }
            Some(HeldDelivery::Due(at)) => (None, 0, None, Some(at.to_string())),
            None => (None, 0, None, None),
        };
        let status = stored.status(now);
        Self {
            event_id: key.id.to_string(),
            tenant: key.tenant.to_string(),
            source: claim.source.to_string(),
            destination: key.destination.to_string(),
            domain_payload_hash: stored.hash.map(|it| it.to_string()),
            hash_version: HASH_VERSION,
            status: status.as_str(),
            r#final: match status {
                Status::Failed { is_final } => Some(is_final),
                _ => None,
            },
            gl_posting_reference: progress.and_then(|it| it.reference.clone()),
            error: progress.and_then(|it| it.error.clone()),
            correlation_id: stored.correlation.as_ref().map(|it| it.as_str().to_owned()),
            message: claim.message.0,
            delivery_id: progress.map(|it| it.delivery.0),
            fence: fence.or(progress.and_then(|it| it.fence)).map(|it| it.0),
            attempts: attempts.max(progress.map_or(0, |it| it.attempts)),
            first_seen_at: claim.first_seen_at.to_string(),
            last_seen_at: stored.last_seen_at.map(|it| it.to_string()),
            count: stored.repeats + 1,
            deadline,
            due_at,
            ended_at: progress.and_then(|it| it.ended_at).map(|it| it.to_string()),
            expires_at: claim.expires_at.to_string(),
            over: (!claim.is_live(now)).then_some(true),
            archived_at: stored.archived_at.map(|it| it.to_string()),
            archive_pointer: stored.archive.clone(),
            erased_at: stored.erased_at.map(|it| it.to_string()),
        }
    }
}

/// Claims that are not complete: what is in progress, failed or in doubt. A service is shown those of what it sends or does.
#[utoipa::path(get, path = "/v1/claims", tag = "claims", params(Filter), responses((status = 200, body = ClaimPage)))]
pub(super) async fn list(
    State(app): State<Shared>,
    principal: Principal,
    Params(filter): Params<Filter>,
) -> Result<Response, Problem> {
    let owner = owner(&app, &principal, Permission::Read, filter.tenant.as_deref()).await?;
    let statuses = statuses(filter.status.as_deref())?;
    let limit = page_limit(filter.limit)?;
    // As with one that is looked up: people of the tenant see all of it, services their own (CLM-1).
    let service = match &principal {
        Principal::Service(caller) => Some(caller.service.clone()),
        Principal::Operator | Principal::Person(_) => None,
    };
    let asked = ClaimFilter { owner, service, statuses, after: Serial(filter.after) };
    let now = app.clock.now();
    let claims = open_page(&app, &asked, limit, now).await?;
    let next = claims.last().map_or(filter.after, |it| it.claim.message.0);
    let items = claims.iter().map(|it| ClaimDocument::new(it, now)).collect();
    Ok(json(StatusCode::OK, &ClaimPage { items, next }))
}

/// A page ends between two messages: it goes on after the last one's number, and nothing of that may be left behind.
async fn open_page(
    app: &App,
    asked: &ClaimFilter,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<StoredClaim>, StoreError> {
    let store = app.gate.store();
    let mut claims = store.open_claims(asked, limit + 1, now).await?;
    let message = |it: &StoredClaim| it.claim.message;
    let Some(parted) = claims.get(limit).map(message) else { return Ok(claims) };
    if claims.first().map(message) != Some(parted) {
        claims.retain(|it| message(it) != parted);
        return Ok(claims);
    }
    let mut claims = store.open_claims(asked, bounds::SUBSCRIPTIONS_PER_TYPE_MAX, now).await?;
    claims.retain(|it| message(it) == parted);
    Ok(claims)
}

/// Whose things are meant: of one tenant, or of all for those who are there for all.
pub(super) async fn owner(
    app: &App,
    principal: &Principal,
    permission: Permission,
    named: Option<&str>,
) -> Result<Option<String>, Problem> {
    if named.is_none() && principal.standing().tenant().is_none() {
        super::conflicts::may(principal, permission, None)?;
        return Ok(None);
    }
    whose::tenant(app, principal, permission, named).await.map(Some)
}

fn statuses(named: Option<&str>) -> Result<Vec<Status>, Refusal> {
    const OPEN: [&str; 3] = ["processing", "failed", "in_doubt"];
    let Some(word) = named else {
        return Ok(OPEN.iter().flat_map(|word| Status::named(word)).collect());
    };
    match Status::named(word).as_slice() {
        [] => Err(unknown_word("status", word, &OPEN)),
        [Status::Completed] => {
            let detail =
                "status is one of processing, failed and in_doubt; what is complete is looked up by its id";
            Err(Refusal::new(Reason::InvalidRequest, detail))
        }
        statuses => Ok(statuses.to_vec()),
    }
}

/// Which claims of an id are looked up, of those that the caller may see.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LookUp {
    /// Only those that this tenant sent, or was sent at one of its destinations.
    tenant: Option<String>,
    /// Only those of the id as this tenant sent it: each sender's ids are its own.
    sender: Option<String>,
    /// Only the one at this destination, for example `tenant/service:name`.
    destination: Option<String>,
    /// When it was sent, where its id does not say so: what is older than claims are kept, or were kept then, cannot be known
    /// any more.
    sent_at: Option<String>,
}

/// What became of an id.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Found {
    event_id: String,
    /// The tenants that sent it, as far as the caller may see their claims and conflicts.
    tenants: BTreeSet<String>,
    /// `completed`, `in_progress`, `failed`, `in_doubt`, `conflict`, `never_seen`, `beyond_horizon`, or `over` where all
    /// that is left is a claim whose time is over.
    outcome: &'static str,
    claims: Vec<ClaimDocument>,
    /// Whether the id was also used for another content, and where that is on record.
    conflicts: Vec<i64>,
}

/// What became of an id.
#[utoipa::path(get, path = "/v1/claims/{key}", tag = "claims", params(("key" = String, Path, description = "The message's id"), LookUp),
    responses((status = 200, body = Found)))]
pub(super) async fn look_up(
    State(app): State<Shared>,
    principal: Principal,
    Segments(key): Segments<String>,
    Params(asked): Params<LookUp>,
) -> Result<Response, Problem> {
    let (id, sent_at) = (message_id(&key)?, sent_at(&asked, &key)?);
    let LookUp { tenant, sender, destination, .. } = asked;
    let which = Which { tenant, sender, destination };
    let look_up = which.look_up(&app, &principal, id).await?;
    let claims = seen_claims(&app, &principal, &look_up).await?;
    let is_there = !claims.is_empty() || !claims_under(&app, &principal, &look_up).await?.is_empty();
    let now = app.clock.now();
    let standing = principal.standing();
    let conflicts = app.gate.store().conflicts_under(&look_up).await?;
    let is_seen = |it: &Conflict| standing.reads(it.tenant.as_str()) || standing.reads(it.owner.as_str());
    let conflicts: Vec<_> = conflicts.into_iter().filter(is_seen).collect();
    // Whether another tenant has used an id is nobody's to learn (CLM-1), nor what another service of one's own was answered.
    if claims.is_empty() && conflicts.is_empty() && (is_there || !which.is_within_reach(&principal)) {
        let detail = "there is no such claim that you may see";
        return Err(Refusal::new(Reason::NotFound, detail).into());
    }
    let outcome = match outcome(&claims, &conflicts, now) {
        Some(outcome) => outcome,
        None if !is_destination(&app, &principal, &look_up).await? => {
            let registry = app.gate.registry();
            let wrong = which.destination.as_deref().unwrap_or_default();
            return Err(unknown("destination", wrong, destinations(&registry, &principal)).into());
        }
        None if keeps_all(&app, &look_up, &which, sent_at).await => "never_seen",
        None => "beyond_horizon",
    };
    let senders = claims.iter().map(|it| &it.key.tenant).chain(conflicts.iter().map(|it| &it.tenant));
    let found = Found {
        event_id: look_up.id.to_string(),
        tenants: senders.map(ToString::to_string).collect(),
        outcome,
        claims: claims.iter().map(|it| ClaimDocument::new(it, now)).collect(),
        conflicts: conflicts.iter().map(|it| it.id.0).collect(),
    };
    Ok(json(StatusCode::OK, &found))
}

/// Whether the destination that is asked for, if one is, ever was one that the caller may know: its tenant's own, or one that it
/// could send to.
async fn is_destination(app: &App, principal: &Principal, look_up: &ClaimLookUp) -> Result<bool, StoreError> {
    let Some(destination) = &look_up.destination else { return Ok(true) };
    let own: Vec<_> = principal.standing().tenant().map(str::to_owned).into_iter().collect();
    app.gate.was_destination(destination, Involved { parties: &own, sender: None }).await
}

/// When an id was sent, as far as that is known.
fn sent_at(asked: &LookUp, id: &str) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = &asked.sent_at else { return Ok(message_id(id)?.made_at()) };
    let wrong = || Refusal::new(Reason::InvalidRequest, "sent_at is a time in RFC 3339");
    Timestamp::parse(text).map(Some).ok_or_else(wrong)
}

/// What became of an id by what is on record of it, if anything is.
fn outcome(claims: &[StoredClaim], conflicts: &[Conflict], now: Timestamp) -> Option<&'static str> {
    let live = |it: &&StoredClaim| it.claim.is_live(now);
    let is = |status: fn(Status) -> bool| claims.iter().filter(live).any(|it| status(it.status(now)));
    if claims.is_empty() {
        return (!conflicts.is_empty()).then_some("conflict");
    }
    if !claims.iter().any(|it| it.claim.is_live(now)) {
        return Some("over");
    }
    Some(if is(|it| it == Status::InDoubt) {
        "in_doubt"
    } else if is(|it| matches!(it, Status::Failed { .. })) {
        "failed"
    } else if is(|it| it == Status::Processing) {
        "in_progress"
    } else {
        "completed"
    })
}

/// Whether every claim that can have been made of what was sent would be kept still, by what is registered and by what was
/// since then. Where that cannot be known, nothing is certain.
async fn keeps_all(app: &App, look_up: &ClaimLookUp, which: &Which, sent_at: Option<Timestamp>) -> bool {
    let registry = app.gate.registry();
    let sender = which.sender.as_ref().and_then(|_| look_up.senders.first());
    let involved = Involved { parties: &look_up.parties, sender };
    let destination = which.destination.as_deref();
    let kept = match destination {
        Some(destination) => registry.destination(destination).and_then(|it| it.route.claim.keep()),
        None => registry.shortest_keep(involved),
    };
    let is_beyond =
        sent_at.is_some_and(|at| app.clock.now().since(at) >= kept.unwrap_or(bounds::STRICT_KEEP));
    if is_beyond {
        return false;
    }
    let kept = app.gate.keeps_all(involved, destination, sent_at).await;
    kept.unwrap_or_else(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "for how long claims were kept cannot be read from the changelog");
        false
    })
}

/// An id that is asked for.
fn message_id(id: &str) -> Result<MessageId, Refusal> {
    let wrong = || Refusal::new(Reason::InvalidId, "an id is 1 to 128 printable ASCII characters");
    MessageId::asked_for(id).ok_or_else(wrong)
}

/// An id of a tenant.
pub(super) fn id_key(id: &str, tenant: &str) -> Result<IdKey, Refusal> {
    let tenant =
        TenantName::new(tenant).map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
    Ok(IdKey { id: message_id(id)?, tenant })
}

/// The claims that are asked for and that the caller may see: those of its own tenant's ids, and those of its destinations.
pub(super) async fn seen_claims(
    app: &App,
    principal: &Principal,
    look_up: &ClaimLookUp,
) -> Result<Vec<StoredClaim>, Problem> {
    let service = match principal {
        Principal::Service(caller) => Some(caller.service.clone()),
        Principal::Operator | Principal::Person(_) => None,
    };
    let claims = claims_under(app, principal, &ClaimLookUp { service, ..look_up.clone() }).await?;
    Ok(claims.into_iter().filter(|it| sees(principal, it)).collect())
}

/// The claims that are asked for. People also see claims that are kept past their time, for a hold or a conflict, or are not
/// swept yet.
async fn claims_under(
    app: &App,
    principal: &Principal,
    look_up: &ClaimLookUp,
) -> Result<Vec<StoredClaim>, StoreError> {
    let not_over = match principal {
        Principal::Service(_) => app.clock.now(),
        Principal::Operator | Principal::Person(_) => Timestamp(i64::MIN),
    };
    app.gate.store().claims_under(look_up, not_over).await
}

/// Whether the caller may see a claim. What a service was answered is no other's to read (CLM-1): people of the tenant see all
/// of it, services their own.
fn sees(principal: &Principal, stored: &StoredClaim) -> bool {
    let (key, standing) = (&stored.key, principal.standing());
    match principal {
        Principal::Service(caller) => {
            let target = key.destination.split(':').next().unwrap_or_default();
            stored.claim.source == caller.service || target == caller.service.as_str()
        }
        Principal::Operator | Principal::Person(_) => {
            standing.reads(key.tenant.as_str()) || standing.reads(owner_of(&key.destination))
        }
    }
}

/// The tenant of a destination.
fn owner_of(destination: &str) -> &str {
    destination.split('/').next().unwrap_or_default()
}

/// Which claims of an id, of those that the caller may see.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only those that this tenant sent, or was sent at one of its destinations.
    tenant: Option<String>,
    /// Only those of the id as this tenant sent it: each sender's ids are its own.
    sender: Option<String>,
    /// Only the one at this destination, for example `tenant/service:name`.
    destination: Option<String>,
}

impl Which {
    /// What the store is asked: nothing but claims that the caller's tenant sent or was sent, if it acts for one.
    async fn look_up(&self, app: &App, principal: &Principal, id: MessageId) -> Result<ClaimLookUp, Problem> {
        for tenant in [&self.tenant, &self.sender].into_iter().flatten() {
            whose::known(app, principal, tenant).await?;
        }
        let own = principal.standing().tenant();
        let parties: BTreeSet<_> = own.into_iter().chain(self.tenant.as_deref()).map(str::to_owned).collect();
        let senders = match &self.sender {
            Some(sender) => {
                let wrong = |invalid: InvalidName| Refusal::new(Reason::InvalidName, invalid.to_string());
                vec![TenantName::new(sender).map_err(wrong)?]
            }
            None => app.gate.tenants_ever().await?,
        };
        let parties = parties.into_iter().collect();
        Ok(ClaimLookUp { id, senders, parties, destination: self.destination.clone(), service: None })
    }

    /// Whether the caller would see whatever is asked for. A destination alone hides nothing: of another tenant's ones the
    /// caller is shown what its own tenant sent there.
    fn is_within_reach(&self, principal: &Principal) -> bool {
        let standing = principal.standing();
        let mut named = [&self.tenant, &self.sender].into_iter().flatten().map(String::as_str).peekable();
        let owner = self.destination.as_deref().map(owner_of);
        named.peek().is_none() || named.chain(owner).any(|tenant| standing.reads(tenant))
    }
}

/// The stored answer itself, byte for byte.
#[utoipa::path(get, path = "/v1/claims/{key}/answer", tag = "claims", params(("key" = String, Path, description = "The message's id"), Which),
    responses((status = 200, description = "What the processor answered, with its content type")))]
pub(super) async fn answer(
    State(app): State<Shared>,
    principal: Principal,
    Segments(key): Segments<String>,
    Params(which): Params<Which>,
) -> Result<Response, Problem> {
    let claim = one(&app, &principal, &key, &which).await?;
    let delivery = claim.claim.progress.as_ref().map(|it| it.delivery);
    let nothing = || Refusal::new(Reason::NotFound, "no answer is kept of it");
    if claim.erased_at.is_some() {
        return Err(Refusal::new(Reason::NotFound, "its answer was erased").into());
    }
    let answer = app.gate.answer_of(&claim, delivery.ok_or_else(nothing)?).await?.ok_or_else(nothing)?;
    let mut response = answer.body.into_response();
    let media = answer.content_type.as_deref().and_then(|it| HeaderValue::from_str(it).ok());
    let media = media.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(CONTENT_TYPE, media);
    // Whatever a processor answered, no browser makes a page of it.
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response.headers_mut().insert("content-security-policy", HeaderValue::from_static("sandbox"));
    Ok(response)
}

/// The message that was taken under an id, wherever it is kept.
#[utoipa::path(get, path = "/v1/claims/{key}/message", tag = "claims", params(("key" = String, Path, description = "The message's id"), Which),
    responses((status = 200, body = MessageDocument)))]
pub(super) async fn message(
    State(app): State<Shared>,
    principal: Principal,
    Segments(key): Segments<String>,
    Params(which): Params<Which>,
) -> Result<Response, Problem> {
    let claim = one(&app, &principal, &key, &which).await?;
    if claim.erased_at.is_some() {
        return Err(Refusal::new(Reason::NotFound, "what it said was erased").into());
    }
    let (number, id) = (claim.claim.message, &claim.key);
    let message = match app.gate.store().message(id.tenant.as_str(), number).await? {
        Some(logged) => Some(logged.message),
        None => {
            let id = IdKey { id: id.id.clone(), tenant: id.tenant.clone() };
            app.gate.archived_message(&id, number).await?.map(|it| it.message)
        }
    };
    let nothing = || Refusal::new(Reason::NotFound, "no message of it is kept");
    let message = message.ok_or_else(nothing)?;
    Ok(json(StatusCode::OK, &MessageDocument::try_from(&message)?))
}

async fn one(app: &App, principal: &Principal, key: &str, which: &Which) -> Result<StoredClaim, Problem> {
    let look_up = which.look_up(app, principal, message_id(key)?).await?;
    let mut claims = seen_claims(app, principal, &look_up).await?;
    match (claims.len(), claims.pop()) {
        (1, Some(claim)) => Ok(claim),
        (0, _) | (_, None) => Err(Refusal::new(Reason::NotFound, "there is no such claim").into()),
        (count, Some(last)) => {
            let some = claims.iter().take(CANDIDATES_TOLD_MAX - 1).chain([&last]);
            let some = some.map(|it| format!("{} from tenant {}", it.key.destination, it.key.tenant));
            let detail = format!(
                "the id has {count} claims, for example at {}: name one by ?destination=<destination> and ?sender=<tenant>",
                some.collect::<Vec<_>>().join(" and at ")
            );
            Err(Refusal::new(Reason::InvalidRequest, detail).into())
        }
    }
}

/// Why it is done again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReprocessBody {
    /// For the record.
    why: String,
}

/// Puts what failed, or is in doubt, back to be processed again, under the same id.
#[utoipa::path(post, path = "/v1/claims/{key}/reprocess", tag = "claims", params(("key" = String, Path, description = "The message's id"), Which),
    request_body = ReprocessBody, responses((status = 200, body = ClaimDocument)))]
pub(super) async fn reprocess(
    State(app): State<Shared>,
    principal: Principal,
    Segments(key): Segments<String>,
    Params(which): Params<Which>,
    JsonBody(body): JsonBody<ReprocessBody>,
) -> Result<Response, Problem> {
    let unsettled = unsettled(&app, &principal, &key, &which).await?;
    let act = act(&app, &principal, &body.why)?;
    let redriven = app.gate.store().reprocess(&unsettled.owner, unsettled.delivery, act).await?;
    if !redriven.full.is_empty() {
        return Err(Refusal::new(Reason::Overloaded, "its queue is full; it stays as it is").into());
    }
    if !redriven.held.is_empty() {
        return Err(held_back().into());
    }
    if redriven.back.is_empty() {
        let detail = "its delivery is gone, for example purged. Look whether it was done: if it was, settle it; only if not, send it again under a new id";
        return Err(Refusal::new(Reason::NotFound, detail).into());
    }
    let now = app.clock.now();
    let claim = one(&app, &principal, &key, &which).await?;
    Ok(json(StatusCode::OK, &ClaimDocument::new(&claim, now)))
}

/// What waits for a person, and whose it is.
struct Unsettled {
    owner: String,
    delivery: Serial,
}

/// The claim that is meant, if a person is to move it on and the caller may.
async fn unsettled(app: &App, principal: &Principal, key: &str, which: &Which) -> Result<Unsettled, Problem> {
    let claim = one(app, principal, key, which).await?;
    if !claim.claim.is_live(app.clock.now()) {
        let detail = "the time of its claim is over; its dead letter can be put back beyond the horizon";
        return Err(Refusal::new(Reason::NotFound, detail).into());
    }
    if !does(principal, &claim.key.destination) {
        return Err(forbidden("only the service that does the work may do this").into());
    }
    let owner = owner_of(&claim.key.destination);
    let owner = whose::tenant(app, principal, Permission::Mend, Some(owner)).await?;
    let status = claim.status(app.clock.now());
    let delivery = claim.claim.progress.as_ref().map(|it| it.delivery);
    let delivery = delivery.filter(|_| status.waits_for_a_person()).ok_or_else(|| no_longer(status))?;
    Ok(Unsettled { owner, delivery })
}

fn no_longer(status: Status) -> Refusal {
    let detail = format!("it is {}: this is for what failed for good or is in doubt", status.as_str());
    Refusal::new(Reason::RegistryConflict, detail)
}

/// A hold keeps what was answered last.
pub(super) fn held_back() -> Refusal {
    Refusal::new(Reason::Held, "a hold is on what was answered last, which this would destroy")
}

/// That it was done.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleBody {
    /// The posting reference under which it was found.
    reference: Option<String>,
    /// How that is known, for the record.
    why: String,
}

/// Puts it on record that what failed for good, or is in doubt, was done after all: it is complete, and is not tried again.
#[utoipa::path(post, path = "/v1/claims/{key}/settle", tag = "claims", params(("key" = String, Path, description = "The message's id"), Which),
    request_body = SettleBody, responses((status = 200, body = ClaimDocument)))]
pub(super) async fn settle(
    State(app): State<Shared>,
    principal: Principal,
    Segments(key): Segments<String>,
    Params(which): Params<Which>,
    JsonBody(body): JsonBody<SettleBody>,
) -> Result<Response, Problem> {
    let Unsettled { owner, delivery } = unsettled(&app, &principal, &key, &which).await?;
    check_reference(body.reference.as_deref())?;
    let act = act(&app, &principal, &body.why)?;
    match app.gate.store().settle_claim(&owner, delivery, body.reference, act).await? {
        Some(Ok(Status::Completed)) => {}
        Some(Ok(status)) => return Err(no_longer(status).into()),
        Some(Err(HeldBack)) => return Err(held_back().into()),
        None => return Err(Refusal::new(Reason::NotFound, "there is no such claim").into()),
    }
    let claim = one(&app, &principal, &key, &which).await?;
    Ok(json(StatusCode::OK, &ClaimDocument::new(&claim, app.clock.now())))
}
