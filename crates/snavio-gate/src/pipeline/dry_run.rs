//! A dry run: judges a message stage by stage without an effect (REG-3).

use std::sync::Arc;

use snavio_model::claim::IdKey;
use snavio_model::delivery::DeadReason;
use snavio_model::identity::permission::Standing;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{BoundRoute, Registry, Route};
use snavio_model::settle::Outcome;
use snavio_model::time::Timestamp;

use crate::Gate;
use crate::commit::committer::Failure;
use crate::pipeline::fast::Permitted;
use crate::pipeline::shield::Arrival;
use crate::pipeline::{fast, settle as slow, shield};
use crate::registry::currency::Currency;

/// One check of a dry run, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The stage: `shield`, `fast` or `slow`.
    pub stage: &'static str,
    /// The name of the check.
    pub check: &'static str,
    pub verdict: StepVerdict,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepVerdict {
    /// The check passed; the text has the details.
    Passed(String),
    /// The message is refused by this check.
    Refused(Refusal),
    /// The check does not apply; the text says why.
    Skipped(&'static str),
}

/// The steps of a dry run so far.
#[derive(Debug, Default)]
pub(crate) struct Steps(pub(crate) Vec<Step>);

impl Steps {
    /// Records the result of a check. Returns `None` after a refusal, which ends the dry run.
    pub(crate) fn record(
        &mut self,
        stage: &'static str,
        check: &'static str,
        result: Result<String, Refusal>,
    ) -> Option<()> {
        let is_passed = result.is_ok();
        let verdict = result.map_or_else(StepVerdict::Refused, StepVerdict::Passed);
        self.0.push(Step { stage, check, verdict });
        is_passed.then_some(())
    }

    /// Records that a check does not apply.
    pub(crate) fn skip(&mut self, stage: &'static str, check: &'static str, why: &'static str) {
        self.0.push(Step { stage, check, verdict: StepVerdict::Skipped(why) });
    }
}

impl Gate {
    /// Judges a message by a registry, the one in force or a planned one, up to its first refusal. A
    /// `trusted` caller need not sign. Only a caller that may read the target's data sees how the target
    /// treats the message; other callers see no more than a real message would tell them.
    pub async fn dry_run(
        &self,
        arrival: &Arrival,
        registry: &Registry,
        trusted: bool,
        asking: Standing<'_>,
    ) -> Vec<Step> {
        let mut steps = Steps::default();
        self.walk(arrival, registry, trusted, asking, &mut steps).await;
        steps.0
    }

    async fn walk(
        &self,
        arrival: &Arrival,
        registry: &Registry,
        trusted: bool,
        asking: Standing<'_>,
        steps: &mut Steps,
    ) -> Option<()> {
        let authentic = shield::walk(arrival, registry, self.window(), trusted, steps)?;
        let now = self.clock().now();
        let fresh = Currency::of_now(now);
        let (mode, order) = (self.dispatch(), &self.settings.order);
        let permitted = match fast::permit(authentic, registry, &fresh, mode, order, true) {
            Ok(permitted) => permitted,
            Err(refused) => {
                let check = match refused.refusal.reason {
                    Reason::RouteMissing => "route",
                    Reason::Malformed => "order",
                    _ => "grant",
                };
                if check != "grant" {
                    steps.record("fast", "grant", Ok("there is a grant".to_owned()));
                }
                if check == "order" {
                    steps.record("fast", "route", Ok("there is a route".to_owned()));
                }
                return steps.record("fast", check, Err(refused.refusal));
            }
        };
        let message = permitted.message();
        let may_read_target = asking.reads(message.target.tenant());
        steps.record(
            "fast",
            "grant",
            Ok(format!("{} may send {} to {}", message.source, message.name, message.target)),
        );
        let by_route = if may_read_target { route_text(&permitted) } else { "there is a route".to_owned() };
        steps.record("fast", "route", Ok(by_route));
        // The store does not judge by the registry that is given here, because it may be a planned one.
        let policies: Vec<_> = permitted
            .routes()
            .iter()
            .map(|route| may_read_target.then(|| format!(", under policy {},", route.route.claim.name())))
            .collect();
        let (id, source) = (message.id.clone(), message.source.clone());
        let id = IdKey { id, tenant: message.tenant.clone() };
        let settled = self.store().foresee(permitted.into_intake(), now).await.map_err(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "a dry run could not ask the store");
            Failure::Store
        });
        let result = slow::judged(settled).map(|settlement| {
            let texts = settlement
                .outcomes
                .iter()
                .zip(policies)
                .map(|(outcome, policy)| outcome_text(outcome, policy));
            texts.collect::<Vec<_>>().join("; ")
        });
        let result = match result {
            Err(refusal) if refusal.reason == Reason::Conflict => {
                // Both kinds of conflict get the same answer. Two answers would tell a service that guesses
                // another service's payload under its id whether the guess is right. The text does not advise
                // a new id: under a new id, a message that was already accepted would be processed twice.
                let detail = match self.is_own_id(&id, &source, now).await {
                    true => "this id means something else already; a conflict would be put on record",
                    false => "this id is in use, for other content or by another service of the tenant",
                };
                Err(Refusal::new(Reason::Conflict, detail))
            }
            result => result,
        };
        steps.record("slow", "claim", result)
    }

    /// Whether a service has used an id and no other service of its tenant has.
    async fn is_own_id(&self, id: &IdKey, source: &ServiceName, now: Timestamp) -> bool {
        let claims = self.store().claims_of(id, now).await.unwrap_or_default();
        !claims.is_empty() && claims.iter().all(|stored| stored.claim.source == *source)
    }
}

/// The text about the outcome at one destination.
fn outcome_text(outcome: &Outcome, policy: Option<String>) -> String {
    match outcome {
        Outcome::Duplicate { first_seen_at } | Outcome::Seen { first_seen_at, .. } => {
            format!("a duplicate: its id was first seen at {first_seen_at}, nothing would be dispatched")
        }
        Outcome::Buried { reason: DeadReason::OutOfOrder, .. } => {
            "a dead letter: it comes after a later one of its entity".to_owned()
        }
        Outcome::Buried { reason: DeadReason::OrderUnreadable, .. } => {
            "a dead letter: its entity or its number cannot be read".to_owned()
        }
        Outcome::Buried { .. } => "a dead letter: the queue is full".to_owned(),
        Outcome::Skipped => "late: it would be recorded and not delivered".to_owned(),
        Outcome::Held { .. } => "early: it would wait for missing messages of its entity".to_owned(),
        Outcome::Parked { .. } => {
            "parked: it would queue behind a message of its entity that failed for good".to_owned()
        }
        _ => format!("the id is free{} and the queue has room", policy.unwrap_or_default()),
    }
}

/// The text about the destinations and the path.
fn route_text(permitted: &Permitted) -> String {
    let path = match permitted.escalation() {
        Some(reason) => format!("the slow path, because of {}", reason.as_str()),
        None => "the fast path".to_owned(),
    };
    let to = |route: &Arc<BoundRoute>| {
        let Route { queue, dead_letter_queue, .. } = &route.route;
        format!("to queue {queue}, dead letters to {dead_letter_queue}")
    };
    let ways: Vec<_> = permitted.routes().iter().map(to).collect();
    format!("{}, by {path}", ways.join("; "))
}
