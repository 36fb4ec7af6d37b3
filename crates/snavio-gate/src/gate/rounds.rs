//! Messages of a request on their way to their commits, in rounds: copies of a message in flight wait for its end (PIP-2).

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
use crate::pipeline::settle;
use crate::pipeline::settle::Ended;

/// A message that is authentic and permitted, before it is settled.
pub(super) struct Begun {
    /// The answer if it is known.
    pub(super) answer: Answer,
    pub(super) intake: Intake,
    /// The fingerprints for the node's memory.
    pub(super) fingerprints: Fingerprints,
    pub(super) escalation: Option<Escalation>,
    pub(super) skew: Option<telemetry::Record>,
}

/// Messages that are settled together, and those that wait for the next round. Each has its place in the request.
#[derive(Default)]
struct Round {
    /// Whether no other follows: copies then wait no longer.
    is_last: bool,
    submissions: Vec<Submission>,
    handed: Vec<(usize, Handed)>,
    waiting: Vec<WaitingMessage>,
    /// The entities of messages that wait.
    entities: HashSet<EntityKey>,
}

impl Round {
    /// Whether a message of one of its entities waits that came before it (ORD-3).
    fn is_passing(&self, intake: &Intake) -> bool {
        !self.entities.is_empty() && intake.entities().any(|entity| self.entities.contains(entity))
    }

    fn wait(&mut self, message: WaitingMessage) {
        self.entities.extend(message.begun.intake.entities().cloned());
        self.waiting.push(message);
    }
}

/// A message that has not been judged yet.
struct WaitingMessage {
    place: usize,
    begun: Begun,
    /// The message in flight that it is a copy of.
    first: Option<First>,
    /// The judgement of the last one of them that was refused.
    refused: Option<Settled>,
}

/// What is needed of a message once the store has answered.
struct Handed {
    answer: Answer,
    /// At which of its destinations it was known.
    known: Vec<bool>,
    path: Path,
    skew: Option<telemetry::Record>,
    places: Vec<Placed>,
    /// What to remember after the commit, where the committer does not.
    claimed: Option<Fingerprints>,
}

impl Handed {
    /// The destinations that order, and that the message passes unordered.
    fn pass_unordered(&self, ordered: &[Ordered]) -> Vec<usize> {
        let unmarked = (0..self.places.len()).filter(|at| self.places[*at] == Placed::Unmarked);
        let other_kind = ordered.iter().filter(|one| one.verdict == Some(ordering::Verdict::Unordered));
        unmarked.chain(other_kind.map(|one| one.destination)).collect()
    }
}

impl Gate {
    /// Settles messages in rounds: copies of a message in flight wait for its end and are then judged themselves. Only
    /// the messages of a round hold reservations and none of them waits for a copy, so no two requests wait for each
    /// other. The request keeps its turn for the first round; the committer bounds what a tenant has in others.
    pub(super) async fn settle_all(
        &self,
        begun: Vec<Result<Begun, Refused>>,
        held: Held,
    ) -> Vec<Result<Answer, Refused>> {
        let mut ended: Vec<_> = std::iter::repeat_with(|| None).take(begun.len()).collect();
        let mut waiting = Vec::new();
        for (place, begun) in begun.into_iter().enumerate() {
            match begun {
                Ok(begun) => waiting.push(WaitingMessage { place, begun, first: None, refused: None }),
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
            let Round { submissions, handed, waiting: left, .. } = round;
            let held = held.take().unwrap_or_else(|| Box::new(()));
            let handed_over = tokio::time::Instant::now();
            let settled = settle::settle(submissions, &self.committer, held).await; // one durable write
            self.end_all(handed, settled, handed_over.elapsed(), &mut ended);
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

    /// Ends the messages of a round.
    fn end_all(
        &self,
        handed: Vec<(usize, Handed)>,
        settled: Vec<Ended>,
        waited: Duration,
        ended: &mut [Option<Result<Answer, Refused>>],
    ) {
        let mut claimed = Vec::new();
        let mut settled = settled.into_iter();
        for (place, mut handed) in handed {
            self.meters.settled(handed.path, waited);
            let settled = settled.next();
            let ordered = settled.as_ref().map_or(&[][..], |ended| &ended.ordered);
            self.ordering.told(&handed.answer, &handed.places, ordered, waited);
            let unordered = handed.pass_unordered(ordered);
            let judged = settled.map(|ended| ended.judged);
            if matches!(&judged, Some(Ok(settlement)) if settlement.message.is_some()) {
                claimed.extend(handed.claimed.take());
            }
            let answer = self
                .end(handed, judged)
                .map(|answer| answer.passing_unordered(&unordered))
                .inspect(|answer| self.ordering.passed_unordered(answer));
            ended[place] = Some(answer);
        }
        self.memory.remember(&claimed, self.clock.now());
    }

    /// Ends a message that the memory knows, or adds it to a round.
    fn enter(&self, message: WaitingMessage, round: &mut Round) -> Option<Result<Answer, Refused>> {
        let WaitingMessage { place, begun, refused, .. } = message;
        let Begun { answer, intake, fingerprints, escalation, skew } = begun;
        let refuse =
            |answer: &Answer, refusal| Some(Err(Refused { subject: Box::new(answer.subject()), refusal }));
        // Copies among those that would pass others wait for their first all the same.
        let passing = round.is_passing(&intake).then(|| fingerprints.clone());
        match (self.memory.enter(fingerprints), passing) {
            (Entry::Known, _) => return Some(Ok(answer)),
            (Entry::Full, _) => {
                let detail = "too many messages wait for their commit; send it again later";
                return refuse(&answer, Refusal::new(Reason::Overloaded, detail));
            }
            (Entry::Copy { .. }, _) if round.is_last => {
                let detail = "copies of this message were refused one after another while it waited; send it again later";
                let refusal = refused.and_then(|settled| settle::judged(settled).err());
                return refuse(&answer, refusal.unwrap_or_else(|| Refusal::new(Reason::Overloaded, detail)));
            }
            (Entry::Copy { message: fingerprints, first }, _) => {
                let begun = Begun { answer, intake, fingerprints, escalation, skew };
                round.wait(WaitingMessage { place, begun, first: Some(first), refused });
            }
            (Entry::New { .. }, Some(fingerprints)) => {
                let begun = Begun { answer, intake, fingerprints, escalation, skew };
                round.wait(WaitingMessage { place, begun, first: None, refused });
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
                round.handed.push((place, Handed { answer, known, path, skew, places, claimed }));
            }
        }
        None
    }

    /// What the store's word means for a message.
    fn end(&self, handed: Handed, settled: Option<Result<Settlement, Refusal>>) -> Result<Answer, Refused> {
        let Handed { answer, known, path, skew, .. } = handed;
        let lost = || Err(Refusal::lost("the store gave no answer"));
        let refused = |answer: &Answer, refusal| Refused { subject: Box::new(answer.subject()), refusal };
        let settlement = settled.unwrap_or_else(lost).map_err(|refusal| refused(&answer, refusal))?;
        let unsaid = || refused(&answer, Refusal::lost("the store gave no outcome"));
        let told = |(place, it): (usize, &Reached)| {
            if known.get(place) == Some(&true) {
                return Ok(it.clone());
            }
            let outcome = settlement.outcomes.get(place);
            let verdict = outcome.and_then(|it| Verdict::of(*it, path)).ok_or_else(unsaid)?;
            Ok(Reached { verdict, ..it.clone() })
        };
        let reached = answer.reached.iter().enumerate().map(told).collect::<Result<Vec<_>, Refused>>()?;
        if settlement.message.is_some() {
            skew.into_iter().for_each(|record| self.gathering.add(record));
        }
        Ok(Answer { reached, ..answer })
    }
}

/// Waits for the first of a copy. Where the store failed it, the copy fails alike: it must not be dispatched beside a first
/// that may have been written after all (MSG-12), nor wait for the store anew.
async fn end_of_first(copy: &mut WaitingMessage) -> Option<Refused> {
    let settled = copy.first.take()?.end().await?;
    if let Err(failure) = settled {
        let refusal = settle::judged(Err(failure)).err()?;
        return Some(Refused { subject: Box::new(copy.begun.answer.subject()), refusal });
    }
    copy.refused = Some(settled);
    None
}

#[cfg(test)]
mod tests;
