//! What would happen to a message, stage by stage, without anything of it happening (REG-3).

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

/// One check on the way, and how it would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The stage: `shield`, `fast` or `slow`.
    pub stage: &'static str,
    /// What is checked.
    pub check: &'static str,
    /// How it goes.
    pub verdict: StepVerdict,
}

/// How a check would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepVerdict {
    /// It holds, by what is said.
    Passed(String),
    /// The message is refused here.
    Refused(Refusal),
    /// Nothing was there to be checked.
    Skipped(&'static str),
}

/// The steps of a message so far.
#[derive(Debug, Default)]
pub(crate) struct Steps(pub(crate) Vec<Step>);

impl Steps {
    /// Notes how a check went; nothing comes after a refusal.
    pub(crate) fn note(
        &mut self,
        stage: &'static str,
        check: &'static str,
        went: Result<String, Refusal>,
    ) -> Option<()> {
        let is_passed = went.is_ok();
        let verdict = went.map_or_else(StepVerdict::Refused, StepVerdict::Passed);
        self.0.push(Step { stage, check, verdict });
        is_passed.then_some(())
    }

    /// Notes that a check has nothing to check.
    pub(crate) fn skip(&mut self, stage: &'static str, check: &'static str, why: &'static str) {
        self.0.push(Step { stage, check, verdict: StepVerdict::Skipped(why) });
    }
}

impl Gate {
    /// Judges a message by a registry, the one in force or one that somebody thinks of, up to its first refusal.
    /// Whoever is trusted need not sign. How the target treats it is told to those who may read what it has; others
    /// are told no more than sending it would tell them.
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
                    steps.note("fast", "grant", Ok("there is a grant".to_owned()));
                }
                if check == "order" {
                    steps.note("fast", "route", Ok("there is a route".to_owned()));
                }
                return steps.note("fast", check, Err(refused.refusal));
            }
        };
        let message = permitted.message();
        let is_inside = asking.reads(message.target.tenant());
        steps.note(
            "fast",
            "grant",
            Ok(format!("{} may send {} to {}", message.source, message.name, message.target)),
        );
        let by_route = if is_inside { way(&permitted) } else { "there is a route".to_owned() };
        steps.note("fast", "route", Ok(by_route));
        // What hangs on the registry is not asked about: the registry may be one that is only thought of.
        let policies: Vec<_> = permitted
            .routes()
            .iter()
            .map(|route| is_inside.then(|| format!(", under policy {},", route.route.claim.name())))
            .collect();
        let (id, source) = (message.id.clone(), message.source.clone());
        let id = IdKey { id, tenant: message.tenant.clone() };
        let foreseen = self.store().foresee(permitted.into_intake(), now).await.map_err(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "a dry run could not ask the store");
            Failure::Store
        });
        let went = slow::judged(foreseen).map(|settlement| {
            let told =
                settlement.outcomes.iter().zip(policies).map(|(outcome, policy)| foretold(outcome, policy));
            told.collect::<Vec<_>>().join("; ")
        });
        let went = match went {
            Err(refusal) if refusal.reason == Reason::Conflict => {
                // One answer for both kinds of conflict: two would tell a service that guesses another one's payload
                // under its id whether the guess is right. It names no new id, under which a message that was taken
                // would be done twice.
                let detail = match self.is_own_id(&id, &source, now).await {
                    true => "this id means something else already; a conflict would be put on record",
                    false => "this id is in use, for other content or by another service of the tenant",
                };
                Err(Refusal::new(Reason::Conflict, detail))
            }
            went => went,
        };
        steps.note("slow", "claim", went)
    }

    /// Whether a service has used an id, and no other service of its tenant has.
    async fn is_own_id(&self, id: &IdKey, source: &ServiceName, now: Timestamp) -> bool {
        let claims = self.store().claims_of(id, now).await.unwrap_or_default();
        !claims.is_empty() && claims.iter().all(|stored| stored.claim.source == *source)
    }
}

/// What would become of a message at one destination.
fn foretold(outcome: &Outcome, policy: Option<String>) -> String {
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
        Outcome::Buried { .. } => "a dead letter: the queue holds as much as it may".to_owned(),
        Outcome::Skipped => "late: it would be recorded and left out".to_owned(),
        Outcome::Held { .. } => "early: it would wait for those before it in its entity".to_owned(),
        Outcome::Parked { .. } => "it would queue behind one of its entity that failed for good".to_owned(),
        _ => format!("the id is free{} and the queue has room", policy.unwrap_or_default()),
    }
}

/// Where a message goes, and how.
fn way(permitted: &Permitted) -> String {
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
