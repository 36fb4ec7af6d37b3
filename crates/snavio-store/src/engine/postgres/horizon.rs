//! Up to which number everything is there that ever will be.
//!
//! Transactions overlap: one that took its numbers early may commit late, and a reader that pages by number must not
//! pass it by. Each takes its numbers under a shared advisory lock that it holds to its end ([`BLOCK`]). So when
//! nobody holds the lock any more who held it after a number was given out, nothing up to that number is under way.
//! What is kept here saves looking again; a reader that starts with nothing only waits a moment longer.

use tokio::sync::Mutex;

use super::client::GenericClient;
use super::pool::sql;
use crate::StoreError;

/// The advisory lock, as two halves: "snav", and a number.
const LOCK: (i32, i32) = (0x736e_6176, 2);

/// Numbers in one block; a transaction takes one.
pub(super) const BLOCK_NUMBERS: usize = 2048;

/// A query that takes a block of numbers, if the database still serves this layout; its column is `base`, and its
/// numbers are those after it.
pub(super) const BLOCK: &str = "SELECT take_block(1) AS base";

/// One look at a time: what an older one saw must not be taken for news after a newer one.
#[derive(Default)]
pub(super) struct Horizon(Mutex<Known>);

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Known {
    /// Everything up to here is there.
    up_to: i64,
    /// A number given out, and who may be under way with it or one below.
    pending: Option<(i64, Vec<String>)>,
}

impl Horizon {
    /// Looks how far everything is there.
    pub(super) async fn look(&self, client: &impl GenericClient) -> Result<i64, StoreError> {
        const GIVEN: &str = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM serial";
        const HOLDERS: &str = "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 \
             AND classid::bigint = $1 AND objid::bigint = $2 \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let mut known = self.0.lock().await;
        let given = client.prepare_cached(GIVEN).await.map_err(sql)?;
        let given: i64 = client.query_one(&given, &[]).await.and_then(|row| row.try_get(0)).map_err(sql)?;
        if known.up_to == given {
            return Ok(last_of(given));
        }
        // After the number: whoever takes the lock later has later numbers.
        let holders = client.prepare_cached(HOLDERS).await.map_err(sql)?;
        let values = (i64::from(LOCK.0), i64::from(LOCK.1));
        let rows = client.query(&holders, &[&values.0, &values.1]).await.map_err(sql)?;
        let holders = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(sql)?;
        *known = std::mem::take(&mut *known).after(given, holders);
        Ok(last_of(known.up_to))
    }
}

/// The last number of a block.
fn last_of(base: i64) -> i64 {
    base + BLOCK_NUMBERS as i64 - 1
}

impl Known {
    /// What is known after a look: the last number given out, and then who holds the lock.
    fn after(self, given: i64, holders: Vec<String>) -> Self {
        // A server that crashed may give numbers again that it had given to nobody who committed.
        if given < self.up_to {
            return Self::default().after(given, holders);
        }
        if holders.is_empty() {
            return Self { up_to: given, pending: None };
        }
        let Some((number, before)) = self.pending else {
            return Self { pending: Some((given, holders)), ..self };
        };
        let left: Vec<_> = before.into_iter().filter(|it| holders.contains(it)).collect();
        if left.is_empty() {
            return Self { up_to: self.up_to.max(number), pending: Some((given, holders)) };
        }
        Self { pending: Some((number, left)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use snavio_model::id::Serial;
    use snavio_model::settle::Outcome;
    use snavio_testbed::Postgres;

    use super::*;
    use crate::conformance::samples::{at, pay, settle_one};
    use crate::engine::postgres::{Options, PostgresStore, pool};
    use crate::{Journal, Store};

    fn known(up_to: i64, pending: Option<(i64, &[&str])>) -> Known {
        let pending = pending.map(|(number, holders)| (number, names(holders)));
        Known { up_to, pending }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&it| it.to_owned()).collect()
    }

    /// TEL-4, ENG-7: a batch of another node that took its numbers early, and commits late.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_reader_waits_for_what_is_still_under_way_below_what_it_could_read() {
        let url = Postgres::shared().database().expect("PostgreSQL starts");
        let open = async || PostgresStore::open(&Options::new(url.as_str())).await.expect("it opens");
        let (store, other) = (open().await, Arc::new(open().await));
        let third = pool::connect(&Options::new(url.as_str())).await.expect("it connects");
        let read = async || {
            let messages = store.messages("acme", Serial(0), 10).await.expect("it reads");
            messages.into_iter().map(|it| it.message.id.to_string()).collect::<Vec<_>>()
        };
        settle_one(&store, "before", &pay(), at(0)).await;
        assert_eq!(read().await, ["before"]);
        // Somebody is about to take the same id, and holds up whoever comes with it.
        const HOLD_UP: &str = "BEGIN; INSERT INTO claim SELECT 'late', tenant, destination, source, message, \
             first_seen_at, expires_at, check_value FROM claim WHERE id = 'before'";
        third.batch_execute(HOLD_UP).await.expect("it takes the id");
        let late = tokio::spawn({
            let other = Arc::clone(&other);
            async move { settle_one(&*other, "late", &pay(), at(0)).await }
        });
        const WAITS: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' \
             AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
        while third.query_one(WAITS, &[]).await.expect("it answers").get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        settle_one(&store, "after", &pay(), at(0)).await;
        for _ in 0..3 {
            assert_eq!(read().await, ["before"]);
        }
        third.batch_execute("ROLLBACK").await.expect("it gives up");
        assert!(matches!(late.await.expect("it ends"), Outcome::Queued { .. }));
        assert_eq!(read().await, ["before", "late", "after"]);
        store.close().await;
        other.close().await;
    }

    /// TEL-4
    #[test]
    fn a_number_is_passed_only_when_nobody_is_under_way_with_one_below() {
        for (before, given, holders, after) in [
            (known(0, None), 10, &[][..], known(10, None)),
            (known(0, None), 10, &["a"][..], known(0, Some((10, &["a"])))),
            (known(0, Some((10, &["a", "b"]))), 20, &["b", "c"], known(0, Some((10, &["b"])))),
            (known(0, Some((10, &["b"]))), 30, &["c"], known(10, Some((30, &["c"])))),
            (known(5, Some((10, &["a"]))), 30, &[], known(30, None)),
            (known(50, None), 30, &["a"], known(0, Some((30, &["a"])))),
        ] {
            assert_eq!(before.after(given, names(holders)), after);
        }
    }

    #[test]
    fn blocks_are_taken_by_this_layout_and_under_the_lock_that_is_looked_at() {
        assert_eq!(BLOCK, format!("SELECT take_block({}) AS base", crate::engine::postgres::layout::LAYOUT));
        let (high, low) = LOCK;
        let function = include_str!("migrations/V1__schema.sql");
        assert!(function.contains(&format!("pg_advisory_xact_lock_shared({high}, {low})")), "{high}, {low}");
    }
}
