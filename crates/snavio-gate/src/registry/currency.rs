//! The age of the registry in memory, and the use that the age permits (REG-14, REG-15). In an old registry,
//! revoked keys and grants are still valid.
//!
//! One small read tells whether the whole registry is current, so all of it has one age. The age limits
//! differ by the kind of data.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use snavio_model::registry::age::{AgeLimits, Cache, Phase};
use snavio_model::time::Timestamp;
use snavio_store::StoreError;

/// The advice of a node that cannot read a change.
const UPGRADE: &str = "a newer version may have written it: upgrade this node";

/// The time at which the registry was last known to equal the store's.
pub(crate) struct Currency {
    current_at: AtomicI64,
    routes: AgeLimits,
    /// The amount by which this node shortens its age limits, in thousandths.
    jitter: u32,
    /// Set while the store has a change that this node cannot read.
    unreadable: ArcSwapOption<String>,
}

impl Currency {
    /// The state of a registry that was current at this time.
    pub(crate) fn new(current_at: Timestamp, routes: AgeLimits, jitter: u32) -> Self {
        let current_at = AtomicI64::new(current_at.0);
        Self { current_at, routes, jitter, unreadable: ArcSwapOption::empty() }
    }

    /// The state of a registry that is current now.
    pub(crate) fn of_now(now: Timestamp) -> Self {
        Self::new(now, AgeLimits::of_routes(), 0)
    }

    /// Records the result of a read of the changes that was started at `asked_at`.
    pub(crate) fn record_read(&self, read: &Result<(), StoreError>, asked_at: Timestamp) {
        match read {
            Ok(()) => {
                self.current_at.fetch_max(asked_at.0, Ordering::AcqRel);
                if self.unreadable.swap(None).is_some() {
                    tracing::info!("every change of the registry can be read again");
                }
            }
            Err(error @ StoreError::Damaged { .. }) => {
                let why = format!("{error}; {UPGRADE}");
                if self.unreadable.swap(Some(why.clone().into())).is_none() {
                    tracing::error!(why, "this node cannot follow the registry, and soon takes no messages");
                }
            }
            Err(_) => {}
        }
    }

    /// Why this node cannot follow the registry although the store answers, if so.
    pub(crate) fn problem(&self) -> Option<String> {
        self.unreadable.load().as_ref().map(|why| String::clone(why))
    }

    /// The time since the registry was last known to equal the store's.
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        now.since(self.current_at())
    }

    fn current_at(&self) -> Timestamp {
        Timestamp(self.current_at.load(Ordering::Acquire))
    }

    /// The age limits of a kind of data on this node.
    pub(crate) fn limits(&self, cache: Cache) -> AgeLimits {
        AgeLimits::of(cache, self.routes).shortened(self.jitter)
    }

    /// The phase of a kind of data now.
    pub(crate) fn phase(&self, cache: Cache, now: Timestamp) -> Phase {
        self.limits(cache).phase(self.age(now))
    }

    /// The phase of the data that every message needs: the identity and the keys of its sender.
    pub(crate) fn phase_of_senders(&self, now: Timestamp) -> Phase {
        self.phase(Cache::Keys, now).max(self.phase(Cache::Bans, now))
    }

    /// The time until which a permission that used these kinds of data may be acted on.
    pub(crate) fn good_until(&self, used: &[Cache]) -> Timestamp {
        let dropped = used.iter().map(|cache| self.limits(*cache).dropped).min();
        self.current_at().plus(dropped.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use snavio_model::registry::Profile;

    use super::*;

    const NOON: Timestamp = Timestamp(1_800_000_000_000);

    fn after(seconds: u64) -> Timestamp {
        NOON.plus(Duration::from_secs(seconds))
    }

    /// REG-14, REG-18
    #[test]
    fn only_successful_read_makes_registry_younger() {
        let damaged = || Err(StoreError::Damaged { what: "registry change", key: "7".to_owned() });
        let currency = Currency::new(NOON, AgeLimits::of_routes(), 0);
        let state = |seconds| (currency.problem().is_some(), currency.phase_of_senders(after(seconds)));
        assert_eq!(state(1), (false, Phase::Fresh));
        currency.record_read(&Err(StoreError::Closed), after(3));
        assert_eq!(state(3), (false, Phase::Stale), "a store that is down makes nothing younger");
        currency.record_read(&damaged(), after(3));
        assert_eq!(state(4), (true, Phase::Expired), "an unreadable change makes nothing younger");
        assert_eq!(state(5), (true, Phase::Dropped));
        currency.record_read(&Ok(()), after(6));
        assert_eq!(state(7), (false, Phase::Fresh));
        currency.record_read(&Ok(()), after(2));
        assert_eq!(state(7), (false, Phase::Fresh), "an older read that ends later does not make it older");
    }

    /// REG-15
    #[test]
    fn permission_expires_with_strictest_data_it_used() {
        let currency = Currency::new(NOON, AgeLimits::of_routes(), 100);
        let low = Cache::Grants(Profile::Low);
        assert_eq!(currency.good_until(&[low]), after(108), "shortened by a tenth");
        assert_eq!(currency.good_until(&[low, Cache::Keys]), NOON.plus(Duration::from_millis(4_500)));
        assert_eq!(currency.phase(low, after(26)), Phase::Fresh);
        assert_eq!(currency.phase(low, after(27)), Phase::Stale);
    }
}
