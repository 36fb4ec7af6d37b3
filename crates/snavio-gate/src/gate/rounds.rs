//! Settles the messages of one request in rounds: a copy of a message in flight waits for the end of the
//! first copy (PIP-2).

use std::collections::HashSet;
use std::time::Duration;

use snavio_model::bounds::COPY_ROUNDS_MAX;
use snavio_model::claim::recent::Fingerprints;
use snavio_model::message::Path;
use snavio_model::ordering::{EntityKey, Placed};
use snavio_model::refusal::{Reason, Refusal, Refused};
use snavio_model::settle::{Intake, Ordered, Settlement};
use snavio_model::{ordering, telemetry};

use super::Gate;
use crate::commit::committer::{Settled, Submission};
use crate::commit::ticket::Held;
use crate::outcome::answer::{Answer, Reached, Verdict};
use crate::pipeline::fast::Escalation;
use crate::pipeline::memory::{Entry, First, InFlight};
use crate::pipeline::settle::{self, SettledMessage};

/// A message that is authentic and permitted, before it is settled.
pub(super) struct PermittedMessage {
    /// The answer if the message is known.
    pub(super) answer: Answer,
    pub(super) intake: Intake,
    /// The fingerprints for the node's memory of recent messages.
    pub(super) fingerprints: Fingerprints,
    pub(super) escalation: Option<Escalation>,
    pub(super) skew: Option<telemetry::Record>,
}

/// The messages that are settled together, and those that wait for the next round. Each keeps its place in
/// the request.
#[derive(Default)]
struct Round {
    /// Whether this is the last round, in which copies no longer wait.
    is_last: bool,
    submissions: Vec<Submission>,
    submitted: Vec<(usize, SubmittedMessage)>,
    waiting: Vec<WaitingMessage>,
    /// The entities of the waiting messages.
    entities: HashSet<EntityKey>,
}

impl Round {
    /// Whether an earlier message of one of its entities waits; this message must not pass it (ORD-3).
    fn is_passing(&self, intake: &Intake) -> bool {
        !self.entities.is_empty() && intake.entities().any(|entity| self.entities.contains(entity))
    }

    fn wait(&mut self, message: WaitingMessage) {
        self.entities.extend(message.permitted.intake.entities().cloned());
        self.waiting.push(message);
    }
}

/// A message that is not judged yet.
struct WaitingMessage {
    place: usize,
    permitted: PermittedMessage,
    /// The first copy of this message, in flight.
    first: Option<First>,
    /// The result of the last first copy that was refused.
    refused: Option<Settled>,
}

/// The part of a message that is needed after the store has answered.
struct SubmittedMessage {
    answer: Answer,
    /// For each destination, whether the memory knows the message there.
    known: Vec<bool>,
    path: Path,
    skew: Option<telemetry::Record>,
    places: Vec<Placed>,
    /// The fingerprints to remember after the commit, for messages without a reservation.
    claimed: Option<Fingerprints>,
}

impl SubmittedMessage {
    /// The ordered destinations that the message passes unordered.
    fn pass_unordered(&self, ordered: &[Ordered]) -> Vec<usize> {
        let unmarked = (0..self.places.len()).filter(|at| self.places[*at] == Placed::Unmarked);
        let other_kind = ordered.iter().filter(|one| one.verdict == Some(ordering::Verdict::Unordered));
        unmarked.chain(other_kind.map(|one| one.destination)).collect()
    }
}

impl Gate {
    /// Settles messages in rounds: a copy of a message in flight waits for the end of the first copy and is
    /// then judged itself. Only the messages of the current round hold reservations, and none of them waits
    /// for a copy, so that no two requests wait for each other. The request keeps its concurrency permit
    /// (`held`) only for the first round; the committer bounds the messages of a tenant in later rounds.
    pub(super) async fn settle_all(
        &self,
        permitted: Vec<Result<PermittedMessage, Refused>>,
        held: Held,
    ) -> Vec<Result<Answer, Refused>> {
        let mut ended: Vec<_> = std::iter::repeat_with(|| None).take(permitted.len()).collect();
        let mut waiting = Vec::new();
        for (place, permitted) in permitted.into_iter().enumerate() {
            match permitted {
                Ok(permitted) => {
                    waiting.push(WaitingMessage { place, permitted, first: None, refused: None });
                }
                Err(refused) => ended[place] = Some(Err(refused)),
            }
        }
        let mut held = Some(held);
        for round in 0..=COPY_ROUNDS_MAX {
            let mut round = Round { is_last: round == COPY_ROUNDS_MAX, ..Round::default() };
            for message in waiting {
                let place = message.place;
                ended[place] = self.enter(message, &mut round);
            }
            let Round { submissions, submitted, waiting: left, .. } = round;
            let held = held.take().unwrap_or_else(|| Box::new(()));
            let submitted_at = tokio::time::Instant::now();
            let settled = settle::settle(submissions, &self.committer, held).await; // one durable write
            self.end_all(submitted, settled, submitted_at.elapsed(), &mut ended);
            waiting = Vec::new();
            for mut message in left {
                match end_of_first(&mut message).await {
                    Some(refused) => ended[message.place] = Some(Err(refused)),
                    None => waiting.push(message),
                }
            }
            if waiting.is_empty() {
                break;
            }
        }
        ended.into_iter().flatten().collect()
    }

    /// Ends the messages of a round with their results.
    fn end_all(
        &self,
        submitted: Vec<(usize, SubmittedMessage)>,
        settled: Vec<SettledMessage>,
        waited: Duration,
        ended: &mut [Option<Result<Answer, Refused>>],
    ) {
        let mut claimed = Vec::new();
        let mut settled = settled.into_iter();
        for (place, mut submitted) in submitted {
            self.meters.settled(submitted.path, waited);
            let settled = settled.next();
            let ordered = settled.as_ref().map_or(&[][..], |ended| &ended.ordered);
            self.ordering.record(&submitted.answer, &submitted.places, ordered, waited);
            let unordered = submitted.pass_unordered(ordered);
            let judged = settled.map(|ended| ended.judged);
            if matches!(&judged, Some(Ok(settlement)) if settlement.message.is_some()) {
                claimed.extend(submitted.claimed.take());
            }
            let answer = self
                .end(submitted, judged)
                .map(|answer| answer.passing_unordered(&unordered))
                .inspect(|answer| self.ordering.passed_unordered(answer));
            ended[place] = Some(answer);
        }
        self.memory.remember(&claimed, self.clock.now());
    }

    /// Ends a message that the memory can answer, or adds it to a round.
    fn enter(&self, message: WaitingMessage, round: &mut Round) -> Option<Result<Answer, Refused>> {
        let WaitingMessage { place, permitted, refused, .. } = message;
        let PermittedMessage { answer, intake, fingerprints, escalation, skew } = permitted;
        let refuse =
            |answer: &Answer, refusal| Some(Err(Refused { subject: Box::new(answer.subject()), refusal }));
        // A copy that must not pass an earlier message of its entity still waits for its first copy.
        let passing = round.is_passing(&intake).then(|| fingerprints.clone());
        match (self.memory.enter(fingerprints), passing) {
            (Entry::Known, _) => return Some(Ok(answer)),
            (Entry::Full, _) => {
                let detail = "too many messages wait for their commit; send it again later";
                return refuse(&answer, Refusal::new(Reason::Overloaded, detail));
            }
            (Entry::Copy { .. }, _) if round.is_last => {
                let detail =
                    "earlier copies of this message were refused while it waited; send it again later";
                let refusal = refused.and_then(|settled| settle::judged(settled).err());
                return refuse(&answer, refusal.unwrap_or_else(|| Refusal::new(Reason::Overloaded, detail)));
            }
            (Entry::Copy { message: fingerprints, first }, _) => {
                let permitted = PermittedMessage { answer, intake, fingerprints, escalation, skew };
                round.wait(WaitingMessage { place, permitted, first: Some(first), refused });
            }
            (Entry::New { .. }, Some(fingerprints)) => {
                let permitted = PermittedMessage { answer, intake, fingerprints, escalation, skew };
                round.wait(WaitingMessage { place, permitted, first: None, refused });
            }
            (Entry::New { in_flight, known }, None) => {
                if let Some(reason) = escalation {
                    self.meters.escalated(reason);
                }
                let (reservation, claimed) = match in_flight {
                    InFlight::Reserved(reservation) => (Some(reservation), None),
                    InFlight::Claimed(message) => (None, message),
                };
                let (path, places) = (intake.path, intake.places.clone());
                let intake = Intake { known: known.clone(), ..intake };
                round.submissions.push(Submission { intake, reservation });
                round
                    .submitted
                    .push((place, SubmittedMessage { answer, known, path, skew, places, claimed }));
            }
        }
        None
    }

    /// The answer or refusal that follows from the store's result.
    fn end(
        &self,
        submitted: SubmittedMessage,
        settled: Option<Result<Settlement, Refusal>>,
    ) -> Result<Answer, Refused> {
        let SubmittedMessage { answer, known, path, skew, .. } = submitted;
        let settled = settled.unwrap_or_else(|| Err(Refusal::lost("the store gave no answer")));
        let refused = |refusal| Refused { subject: Box::new(answer.subject()), refusal };
        let settlement = settled.map_err(&refused)?;
        let missing = || refused(Refusal::lost("the store gave no outcome"));
        let reached = answer.reached.iter().enumerate().map(|(place, reached)| {
            if known.get(place) == Some(&true) {
                return Ok(reached.clone());
            }
            let outcome = settlement.outcomes.get(place);
            let verdict = outcome.and_then(|outcome| Verdict::of(*outcome, path)).ok_or_else(missing)?;
            Ok(Reached { verdict, ..reached.clone() })
        });
        let reached = reached.collect::<Result<Vec<_>, Refused>>()?;
        if settlement.message.is_some() {
            skew.into_iter().for_each(|record| self.gathering.add(record));
        }
        Ok(Answer { reached, ..answer })
    }
}

/// Waits for the end of the first copy. If the store failed the first copy, the copy fails in the same way.
/// It must not be dispatched beside a first copy that may have been written (MSG-12), and it must not wait
/// for the store again.
async fn end_of_first(copy: &mut WaitingMessage) -> Option<Refused> {
    let settled = copy.first.take()?.end().await?;
    if let Err(failure) = settled {
        let refusal = settle::judged(Err(failure)).err()?;
        return Some(Refused { subject: Box::new(copy.permitted.answer.subject()), refusal });
    }
    copy.refused = Some(settled);
    None
}

#[cfg(test)]
mod tests;
