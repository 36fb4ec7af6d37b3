//! Dead letters that go back into the queues they came from.

use snavio_model::delivery::{DeadLetter, DeadReason, Delivery};
use snavio_model::id::Serial;

use super::pool::{Trouble, sql};
use super::{PostgresStore, audit, dead_letter, delivery, finish, lane};
use crate::{Act, Deed, Redrive, Redriven, StoreError};

impl PostgresStore {
    /// Puts dead letters back into the queues they came from.
    pub(super) async fn put_back(
        &self,
        tenant: &str,
        dead: Vec<Serial>,
        which: Redrive,
        act: Act,
    ) -> Result<Redriven, StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            lane::lock_letters(&transaction, &dead).await?;
            let letters = dead_letter::lock(&transaction, tenant, &dead).await?;
            let queues = letters.iter().map(|letter| &letter.delivery.queue);
            let mut rooms = self.inner.rooms.of(&transaction, queues).await?;
            let mut back: Vec<Delivery> = Vec::new();
            let mut full = Vec::new();
            let tracked = letters.iter().filter(|it| it.delivery.tracking.is_tracked());
            let tracked: Vec<_> = tracked.map(|it| it.delivery.id).collect();
            let in_doubt = match which {
                Redrive::Decided => finish::in_doubt(&transaction, &tracked).await?,
                Redrive::Any => Vec::new(),
            };
            let tracked: Vec<_> = tracked.into_iter().filter(|id| !in_doubt.contains(id)).collect();
            let held = finish::held(&transaction, &tracked).await?;
            // What conflicts with what was dispatched before is evidence, and never dispatched itself (CLM-8).
            let stays = |letter: &DeadLetter| {
                let id = &letter.delivery.id;
                letter.reason == DeadReason::Conflict || held.contains(id) || in_doubt.contains(id)
            };
            for letter in letters.into_iter().filter(|letter| !stays(letter)) {
                match rooms.get_mut(&letter.delivery.queue) {
                    Some(room @ 1..) => {
                        *room -= 1;
                        back.push(Delivery { receives: 0, queued_at: act.at, ..letter.delivery });
                    }
                    _ => full.push(letter.delivery.id),
                }
            }
            let ids: Vec<_> = back.iter().map(|delivery| delivery.id).collect();
            dead_letter::delete(&transaction, &ids).await?;
            delivery::insert(&transaction, &back).await?;
            let lanes = back.iter().filter_map(|it| it.lane.as_deref()).map(|it| &it.key);
            lane::pass_on(&transaction, lanes).await.map_err(Trouble::into_error)?;
            finish::reopened(&transaction, &back).await?;
            let deed = |delivery: &Delivery| Deed {
                action: "dead_letter.redrive",
                object: format!("{} {}", delivery.dead_letter_queue, delivery.id),
                outcome: delivery.queue.to_string(),
            };
            audit::append(&transaction, &act, &back.iter().map(deed).collect::<Vec<_>>()).await?;
            transaction.commit().await.map_err(sql)?;
            for delivery in &back {
                self.inner.rooms.took(&delivery.queue, 1);
                self.inner.arrivals.wake_some(delivery.queue.as_str(), 1);
            }
            Ok(Redriven { back: ids, full, held, in_doubt })
        };
        self.within(work).await
    }
}
