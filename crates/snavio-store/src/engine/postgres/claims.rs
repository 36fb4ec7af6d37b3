//! What becomes of claims, over the tables `claim`, `answer` and `delivery`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use snavio_model::bounds;
use snavio_model::claim::{Claim, ClaimKey, IdKey, Status};
use snavio_model::delivery::ReceiptOutcome;
use snavio_model::delivery::processing::{Answer, Ending};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::{QueueKey, ServiceName, TenantName};
use snavio_model::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::client::GenericClient as _;
use super::delivery::{Ask, Which};
use super::horizon::BLOCK;
use super::pool::sql;
use super::{PostgresStore, answer, audit, claim, finish};
use crate::engine::expiry::{KEEPS_CLAIM, present_status};
use crate::record::check_value;
use crate::{
    Act, ClaimFilter, ClaimLookUp, Claims, Finished, HeldBack, Received, Report, StoreError, StoredClaim,
};

/// Before each try to count ids that came again. Whose claim somebody is at all this time is not counted.
const COUNTING: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(640),
];

#[async_trait]
impl Claims for PostgresStore {
    async fn finish(
        &self,
        queue: &QueueKey,
        reports: Vec<Report>,
        who: &str,
        now: Timestamp,
    ) -> Result<Vec<Finished>, StoreError> {
        let mut finished = self.end_plain(queue, &reports).await?;
        let left: Vec<_> = (0..reports.len()).filter(|place| finished[*place].is_none()).collect();
        if !left.is_empty() {
            let some: Vec<_> = left.iter().map(|place| reports[*place].clone()).collect();
            let work = async {
                let mut client = self.inner.pool.get_kept().await?;
                finish::finish(&mut client, queue, &some, who, now).await
            };
            let (ended, records) = self.within(work).await?;
            self.inner.commits.fetch_add(1, Ordering::Relaxed);
            self.inner.written.wake(records.iter().map(|record| record.tenant.as_str()));
            self.inner.arrivals.wake_some(queue.as_str(), some.len());
            left.into_iter().zip(ended).for_each(|(place, ended)| finished[place] = Some(ended));
        }
        let gone = Finished::new(ReceiptOutcome::Gone, None);
        Ok(finished.into_iter().map(|it| it.unwrap_or(gone)).collect())
    }

    async fn take(
        &self,
        queue: &QueueKey,
        delivery: Serial,
        visibility: Duration,
        now: Timestamp,
    ) -> Result<Option<Received>, StoreError> {
        Ok(self.lease(queue, Which::One(delivery), visibility, now).await?.pop())
    }

    async fn claims_of(&self, id: &IdKey, now: Timestamp) -> Result<Vec<StoredClaim>, StoreError> {
        let which = format!(
            "claim.id = $1 AND claim.tenant = $2 AND (claim.expires_at > $3 OR {KEEPS_CLAIM}) ORDER BY claim.destination LIMIT {}",
            bounds::PAGE_MAX
        );
        let work = async {
            let values: [&(dyn ToSql + Sync); 3] = [&id.id.as_str(), &id.tenant.as_str(), &now.0];
            claim::listed(&self.client().await?, &which, &values).await
        };
        self.within(work).await
    }

    async fn claims_under(
        &self,
        asked: &ClaimLookUp,
        now: Timestamp,
    ) -> Result<Vec<StoredClaim>, StoreError> {
        let which = format!(
            "claim.id = $1 AND claim.tenant = ANY ($2) AND (claim.expires_at > $3 OR {KEEPS_CLAIM}) \
             AND ($4::text IS NULL OR claim.destination = $4) \
             AND NOT EXISTS (SELECT FROM unnest($5::text[]) AS party (name) \
                 WHERE claim.tenant <> party.name AND NOT starts_with(claim.destination, party.name || '/')) \
             AND ($6::text IS NULL OR claim.source = $6 OR starts_with(claim.destination, $6 || ':')) \
             ORDER BY claim.tenant, claim.destination LIMIT {}",
            bounds::PAGE_MAX
        );
        let senders: Vec<_> = asked.senders.iter().map(TenantName::as_str).collect();
        let work = async {
            let service = asked.service.as_ref().map(ServiceName::as_str);
            let values: [&(dyn ToSql + Sync); 6] =
                [&asked.id.as_str(), &senders, &now.0, &asked.destination, &asked.parties, &service];
            claim::listed(&self.client().await?, &which, &values).await
        };
        self.within(work).await
    }

    async fn has_claims(&self, tenant: &str) -> Result<bool, StoreError> {
        const ANY: &str = "SELECT EXISTS (SELECT FROM claim WHERE tenant = $1 \
             OR starts_with(destination, $1 || '/'))";
        let work = async {
            let row = self.client().await?.query_one(ANY, &[&tenant]).await.map_err(sql)?;
            row.try_get(0).map_err(sql)
        };
        self.within(work).await
    }

    async fn is_concerned(&self, tenant: &str, id: &MessageId) -> Result<bool, StoreError> {
        const ANY: &str = "SELECT EXISTS (SELECT FROM claim WHERE id = $1 \
                 AND (tenant = $2 OR starts_with(destination, $2 || '/'))) \
             OR EXISTS (SELECT FROM conflict WHERE event_id = $1 AND (tenant = $2 OR owner = $2))";
        let work = async {
            let row = self.client().await?.query_one(ANY, &[&id.as_str(), &tenant]).await.map_err(sql)?;
            row.try_get(0).map_err(sql)
        };
        self.within(work).await
    }

    async fn open_claims(
        &self,
        filter: &ClaimFilter,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<StoredClaim>, StoreError> {
        let which = format!(
            "claim.status = ANY ($1) AND claim.status <> 1 AND {} = ANY ($7::smallint[]) AND claim.message > $2 AND (claim.expires_at > $3 OR {KEEPS_CLAIM}) \
             AND ($4::text IS NULL OR starts_with(claim.destination, $4 || '/')) \
             AND ($6::text IS NULL OR claim.source = $6 OR starts_with(claim.destination, $6 || ':')) \
             ORDER BY claim.message LIMIT $5",
            present_status("$3")
        );
        let stored = filter.stored_statuses();
        let statuses: Vec<_> = filter.statuses.iter().map(|status| status.number()).collect();
        let work = async {
            let service = filter.service.as_ref().map(ServiceName::as_str);
            let values: [&(dyn ToSql + Sync); 7] =
                [&stored, &filter.after.0, &now.0, &filter.owner, &(limit as i64), &service, &statuses];
            claim::listed(&self.client().await?, &which, &values).await
        };
        self.within(work).await
    }

    async fn answer(&self, delivery: Serial) -> Result<Option<Answer>, StoreError> {
        self.within(async { answer::find(&self.client().await?, delivery).await }).await
    }

    async fn import(&self, claims: Vec<(ClaimKey, Claim)>, act: Act) -> Result<usize, StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            let row = transaction.query_one(BLOCK, &[]).await.map_err(sql)?;
            let message = Serial(row.try_get::<_, i64>(0).map_err(sql)? + 1);
            let numbered =
                |(key, claim): &(ClaimKey, Claim)| (key.clone(), Claim { message, ..claim.clone() });
            let numbered: Vec<_> = claims.iter().map(numbered).collect();
            let taken_over = claim::take_over(&transaction, &numbered, act.at).await?;
            audit::append(&transaction, &act, &[check_value::imported(&claims, taken_over)]).await?;
            transaction.commit().await.map_err(sql)?;
            Ok(taken_over)
        };
        self.within(work).await
    }

    async fn settle_claim(
        &self,
        owner: &str,
        delivery: Serial,
        reference: Option<String>,
        act: Act,
    ) -> Result<Option<Result<Status, HeldBack>>, StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            let status = finish::settle(&transaction, owner, delivery, reference.as_deref(), &act).await?;
            transaction.commit().await.map_err(sql)?;
            Ok(status)
        };
        self.within(work).await
    }

    async fn seen_again(&self, mut seen: Vec<(ClaimKey, u64, Timestamp)>) -> Result<(), StoreError> {
        for pause in COUNTING {
            tokio::time::sleep(pause).await;
            seen = self.within(async { claim::seen_again(&self.client().await?, seen).await }).await?;
            if seen.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

impl PostgresStore {
    /// Ends what no claim waits for, or gives it back: by one statement each. Nothing for what that was not done to.
    async fn end_plain(
        &self,
        queue: &QueueKey,
        reports: &[Report],
    ) -> Result<Vec<Option<Finished>>, StoreError> {
        let mut finished = vec![None; reports.len()];
        let done = |it: &Report| matches!(it.ending, Ending::Completed { .. });
        let places: Vec<_> = (0..reports.len()).filter(|place| done(&reports[*place])).collect();
        if places.is_empty() {
            return Ok(finished);
        }
        let receipts = places.iter().map(|place| reports[*place].receipt).collect();
        let outcomes = self.present(queue, receipts, Ask::End).await?;
        for (place, outcome) in places.into_iter().zip(outcomes) {
            // What is not there may have been somebody's work that a claim still tells of.
            if outcome == ReceiptOutcome::Done {
                finished[place] = Some(Finished::new(outcome, None));
            }
        }
        Ok(finished)
    }
}
