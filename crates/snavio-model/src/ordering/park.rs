//! What becomes of an entity when one of its messages fails for good (ORD-7).

use super::config::{OnFailure, Rules};
use super::position::NumberKind;
use super::state::EntityState;
use crate::bounds::ORDER_FAILED_MAX;
use crate::id::MessageId;
use crate::time::Timestamp;

/// What follows a message that failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Later messages of its entity go on.
    GoesOn,
    /// They queue behind it.
    Parks,
}

/// The entity does not wait for that message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the entity is not parked behind that message")]
pub struct NotParked;

impl EntityState {
    /// A message failed for good. Where its route parks, its entity is held from now on, even one that was forgotten
    /// meanwhile: the state says so and is to be written with the dead letter.
    pub fn failed(
        state: Option<Self>,
        number: i64,
        kind: NumberKind,
        id: &MessageId,
        rules: &Rules,
        now: Timestamp,
    ) -> (Option<Self>, AfterFailure) {
        if rules.on_failure == OnFailure::Continue {
            return (state, AfterFailure::GoesOn);
        }
        let new = || Self::begin(number, (id, None), kind, now.plus(rules.ttl));
        let mut state = state.filter(|it| it.is_live(now)).unwrap_or_else(new);
        state.note_failed(number);
        (Some(state), AfterFailure::Parks)
    }

    /// While it is parked others may fail, too: those before it that are put back, and those behind it that nobody took
    /// in time. Of too many the lowest are kept, and the highest: no later one goes on before it is mended.
    fn note_failed(&mut self, number: i64) {
        let Err(place) = self.failed.binary_search(&number) else { return };
        self.failed.insert(place, number);
        if self.failed.len() > ORDER_FAILED_MAX {
            self.failed.remove(ORDER_FAILED_MAX - 1);
        }
    }

    /// Whether a message of the entity must not be handed out: those behind the parked one. That one itself may, once
    /// it is redriven.
    pub fn holds_back(&self, number: i64) -> bool {
        self.parked_at().is_some_and(|parked| number > parked)
    }

    /// A message that failed was mended and processed, or skipped by a person: later ones go on, in order, up to the next
    /// one that failed. They have the whole time to live again.
    pub fn unparked(mut self, number: i64, rules: &Rules, now: Timestamp) -> Result<Self, NotParked> {
        let place = self.failed.binary_search(&number).map_err(|_| NotParked)?;
        self.failed.remove(place);
        Ok(Self { expires_at: now.plus(rules.ttl), ..self })
    }
}
