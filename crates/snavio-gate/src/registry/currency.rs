//! How old the registry in memory is, and what may be done by it (REG-14, REG-15): by an old one, keys and grants that
//! were taken back are still good.
//!
//! One small read says whether the whole registry is the store's, so all of it has one age; what differs is how old
//! each kind of thing may be.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use snavio_model::registry::age::{AgeLimits, Cache, Phase};
use snavio_model::time::Timestamp;
use snavio_store::StoreError;

/// What a node that cannot read a change has to say.
const UPGRADE: &str = "a newer version may have written it: upgrade this node";

/// When the registry was last known to be the store's.
pub(crate) struct Currency {
    current_at: AtomicI64,
    routes: AgeLimits,
    /// How much limits are shortened on this node, in thousandths.
    jitter: u32,
    /// Set for as long as the store has a change that cannot be read.
    unreadable: ArcSwapOption<String>,
}

impl Currency {
    /// Of a registry that was the store's at this time.
    pub(crate) fn new(current_at: Timestamp, routes: AgeLimits, jitter: u32) -> Self {
        let current_at = AtomicI64::new(current_at.0);
        Self { current_at, routes, jitter, unreadable: ArcSwapOption::empty() }
    }

    /// Of a registry that is right at this very moment.
    pub(crate) fn of_now(now: Timestamp) -> Self {
        Self::new(now, AgeLimits::of_routes(), 0)
    }

    /// Takes note of how a read of the changes ended that was asked for at this time.
    pub(crate) fn note(&self, read: &Result<(), StoreError>, asked_at: Timestamp) {
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

    /// Why the registry is not current, if the store answers and it is not all the same.
    pub(crate) fn problem(&self) -> Option<String> {
        self.unreadable.load().as_ref().map(|why| String::clone(why))
    }

    /// How long ago it was last known to be the store's.
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        now.since(self.current_at())
    }

    fn current_at(&self) -> Timestamp {
        Timestamp(self.current_at.load(Ordering::Acquire))
    }

    /// The limits of a kind of thing on this node.
    pub(crate) fn limits(&self, cache: Cache) -> AgeLimits {
        AgeLimits::of(cache, self.routes).shortened(self.jitter)
    }

    /// What may be done with a kind of thing now.
    pub(crate) fn phase(&self, cache: Cache, now: Timestamp) -> Phase {
        self.limits(cache).phase(self.age(now))
    }

    /// What may be done with what every message needs: who its sender is, and by which key it signs.
    pub(crate) fn phase_of_senders(&self, now: Timestamp) -> Phase {
        self.phase(Cache::Keys, now).max(self.phase(Cache::Bans, now))
    }

    /// Until when what the registry permits now may be acted on, by all kinds of things that were used.
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
    fn only_a_read_that_succeeded_makes_it_younger() {
        let damaged = || Err(StoreError::Damaged { what: "registry change", key: "7".to_owned() });
        let currency = Currency::new(NOON, AgeLimits::of_routes(), 0);
        let seen = |seconds| (currency.problem().is_some(), currency.phase_of_senders(after(seconds)));
        assert_eq!(seen(1), (false, Phase::Fresh));
        currency.note(&Err(StoreError::Closed), after(3));
        assert_eq!(seen(3), (false, Phase::Stale), "a store that is down makes nothing younger");
        currency.note(&damaged(), after(3));
        assert_eq!(seen(4), (true, Phase::Expired), "nor does what cannot be read");
        assert_eq!(seen(5), (true, Phase::Dropped));
        currency.note(&Ok(()), after(6));
        assert_eq!(seen(7), (false, Phase::Fresh));
        currency.note(&Ok(()), after(2));
        assert_eq!(seen(7), (false, Phase::Fresh), "an older read that ended later makes it no older");
    }

    /// REG-15
    #[test]
    fn what_is_permitted_is_good_until_the_strictest_of_what_was_used_is_dropped() {
        let currency = Currency::new(NOON, AgeLimits::of_routes(), 100);
        let low = Cache::Grants(Profile::Low);
        assert_eq!(currency.good_until(&[low]), after(108), "shortened by a tenth");
        assert_eq!(currency.good_until(&[low, Cache::Keys]), NOON.plus(Duration::from_millis(4_500)));
        assert_eq!(currency.phase(low, after(26)), Phase::Fresh);
        assert_eq!(currency.phase(low, after(27)), Phase::Stale);
    }
}
