//! Work that a processor begins by itself through the claims API (CLM-10). It is claimed, stored and leased
//! like any other work, without having come through a queue.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use snavio_model::claim::{IdKey, Status};
use snavio_model::delivery::Receipt;
use snavio_model::delivery::processing::ProcessingKind;
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::Journey;
use snavio_model::message::{Message, MessageKind, Path};
use snavio_model::name::{CommandName, ServiceName, TenantName};
use snavio_model::refusal::{Reason, Refusal, Refused, Subject};
use snavio_model::registry::BoundRoute;
use snavio_model::registry::age::Cache;
use snavio_model::settle::{Intake, Outcome};
use snavio_model::time::Timestamp;
use snavio_store::StoreError;

use crate::commit::committer::Submission;
use crate::gate::Gate;
use crate::outcome::answer::{Answer, Standing, Verdict};
use crate::outcome::follow::{Followed, unreadable};
use crate::pipeline::{settle as slow, shield};

/// A processor's request to begin work.
#[derive(Debug, Clone)]
pub struct Beginning {
    /// The processor's service.
    pub service: ServiceName,
    /// The name of the service's route.
    pub name: CommandName,
    pub id: MessageId,
    /// The business content, as JSON.
    pub payload: Bytes,
    /// The correlation id and trace context.
    pub journey: Journey,
}

impl Beginning {
    /// The subject of a refusal.
    fn subject(&self) -> Subject {
        Subject {
            id: Some(self.id.clone()),
            target: Some(self.service.clone()),
            name: Some(self.name.clone()),
            ..Subject::on(MessageKind::Command, self.journey.clone())
        }
    }
}

/// The result of a request to begin work.
#[derive(Debug, Clone)]
pub enum Begun {
    /// The caller holds the lease of the work until it reports or the deadline passes.
    New {
        /// The receipt handle for the report.
        receipt: Receipt,
        /// The number of the attempt, counted from 1.
        attempt: u32,
        /// The end of the lease. The caller must report or extend before it.
        deadline: Timestamp,
    },
    /// The work ended earlier, with this outcome.
    Known(Box<Followed>),
}

fn unavailable(error: &StoreError) -> Refusal {
    tracing::warn!(error = error as &dyn std::error::Error, "work could not be claimed or leased");
    Refusal::new(Reason::Unavailable, "the store cannot answer now")
}

impl Gate {
    /// Claims an id for work that the caller does itself, or returns the outcome of earlier work under the
    /// id. Metrics and telemetry count the message like one that came through a queue.
    pub async fn begin_work(
        &self,
        beginning: Beginning,
        held: impl Send + 'static,
    ) -> Result<Begun, Refusal> {
        self.check_age().await?;
        let (source, subject, now) = (beginning.service.clone(), beginning.subject(), self.clock().now());
        match self.begin_at(beginning, now, held).await {
            Ok((begun, answer)) => {
                answer.into_iter().for_each(|answer| self.report(&source, now, &Ok(answer)));
                begun
            }
            Err(refusal) => {
                let refused = Refused { subject: Box::new(subject), refusal: refusal.clone() };
                self.report(&source, now, &Err(refused));
                Err(refusal)
            }
        }
    }

    /// Returns the result for the caller and the answer to report. There is no answer to report for a further
    /// attempt. A new claim is reported even if its delivery could not be leased to the caller.
    async fn begin_at(
        &self,
        beginning: Beginning,
        now: Timestamp,
        held: impl Send + 'static,
    ) -> Result<(Result<Begun, Refusal>, Option<Answer>), Refusal> {
        let registry = self.registry();
        shield::check_source(&registry, &beginning.service, now)?;
        let view = registry.service(beginning.service.as_str());
        let route = view.and_then(|service| service.route(&beginning.name, now)).cloned();
        let missing = || Refusal::new(Reason::NotFound, "this service has no route with this name");
        let route = route.ok_or_else(missing)?;
        if route.route.processing.kind != ProcessingKind::Reported {
            let detail = "only routes with processing.kind reported begin work here";
            return Err(Refusal::new(Reason::InvalidRequest, detail));
        }
        let intake = self.intake(beginning, &route, registry.version(), now)?;
        drop(registry);
        self.meters.routed(&route);
        let answer = Answer::known(&intake.message, &intake.destinations);
        let id = IdKey { id: intake.message.id.clone(), tenant: intake.message.tenant.clone() };
        let submission = Submission { intake, reservation: None };
        let settled = slow::settle(vec![submission], &self.committer, Box::new(held)).await;
        let settlement = settled
            .into_iter()
            .next()
            .map_or_else(|| Err(Refusal::lost("the message was not judged")), |settled| settled.judged)?;
        let begun = match settlement.outcomes.first() {
            Some(Outcome::Queued { delivery }) => {
                let delivery = *delivery;
                let verdict = Verdict::Accepted { path: Path::Slow, delivery, standing: Standing::Free };
                return Ok((self.lease_to_caller(&id, &route, delivery).await, Some(answer.with(verdict))));
            }
            Some(Outcome::Seen { delivery, status, .. }) => {
                self.count_repeat(&id, &route.destination);
                match status {
                    Status::Processing | Status::Failed { is_final: false } => {
                        self.lease_to_caller(&id, &route, *delivery).await?
                    }
                    _ => self.earlier_outcome(&id, &route, *delivery).await?,
                }
            }
            // The claim was made when its route did not report outcomes, or it was imported.
            Some(Outcome::Duplicate { first_seen_at }) => {
                self.count_repeat(&id, &route.destination);
                let first_seen_at = *first_seen_at;
                let kept_until = first_seen_at.plus(route.route.claim.keep().unwrap_or_default());
                let known = Followed::seen(Serial(0), Status::Completed, first_seen_at, kept_until);
                Begun::Known(Box::new(known))
            }
            _ => return Err(Refusal::lost("the store gave no outcome")),
        };
        let answer = match &begun {
            Begun::New { .. } => None,
            Begun::Known(followed) => Some(answer.with(Verdict::Followed(followed.clone()))),
        };
        Ok((Ok(begun), answer))
    }

    fn intake(
        &self,
        beginning: Beginning,
        route: &Arc<BoundRoute>,
        registry_version: i64,
        now: Timestamp,
    ) -> Result<Intake, Refusal> {
        let Beginning { service, name, id, payload, journey } = beginning;
        let domain_hash = DomainHash::of_command_without(&service, &name, &payload, &[])?;
        let tenant = TenantName::new(service.tenant())
            .map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
        let message = Message {
            tenant,
            id,
            target: service.clone(),
            signed_target: "".into(),
            source: service,
            name,
            sent_at: "".into(),
            key_version: None,
            signature: "".into(),
            correlation: journey.correlation,
            traceparent: journey.traceparent,
            received_at: now,
            registry_version,
            domain_hash,
            payload,
            event: None,
        };
        let good_until = self.currency.good_until(&[Cache::Bans, Cache::Routes]);
        Ok(Intake {
            message,
            path: Path::Slow,
            destinations: vec![Arc::clone(route)],
            places: Vec::new(),
            known: Vec::new(),
            good_until,
        })
    }

    /// Leases the delivery to the caller, unless another worker holds it or its next attempt is not due.
    async fn lease_to_caller(
        &self,
        id: &IdKey,
        route: &BoundRoute,
        delivery: Serial,
    ) -> Result<Begun, Refusal> {
        let (now, deadline) = (self.clock().now(), route.route.processing.deadline());
        let taken = self.store().take(&route.queue, delivery, deadline, now).await;
        if let Some(work) = taken.map_err(|error| unavailable(&error))? {
            let receipt = Receipt { delivery_id: work.delivery_id, fence: work.fence };
            return Ok(Begun::New { receipt, attempt: work.attempt, deadline: work.visible_at });
        }
        self.earlier_outcome(id, route, delivery).await
    }

    async fn earlier_outcome(
        &self,
        id: &IdKey,
        route: &BoundRoute,
        delivery: Serial,
    ) -> Result<Begun, Refusal> {
        let claim = self.outcome_of(id, &route.destination, delivery, Duration::ZERO, true).await;
        let claim = claim.map_err(|error| unavailable(&error))?;
        let claim = claim.ok_or_else(|| Refusal::lost("the claim has expired"))?;
        if let Some(refusal) = self.pending_refusal(&claim, claim.status(self.clock().now())) {
            return Err(refusal);
        }
        let followed = self.read_outcome(claim, delivery, true).await;
        let followed = followed.map_err(|trouble| {
            tracing::warn!(error = &trouble as &dyn std::error::Error, "a stored response could not be read");
            unreadable(&trouble)
        })?;
        Ok(Begun::Known(Box::new(followed)))
    }
}
