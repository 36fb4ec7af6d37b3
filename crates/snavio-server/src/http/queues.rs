//! Consuming: receive, acknowledge, extend, release, purge, redrive, attributes (DLV-2, DLV-3).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snavio_model::bounds;
use snavio_model::delivery::breaker::State as BreakerState;
use snavio_model::delivery::processing::Taker;
use snavio_model::delivery::{QueueAttributes, Receipt, ReceiptOutcome};
use snavio_model::id::Serial;
use snavio_model::identity::permission::Permission;
use snavio_model::name::{QueueKey, QueueName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{BoundRoute, Disabled, Registry};
use snavio_model::time::Clock;
use snavio_store::{Act, DeadLetterOrigin, Received, Report};
use utoipa::ToSchema;

use super::answer::json;
use super::claims::held_back;
use super::dead_letters::{beyond_horizon, is_beyond_horizon};
use super::extract::{JsonBody, Params, Segments, objects, seconds, within};
use super::message::MessageDocument;
use super::problem::Document;
use super::unknown::unknown;
use super::whose::{self, Whose};
use super::work::completed;
use super::{App, Problem, Shared, reason};
use crate::outlive::Outlive;
use crate::principal::Principal;

/// The queue, if the caller may do this to it: a service one that a route of its own names; people one that any route
/// of the tenant names, or that still holds something.
async fn queue(
    app: &App,
    principal: &Principal,
    permission: Permission,
    name: &str,
    whose: &Whose,
) -> Result<QueueKey, Problem> {
    let tenant = whose::tenant(app, principal, permission, whose.tenant.as_deref()).await?;
    let registry = app.gate.registry();
    let nothing = || {
        let of_caller = |route: &&Arc<BoundRoute>| match principal {
            Principal::Service(caller) => route.route.target == caller.service,
            Principal::Operator | Principal::Person(_) => true,
        };
        let queues = registry.routes().filter(of_caller).flat_map(|route| route.queues());
        unknown("queue", name, queues.filter(|queue| queue.tenant() == tenant).map(QueueKey::queue))
    };
    let key = QueueKey::new(&tenant, &QueueName::new(name).map_err(|_| nothing())?);
    let known = match principal {
        Principal::Service(caller) => {
            let service = registry.service(caller.service.as_str());
            service.is_some_and(|it| {
                it.routes().chain(it.subscriptions()).any(|route| route.queues().contains(&&key))
            })
        }
        Principal::Operator | Principal::Person(_) => {
            registry.queues().any(|it| *it == key) || app.gate.store().holds_any(&key).await?
        }
    };
    if known { Ok(key) } else { Err(nothing().into()) }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiveBody {
    /// How many at most: 1 when not said.
    #[schema(minimum = 1, maximum = 10)]
    max: Option<usize>,
    /// How long nobody else gets them: 30 when not said.
    #[schema(maximum = 43200)]
    visibility_seconds: Option<u64>,
    /// How long to wait for the first one.
    #[serde(default)]
    #[schema(maximum = 20)]
    wait_seconds: u64,
}

/// Hands out deliveries, waiting for the first one as long as asked.
#[utoipa::path(post, path = "/v1/queues/{queue}/receive", tag = "queues", params(("queue" = String, Path), Whose),
    request_body = ReceiveBody,
    responses((status = 200, body = Deliveries)))]
pub(super) async fn receive(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    Params(whose): Params<Whose>,
    JsonBody(body): JsonBody<ReceiveBody>,
) -> Result<Response, Problem> {
    let queue = queue(&app, &principal, Permission::Mend, &name, &whose).await?;
    check_taken_by_consumers(&app, &principal, &queue)?;
    let max = within("max", body.max.unwrap_or(1), 1, bounds::RECEIVE_MESSAGES_MAX)?;
    let visibility = seconds(
        "visibility_seconds",
        body.visibility_seconds,
        bounds::VISIBILITY_DEFAULT,
        bounds::VISIBILITY_MAX,
    )?;
    let wait = seconds("wait_seconds", Some(body.wait_seconds), Duration::ZERO, bounds::RECEIVE_WAIT_MAX)?;
    let received = wait_for_deliveries(&app, &principal, &queue, max, visibility, wait).await?;
    let deliveries = received.iter().map(Delivery::try_from).collect::<Result<_, _>>()?;
    Ok(json(StatusCode::OK, &Deliveries { deliveries }))
}

/// What the gateway calls a processor for, or a claim's worker begins, is nobody else's to take.
fn check_taken_by_consumers(app: &App, principal: &Principal, queue: &QueueKey) -> Result<(), Refusal> {
    let Principal::Service(caller) = principal else { return Ok(()) };
    let registry = app.gate.registry();
    let view = registry.service(caller.service.as_str());
    let mut own = view.into_iter().flat_map(|it| it.routes().chain(it.subscriptions()));
    if own.any(|it| it.queue == *queue && it.route.processing.kind.taker() != Taker::Consumers) {
        let detail = "what waits here is processed by the gateway, or begun through the claims API";
        return Err(Refusal::new(Reason::InvalidRequest, detail));
    }
    Ok(())
}

async fn wait_for_deliveries(
    app: &App,
    principal: &Principal,
    queue: &QueueKey,
    max: usize,
    visibility: Duration,
    wait: Duration,
) -> Result<Vec<Received>, Problem> {
    let store = app.gate.store();
    let arrivals = store.arrivals(queue);
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let arrival = arrivals.notified();
        tokio::pin!(arrival);
        arrival.as_mut().enable();
        let received = store.receive(queue, max, visibility, app.clock.now()).await?;
        if !received.is_empty() || !app.wait(arrival, deadline).await {
            return Ok(received);
        }
        // Who may not any more by now gets nothing of what came meanwhile (REG-15).
        app.gate.check_age().await?;
        principal.check_again(&app.gate.registry(), app.clock.now())?;
        check_taken_by_consumers(app, principal, queue)?;
    }
}

/// What was handed out.
#[derive(Serialize, ToSchema)]
pub(super) struct Deliveries<'a> {
    deliveries: Vec<Delivery<'a>>,
}

/// A delivery as a consumer sees it.
#[derive(Serialize, ToSchema)]
pub(super) struct Delivery<'a> {
    /// The same over all attempts.
    delivery_id: i64,
    /// Rises with every attempt.
    fence: i64,
    attempt: u32,
    queued_at: String,
    /// Until when nobody else gets it.
    visible_at: String,
    message: MessageDocument<'a>,
}

impl<'a> TryFrom<&'a Received> for Delivery<'a> {
    type Error = Refusal;

    fn try_from(received: &'a Received) -> Result<Self, Refusal> {
        Ok(Self {
            delivery_id: received.delivery_id.0,
            fence: received.fence.0,
            attempt: received.attempt,
            queued_at: received.queued_at.to_string(),
            visible_at: received.visible_at.to_string(),
            message: MessageDocument::try_from(&*received.message)?,
        })
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AckBody {
    #[serde(deserialize_with = "objects")]
    receipts: Vec<Receipt>,
    /// What the work is known by to whoever did it, for example a posting reference; with one receipt. It is kept
    /// where the route is `tracked`.
    #[schema(min_length = 1, max_length = 256)]
    reference: Option<String>,
    /// What senders are answered, now and when they send it again: any JSON value, with one receipt. It is kept where
    /// the route is `tracked` and its claims keep answers.
    #[schema(value_type = Option<serde_json::Value>)]
    response: Option<Box<RawValue>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtendBody {
    #[serde(deserialize_with = "objects")]
    receipts: Vec<Receipt>,
    visibility_seconds: Option<u64>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseBody {
    #[serde(deserialize_with = "objects")]
    receipts: Vec<Receipt>,
    #[serde(default)]
    delay_seconds: u64,
    /// What went wrong, for people: the first 500 characters are kept in the claim where the route is `tracked`.
    error: Option<String>,
    /// Whether nobody knows if the work is done: it is received again all the same, unless its route holds that.
    #[serde(default)]
    unknown: bool,
}

fn check(receipts: &[Receipt]) -> Result<(), Refusal> {
    within("the number of receipts", receipts.len(), 1, bounds::ACK_MESSAGES_MAX).map(|_| ())
}

/// Ends deliveries for good. `done` is durable.
#[utoipa::path(post, path = "/v1/queues/{queue}/ack", tag = "queues", params(("queue" = String, Path), Whose),
    request_body = AckBody,
    responses((status = 200, body = Outcomes), (status = 409, body = Fenced, content_type = "application/problem+json", description = "A single receipt, and it was fenced")))]
pub(super) async fn acknowledge(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    Params(whose): Params<Whose>,
    JsonBody(body): JsonBody<AckBody>,
) -> Result<Response, Problem> {
    check(&body.receipts)?;
    let queue = queue(&app, &principal, Permission::Mend, &name, &whose).await?;
    let AckBody { receipts, reference, response } = body;
    let mut reports: Vec<_> = receipts.iter().copied().map(Report::done).collect();
    if reference.is_some() || response.is_some() {
        let [report] = reports.as_mut_slice() else {
            let detail = "reference and response are of one delivery: send one receipt with them";
            return Err(Refusal::new(Reason::InvalidRequest, detail).into());
        };
        report.kept_at = if response.is_some() { keeping(&app.gate.registry(), &queue) } else { Vec::new() };
        report.ending = completed(reference, response)?;
    }
    finish(&app, &principal, queue, reports, &receipts).await
}

/// The destinations of a queue whose claims keep what was answered.
fn keeping(registry: &Registry, queue: &QueueKey) -> Vec<Arc<str>> {
    registry.routes().filter(|it| it.queue == *queue).flat_map(|it| it.keeps_answers_at()).collect()
}

/// Hides deliveries for longer.
#[utoipa::path(post, path = "/v1/queues/{queue}/extend", tag = "queues", params(("queue" = String, Path), Whose),
    request_body = ExtendBody,
    responses((status = 200, body = Outcomes), (status = 409, body = Fenced, content_type = "application/problem+json", description = "A single receipt, and it was fenced")))]
pub(super) async fn extend(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    Params(whose): Params<Whose>,
    JsonBody(body): JsonBody<ExtendBody>,
) -> Result<Response, Problem> {
    check(&body.receipts)?;
    let queue = queue(&app, &principal, Permission::Mend, &name, &whose).await?;
    let visibility = seconds(
        "visibility_seconds",
        body.visibility_seconds,
        bounds::VISIBILITY_DEFAULT,
        bounds::VISIBILITY_MAX,
    )?;
    let now = app.clock.now();
    let outcomes = app.gate.store().extend(&queue, body.receipts.clone(), visibility, now).await?;
    Ok(outcomes_response(&body.receipts, &outcomes))
}

/// Gives deliveries back, to be received again after a delay.
#[utoipa::path(post, path = "/v1/queues/{queue}/release", tag = "queues", params(("queue" = String, Path), Whose),
    request_body = ReleaseBody,
    responses((status = 200, body = Outcomes), (status = 409, body = Fenced, content_type = "application/problem+json", description = "A single receipt, and it was fenced")))]
pub(super) async fn release(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    Params(whose): Params<Whose>,
    JsonBody(body): JsonBody<ReleaseBody>,
) -> Result<Response, Problem> {
    check(&body.receipts)?;
    let queue = queue(&app, &principal, Permission::Mend, &name, &whose).await?;
    let delay = seconds("delay_seconds", Some(body.delay_seconds), Duration::ZERO, bounds::VISIBILITY_MAX)?;
    let at = app.clock.now().plus(delay);
    let why = body.error.as_deref().filter(|it| !it.is_empty());
    let back = if body.unknown { Report::given_back_unknown } else { Report::given_back };
    let reports = body.receipts.iter().map(|it| back(*it, at, why)).collect();
    finish(&app, &principal, queue, reports, &body.receipts).await
}

/// Hands reports to the gate. Who hangs up meanwhile has reported all the same.
async fn finish(
    app: &Shared,
    principal: &Principal,
    queue: QueueKey,
    reports: Vec<Report>,
    receipts: &[Receipt],
) -> Result<Response, Problem> {
    let (running, who) = (Arc::clone(app), principal.name());
    let finished = Outlive::new(async move { running.gate.finish(&queue, reports, &who).await }).await?;
    let outcomes: Vec<_> = finished.iter().map(|it| it.outcome).collect();
    Ok(outcomes_response(receipts, &outcomes))
}

/// What became of each receipt, in order.
#[derive(Serialize, ToSchema)]
pub(super) struct Outcomes {
    results: Vec<OutcomeOf>,
}

/// What became of a receipt.
#[derive(Serialize, ToSchema)]
pub(super) struct OutcomeOf {
    delivery_id: i64,
    outcome: ReceiptOutcome,
}

/// A receipt that was fenced, alone in its request.
#[derive(Serialize, ToSchema)]
struct Fenced {
    #[serde(flatten)]
    problem: Document,
    #[serde(flatten)]
    outcomes: Outcomes,
}

/// Each receipt's outcome; a problem when a single one was fenced, so that nobody has to look for it.
fn outcomes_response(receipts: &[Receipt], outcomes: &[ReceiptOutcome]) -> Response {
    let of = |(receipt, outcome): (&Receipt, &ReceiptOutcome)| OutcomeOf {
        delivery_id: receipt.delivery_id.0,
        outcome: *outcome,
    };
    let results = Outcomes { results: receipts.iter().zip(outcomes).map(of).collect() };
    if outcomes != [ReceiptOutcome::Fenced] {
        return json(StatusCode::OK, &results);
    }
    let problem = Problem::from(Refusal::new(Reason::Fenced, "the delivery was handed out again since"));
    problem.answer(&Fenced { problem: problem.document(), outcomes: results })
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ActBody {
    #[serde(default)]
    pub(super) why: String,
}

pub(super) fn act(app: &App, principal: &Principal, why: &str) -> Result<Act, Refusal> {
    reason::check(why)?;
    Ok(Act { who: principal.name(), why: why.to_owned(), at: app.clock.now() })
}

/// How many deliveries were deleted.
#[derive(Serialize, ToSchema)]
pub(super) struct Purged {
    purged: u64,
    /// Those that were tried before, and a claim waits for or later ones of their entity stay behind: dead letters now, since
    /// they may be done.
    in_doubt: u64,
    /// Those that a claim waits for and somebody is at: they stay until that has ended.
    in_progress: u64,
}

/// Deletes everything that waits in the queue or is in flight, but for what a claim waits for and somebody is at. What was tried
/// before is a dead letter then, and its claim in doubt.
#[utoipa::path(post, path = "/v1/queues/{queue}/purge", tag = "queues", params(("queue" = String, Path), Whose),
    request_body = ActBody,
    responses((status = 200, body = Purged)))]
pub(super) async fn purge(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    Params(whose): Params<Whose>,
    JsonBody(body): JsonBody<ActBody>,
) -> Result<Response, Problem> {
    let queue = queue(&app, &principal, Permission::Mend, &name, &whose).await?;
    let purged = app.gate.store().purge(&queue, act(&app, &principal, &body.why)?).await?;
    let snavio_store::Purged { deleted, in_doubt, in_progress } = purged;
    Ok(json(StatusCode::OK, &Purged { purged: deleted, in_doubt, in_progress }))
}

/// Why dead letters are put back.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RedriveBody {
    #[serde(default)]
    why: String,
    /// Also those whose claim is over, and whose id may have been taken up again since; needs a reason (CLM-20).
    #[serde(default)]
    pub(super) beyond_horizon: bool,
}

impl RedriveBody {
    /// What goes on the record.
    pub(super) fn act(&self, app: &App, principal: &Principal) -> Result<Act, Refusal> {
        if !self.beyond_horizon {
            return act(app, principal, &self.why);
        }
        if self.why.trim().is_empty() {
            let detail = "say why it may run again beyond the horizon of its claim";
            return Err(Refusal::new(Reason::InvalidRequest, detail));
        }
        act(app, principal, &format!("beyond the horizon: {}", self.why))
    }
}

/// How many dead letters went back.
#[derive(Serialize, ToSchema)]
pub(super) struct Redriven {
    pub(super) redriven: usize,
    /// Whether there are more to redrive.
    pub(super) more: bool,
    /// Those that stay because a hold is on what their last attempt answered.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) held: usize,
    /// Those that stay because their claims are `IN_DOUBT`: `/v1/claims/{key}/settle` and `reprocess` decide them.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) in_doubt: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Redriven {
    /// What the store did, and how many dead letters stay in doubt; where it could do nothing for want of room, a refusal that says to come back later.
    pub(super) fn of(done: snavio_store::Redriven, in_doubt_count: usize) -> Result<Self, Refusal> {
        if done.back.is_empty() && done.full.is_empty() && in_doubt_count > 0 {
            return Err(in_doubt("snavio claims list --status in_doubt lists them"));
        }
        if done.back.is_empty() && done.full.is_empty() && !done.held.is_empty() {
            return Err(held_back());
        }
        if done.back.is_empty() && !done.full.is_empty() {
            return Err(Refusal::new(
                Reason::Overloaded,
                "the queue it came from is full; it stays a dead letter",
            ));
        }
        Ok(Self {
            redriven: done.back.len(),
            more: !done.full.is_empty(),
            held: done.held.len(),
            in_doubt: in_doubt_count,
        })
    }
}

/// The refusal to redrive claims that are in doubt (CLM-11).
pub(super) fn in_doubt(which: &str) -> Refusal {
    let detail = format!(
        "the claim is IN_DOUBT, and redrive never puts such work back ({which}): look whether it was done, \
         then decide it with snavio claims settle if it was, or snavio claims reprocess if it was not"
    );
    Refusal::new(Reason::OutcomeUnknown, detail)
}

/// Puts dead letters of this dead-letter queue back where they came from, a bounded number per call. Those whose claims are
/// `IN_DOUBT` stay: `/v1/claims/{key}/reprocess` and `settle` decide them. What was purged goes back by itself alone.
#[utoipa::path(post, path = "/v1/queues/{queue}/redrive", tag = "queues", params(("queue" = String, Path), Whose),
    request_body = RedriveBody,
    responses((status = 200, body = Redriven)))]
pub(super) async fn redrive(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    Params(whose): Params<Whose>,
    JsonBody(body): JsonBody<RedriveBody>,
) -> Result<Response, Problem> {
    let queue = queue(&app, &principal, Permission::Mend, &name, &whose).await?;
    let store = app.gate.store();
    let registry = app.gate.registry();
    let receivable: HashSet<_> = receivable(&registry).collect();
    let (mut after, mut done) = (Serial(0), snavio_store::Redriven::default());
    let (mut unnamed, mut beyond) = (0, 0);
    let mut claimed: HashMap<Arc<str>, bool> = HashMap::new();
    // Past what cannot go back, until something does.
    loop {
        let page = store.dead_letter_origins(&queue, after, bounds::PAGE_MAX).await?;
        let is_last = page.len() < bounds::PAGE_MAX;
        after = page.last().map_or(after, |it| it.id);
        let own = page.into_iter().filter(|it| does(&principal, &it.destination));
        let (named, others): (Vec<_>, Vec<_>) = own.partition(|it| receivable.contains(&it.queue));
        unnamed += others.len();
        let mut ids = Vec::with_capacity(named.len());
        for DeadLetterOrigin { id, destination, .. } in named {
            let may_be_over = !body.beyond_horizon
                && match claimed.get(&destination) {
                    Some(claimed) => *claimed,
                    None => {
                        let is_claimed = app.gate.ever_claimed_at(&destination).await?;
                        *claimed.entry(destination).or_insert(is_claimed)
                    }
                };
            let letter = if may_be_over { store.dead_letter(queue.tenant(), id).await? } else { None };
            match letter {
                Some(letter) if is_beyond_horizon(&app, &letter).await? => beyond += 1,
                _ => ids.push(id),
            }
        }
        let redriven = store.redrive(queue.tenant(), ids, body.act(&app, &principal)?).await?;
        done.full.extend(redriven.full);
        done.held.extend(redriven.held);
        done.back.extend(redriven.back);
        if is_last || !done.back.is_empty() {
            if done.back.is_empty() && done.full.is_empty() && unnamed > 0 {
                return Err(no_route().into());
            }
            if done.back.is_empty() && done.full.is_empty() && beyond > 0 {
                return Err(beyond_horizon().into());
            }
            // Those that came to be in doubt amid the redrive are among them.
            let in_doubt = store.dead_letters_in_doubt(&queue).await?;
            let own = in_doubt.iter().filter(|(destination, _)| does(&principal, destination));
            let redriven = Redriven::of(done, own.map(|(_, count)| count).sum())?;
            return Ok(json(StatusCode::OK, &Redriven { more: redriven.more || !is_last, ..redriven }));
        }
    }
}

/// Whether somebody may have the work of a destination done again: a service only what it does itself (CLM-11).
pub(super) fn does(principal: &Principal, destination: &str) -> bool {
    match principal {
        Principal::Service(caller) => destination.split(':').next() == Some(caller.service.as_str()),
        Principal::Operator | Principal::Person(_) => true,
    }
}

/// The queues that somebody can receive from: what goes back to another would be lost to its service.
pub(super) fn receivable(registry: &Registry) -> impl Iterator<Item = &QueueKey> {
    registry.routes().map(|route| &route.queue)
}

/// The refusal to put back what nobody could receive (REG-24).
pub(super) fn no_route() -> Refusal {
    let detail = "no route names the queue it came from; register one, or leave it a dead letter";
    Refusal::new(Reason::RegistryConflict, detail)
}

/// What is known of a queue.
#[derive(Serialize, ToSchema)]
pub(super) struct QueueDocument {
    tenant: String,
    queue: String,
    #[serde(flatten)]
    attributes: QueueAttributes,
    /// Of a queue that the gateway takes from: how the one it calls is.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<TargetDocument>,
}

/// How the one is whom the gateway calls, as the node that answers knows it.
#[derive(Serialize, ToSchema)]
#[schema(as = Target)]
pub(super) struct TargetDocument {
    /// `closed`: it is called. `open`: it is down, and nothing is taken from the queue. `half_open`: one call finds out.
    breaker: BreakerState,
    /// Calls in a row that found it down.
    failures: u32,
    /// When it is tried again, while it is not called.
    #[serde(skip_serializing_if = "Option::is_none")]
    probes_at: Option<String>,
    /// When a call is tried again, while none finds a place on this node to look its name up: the target is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    crowded_until: Option<String>,
    /// Calls under way.
    calls: usize,
    /// Since when nothing is pushed any more, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled: Option<Disabled>,
    /// Why nothing is called all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'static str>,
}

fn target(app: &App, queue: &QueueKey) -> Option<TargetDocument> {
    let registry = app.gate.registry();
    let called = |it: &&Arc<BoundRoute>| it.queue == *queue && it.route.processing.kind.is_called();
    let route = registry.routes().find(called)?;
    let state = app.gate.target(queue);
    Some(TargetDocument {
        breaker: state.map_or(BreakerState::Closed, |it| it.breaker),
        failures: state.map_or(0, |it| it.failures),
        probes_at: state.and_then(|it| it.probes_at).map(|at| at.to_string()),
        crowded_until: state.and_then(|it| it.crowded_until).map(|at| at.to_string()),
        calls: state.map_or(0, |it| it.calls),
        disabled: route.route.disabled.as_deref().cloned(),
        problem: registry
            .lacks_push_secret(route)
            .then_some("there is no secret to sign pushes with: make one with snavio push rotate"),
    })
}

/// Depth, in flight, delayed, age of the oldest.
#[utoipa::path(get, path = "/v1/queues/{queue}", tag = "queues", params(("queue" = String, Path), Whose),
    responses((status = 200, body = QueueDocument)))]
pub(super) async fn attributes(
    State(app): State<Shared>,
    principal: Principal,
    Segments(name): Segments<String>,
    Params(whose): Params<Whose>,
) -> Result<Response, Problem> {
    let queue = queue(&app, &principal, Permission::Read, &name, &whose).await?;
    let attributes = app.gate.store().attributes(&queue, app.clock.now()).await?;
    let target = target(&app, &queue);
    let (tenant, queue) = (queue.tenant().to_owned(), queue.queue().to_owned());
    Ok(json(StatusCode::OK, &QueueDocument { tenant, queue, attributes, target }))
}
