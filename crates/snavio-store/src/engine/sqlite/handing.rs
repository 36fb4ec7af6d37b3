//! Handing deliveries out, and for longer: what is kept of a lease before its holder hears of it, and what after (CLM-7).
//!
//! Of a delivery that no claim waits for only the count is kept, some time later. The lease of one that a claim waits
//! for goes the same way; where the route holds what nobody knows of, its holder hears of it once it is durable.

use std::sync::Arc;

use rusqlite::Connection;
use snavio_model::delivery::{Receipt, ReceiptOutcome, Tracking};
use snavio_model::name::QueueKey;
use snavio_model::time::Timestamp;
use tokio::sync::oneshot;

use super::index::Lease;
use super::queue_jobs::KeepLeases;
use super::writer::{Urgency, lock};
use super::{EmbeddedStore, check, delivery, message};
use crate::{Received, StoreError};

type Kept = oneshot::Receiver<Result<(), StoreError>>;

impl EmbeddedStore {
    /// Reads what was leased and hands it out. What must not be handed out twice is not before that is durable.
    pub(super) async fn hand_out(
        &self,
        queue: &QueueKey,
        leases: Vec<Lease>,
    ) -> Result<Vec<Received>, StoreError> {
        let is_held = leases.iter().any(|lease| lease.tracking == Tracking::Hold);
        let handing = Handing { store: self, queue, leases: leases.clone() };
        let received = self.readers.run(move |connection| read_leases(connection, &leases)).await?;
        let kept = self.keep(handing.kept(), is_held);
        until_kept(kept).await?;
        handing.done();
        Ok(received)
    }

    /// Leases on. Where a lapse is for a person to mend, the new end is durable before it is told.
    pub(super) async fn lease_on(
        &self,
        queue: &QueueKey,
        receipts: &[Receipt],
        until: Timestamp,
    ) -> Result<Vec<ReceiptOutcome>, StoreError> {
        let (outcomes, kept) = self.begin_lease_on(queue, receipts, until);
        until_kept(kept).await?;
        Ok(outcomes)
    }

    fn begin_lease_on(
        &self,
        queue: &QueueKey,
        receipts: &[Receipt],
        until: Timestamp,
    ) -> (Vec<ReceiptOutcome>, Option<Kept>) {
        // Locked until the writer has it: two extensions of one lease are kept in the order in which they were made.
        let mut queues = lock(&self.queues);
        let (outcomes, extended) = queues.extend(queue, receipts, until);
        if extended.is_empty() {
            return (outcomes, None);
        }
        let is_held = extended.iter().any(|(tracking, _)| *tracking == Tracking::Hold);
        let of_fence = extended.into_iter().filter_map(|(_, lease)| Some((lease.fence?, lease)));
        let leases = of_fence.collect();
        (outcomes, self.keep(KeepLeases { leases, ..KeepLeases::default() }, is_held))
    }

    /// Takes back what was handed out for attempts that were not made. Where a lapse is for a person to mend, that is durable
    /// before it is told.
    pub(super) async fn hand_back(
        &self,
        queue: &QueueKey,
        receipts: &[Receipt],
        until: Timestamp,
    ) -> Result<(), StoreError> {
        until_kept(self.begin_hand_back(queue, receipts, until)).await
    }

    fn begin_hand_back(&self, queue: &QueueKey, receipts: &[Receipt], until: Timestamp) -> Option<Kept> {
        // Locked until the writer has it: whoever leases it next is kept after this.
        let mut queues = lock(&self.queues);
        let back = queues.hand_back(queue, receipts, until);
        if back.is_empty() {
            return None;
        }
        let is_held = back.iter().any(|(tracking, _)| *tracking == Tracking::Hold);
        let (tracked, plain): (Vec<_>, Vec<_>) =
            back.into_iter().partition(|(tracking, _)| tracking.is_tracked());
        let counts_back = plain.into_iter().map(|(_, lease)| (lease.delivery, lease.receives)).collect();
        let leases = tracked.into_iter().filter_map(|(_, lease)| Some((lease.fence?, lease))).collect();
        self.keep(KeepLeases { counts_back, leases, ..KeepLeases::default() }, is_held)
    }

    /// Has leases kept, and gives something to wait for if that must be waited for.
    fn keep(&self, job: KeepLeases, is_awaited: bool) -> Option<Kept> {
        let (reply, kept) = is_awaited.then(oneshot::channel).unzip();
        self.writer.submit(Urgency::Completion, Box::new(KeepLeases { reply, ..job }));
        kept
    }
}

async fn until_kept(kept: Option<Kept>) -> Result<(), StoreError> {
    match kept {
        Some(kept) => kept.await.unwrap_or(Err(StoreError::Closed)),
        None => Ok(()),
    }
}

/// Leases that nobody has got yet: unless they are handed out, the queue takes them back as they were.
struct Handing<'a> {
    store: &'a EmbeddedStore,
    queue: &'a QueueKey,
    leases: Vec<Lease>,
}

impl Handing<'_> {
    /// They are handed out.
    fn done(mut self) {
        self.leases.clear();
    }

    fn kept(&self) -> KeepLeases {
        let plain = self.leases.iter().filter(|lease| !lease.tracking.is_tracked());
        let tracked = self.leases.iter().filter(|lease| lease.tracking.is_tracked());
        KeepLeases {
            counts: plain.map(|lease| (lease.delivery, lease.attempt)).collect(),
            leases: tracked.map(|lease| (lease.fence, lease.kept())).collect(),
            ..KeepLeases::default()
        }
    }
}

impl Drop for Handing<'_> {
    fn drop(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let leases = std::mem::take(&mut self.leases);
        let is_held = leases.iter().any(|lease| lease.tracking == Tracking::Hold);
        let back = lock(&self.store.queues).take_back(self.queue, leases);
        if is_held {
            // They were to be durable first, and may be on record already.
            let (tracked, plain): (Vec<&Lease>, Vec<&Lease>) =
                back.iter().partition(|lease| lease.tracking.is_tracked());
            let leases = tracked.into_iter().map(|lease| (lease.fence, lease.kept_before())).collect();
            let counts_back = plain.into_iter().map(|it| (it.delivery, it.kept_before().receives)).collect();
            self.store.keep(KeepLeases { leases, counts_back, ..KeepLeases::default() }, false);
        }
    }
}

fn read_leases(connection: &Connection, leases: &[Lease]) -> Result<Vec<Received>, StoreError> {
    let mut received = Vec::with_capacity(leases.len());
    for lease in leases {
        // One whose message is damaged is not handed out; it ends as a dead letter after its receives.
        let Some(logged) = message::find_usable(connection, lease.message)? else { continue };
        received.push(Received {
            delivery_id: lease.delivery,
            fence: lease.fence,
            attempt: lease.attempt,
            attempts_max: lease.attempts_max,
            tracking: lease.tracking,
            queued_at: lease.queued_at,
            visible_at: lease.visible_at,
            destination: check::usable(delivery::destination(connection, lease.delivery))?.flatten(),
            message: Arc::new(logged.message),
        });
    }
    Ok(received)
}
