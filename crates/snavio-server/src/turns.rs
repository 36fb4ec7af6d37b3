//! Turns at the pipeline: how much of it one tenant may use at the same time (PIP-9).
//!
//! Commits are shared out fairly already, but processor time is not: whatever is ready runs in the order it came.
//! So a tenant's requests go from their body to their commit a few at a time and wait for each other before
//! that, where waiting costs nobody anything. A few are enough to keep a node busy.

use std::sync::Arc;

use snavio_model::bounds;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A tenant's turns, in the order they are asked for.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(bounds::TENANT_TURNS)))
    }
}

/// A part of them, until it is dropped. There is none only if the turns are over for good, and they never are.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits for a turn for a request with so many messages, an event counting once for each destination.
    pub(crate) async fn take(&self, messages: usize) -> Turn {
        self.part(messages.saturating_add(bounds::TURN_OF_REQUEST)).await
    }

    /// Waits for a turn for so much more of a request that had its own.
    pub(crate) async fn take_more(&self, messages: usize) -> Turn {
        self.part(messages).await
    }

    async fn part(&self, cost: usize) -> Turn {
        // However much it is, others of its tenant come through beside it.
        let cost = u32::try_from(cost.min(bounds::TENANT_TURNS / 2)).unwrap_or(u32::MAX);
        Turn { _permit: Arc::clone(&self.0).acquire_many_owned(cost).await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// PIP-9
    #[tokio::test]
    async fn a_tenant_goes_through_a_few_at_a_time_and_in_order() {
        let turns = Turns::default();
        let at_once = bounds::TENANT_TURNS / (bounds::TURN_OF_REQUEST + 1);
        let mut held: Vec<_> = (0..at_once).filter_map(|_| turns.take(1).now_or_never()).collect();
        assert_eq!(held.len(), at_once);
        let (mut next, mut later) = (Box::pin(turns.take(1)), Box::pin(turns.take(1)));
        assert!((&mut next).now_or_never().is_none() && (&mut later).now_or_never().is_none());
        held.pop();
        assert!((&mut later).now_or_never().is_none(), "it overtakes nobody");
        assert!((&mut next).now_or_never().is_some());
    }

    /// PIP-8, PIP-9
    #[tokio::test]
    async fn the_largest_batch_gets_its_turn() {
        let turns = Turns::default();
        drop(turns.take(bounds::BATCH_MESSAGES_MAX).await);
        let largest = turns.take(usize::MAX / 2).now_or_never();
        assert!(largest.is_some());
        assert!(
            turns.take(bounds::BATCH_MESSAGES_MAX).now_or_never().is_some(),
            "others come through beside it"
        );
    }
}
