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

/// A query that takes a block of numbers; its column is `base`, and its numbers are those after it. The lock is taken
/// first: rows are made only after the condition was found true.
pub(super) const BLOCK: &str =
    "SELECT nextval('serial') AS base WHERE pg_advisory_xact_lock_shared(1936613750, 2) IS NOT NULL";

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
    use super::*;

    fn known(up_to: i64, pending: Option<(i64, &[&str])>) -> Known {
        let pending = pending.map(|(number, holders)| (number, names(holders)));
        Known { up_to, pending }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&it| it.to_owned()).collect()
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
    fn the_lock_in_the_query_is_the_lock_that_is_looked_at() {
        let (high, low) = LOCK;
        assert!(BLOCK.contains(&format!("({high}, {low})")), "{BLOCK}: {high}, {low}");
    }
}
