//! Work that its own processor begins (CLM-10): claimed, kept and handed out like any other, without having come through
//! a queue.

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

/// What a processor is about to do.
#[derive(Debug, Clone)]
pub struct Beginning {
    /// Who.
    pub service: ServiceName,
    /// By which of its routes.
    pub name: CommandName,
    /// Under which id.
    pub id: MessageId,
    /// What it is about, as JSON.
    pub payload: Bytes,
    /// What it belongs to.
    pub journey: Journey,
}

impl Beginning {
    /// What is said of it where it is refused.
    fn subject(&self) -> Subject {
        Subject {
            id: Some(self.id.clone()),
            target: Some(self.service.clone()),
            name: Some(self.name.clone()),
            ..Subject::on(MessageKind::Command, self.journey.clone())
        }
    }
}

/// Whether the work is the caller's now.
#[derive(Debug, Clone)]
pub enum Begun {
    /// It is, until it reports or its time is over.
    New {
        /// What it reports with.
        receipt: Receipt,
        /// Which attempt it is.
        attempt: u32,
        /// Until when it must report, or ask for more time.
        deadline: Timestamp,
    },
    /// It ended before.
    Known(Box<Followed>),
}

fn unavailable(error: &StoreError) -> Refusal {
    tracing::warn!(error = error as &dyn std::error::Error, "a claim could not be begun");
    Refusal::new(Reason::Unavailable, "the store cannot answer at the moment")
}

impl Gate {
    /// Claims an id for work that the caller does itself, or says what became of it before. It ends in metrics and telemetry
    /// as what came through a queue does.
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

    /// Whether the work is the caller's, and what is to be told of that: nothing of an attempt that follows another. What was
    /// taken is taken, also where it could not be handed to the caller.
    async fn begin_at(
        &self,
        beginning: Beginning,
        now: Timestamp,
        held: impl Send + 'static,
    ) -> Result<(Result<Begun, Refusal>, Option<Answer>), Refusal> {
        let registry = self.registry();
        shield::check_source(&registry, &beginning.service, now)?;
        let view = registry.service(beginning.service.as_str());
        let route = view.and_then(|it| it.route(&beginning.name, now)).cloned();
        let missing = || Refusal::new(Reason::NotFound, "this service has no route of this name");
        let route = route.ok_or_else(missing)?;
        if route.route.processing.kind != ProcessingKind::Reported {
            let detail = "work is begun here on routes whose processing.kind is reported";
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
            .map_or_else(|| Err(Refusal::lost("it was not judged")), |it| it.judged)?;
        let begun = match settlement.outcomes.first() {
            Some(Outcome::Queued { delivery }) => {
                let delivery = *delivery;
                let verdict = Verdict::Accepted { path: Path::Slow, delivery, standing: Standing::Free };
                return Ok((self.take_up(&id, &route, delivery).await, Some(answer.with(verdict))));
            }
            Some(Outcome::Seen { delivery, status, .. }) => {
                self.came_again(&id, &route.destination);
                match status {
                    Status::Processing | Status::Failed { is_final: false } => {
                        self.take_up(&id, &route, *delivery).await?
                    }
                    _ => self.known(&id, &route, *delivery).await?,
                }
            }
            // Of a time when nobody reported on it, or from elsewhere.
            Some(Outcome::Duplicate { first_seen_at }) => {
                self.came_again(&id, &route.destination);
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

    /// The work is the caller's, unless somebody else is at it or its next attempt is not due.
    async fn take_up(&self, id: &IdKey, route: &BoundRoute, delivery: Serial) -> Result<Begun, Refusal> {
        let (now, deadline) = (self.clock().now(), route.route.processing.deadline());
        let taken = self.store().take(&route.queue, delivery, deadline, now).await;
        if let Some(work) = taken.map_err(|error| unavailable(&error))? {
            let receipt = Receipt { delivery_id: work.delivery_id, fence: work.fence };
            return Ok(Begun::New { receipt, attempt: work.attempt, deadline: work.visible_at });
        }
        self.known(id, route, delivery).await
    }

    async fn known(&self, id: &IdKey, route: &BoundRoute, delivery: Serial) -> Result<Begun, Refusal> {
        let claim = self.outcome_of(id, &route.destination, delivery, Duration::ZERO, true).await;
        let claim = claim.map_err(|error| unavailable(&error))?;
        let claim = claim.ok_or_else(|| Refusal::lost("the claim is not there any more"))?;
        if let Some(refusal) = self.not_yet(&claim, claim.status(self.clock().now())) {
            return Err(refusal);
        }
        let followed = self.told(claim, delivery, true).await;
        let followed = followed.map_err(|trouble| {
            tracing::warn!(error = &trouble as &dyn std::error::Error, "an answer could not be read");
            unreadable(&trouble)
        })?;
        Ok(Begun::Known(Box::new(followed)))
    }
}
