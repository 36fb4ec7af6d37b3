//! The targets that a node calls, one for each queue: the number of calls in flight, and the circuit breaker
//! (DLV-4).

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snavio_model::delivery::breaker::{Allowed, Breaker, Presence, State, Turn};
use snavio_model::delivery::share;
use snavio_model::delivery::share::{Asking, Places, Source};
use snavio_model::name::QueueKey;
use snavio_model::time::Timestamp;
use tokio::sync::Notify;

/// The state of a target, as this node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetState {
    /// The state of the circuit breaker.
    pub breaker: State,
    /// The number of consecutive calls that found the target down.
    pub failures: u32,
    /// The time of the next probe, while the circuit breaker is open.
    pub probes_at: Option<Timestamp>,
    /// The time of the next call, while this node has no free place to resolve the target's name.
    pub crowded_until: Option<Timestamp>,
    /// The number of calls in flight.
    pub calls: usize,
}

/// All targets of a node.
#[derive(Default)]
pub(crate) struct Targets {
    all: Mutex<TargetTable>,
    hasher: RandomState,
    /// Notified when a call ends.
    freed: Notify,
}

#[derive(Default)]
struct TargetTable {
    targets: HashMap<QueueKey, Arc<Target>>,
    /// The tenants with targets or with calls in flight.
    tenants: HashMap<Arc<str>, TenantCalls>,
    taken: Places,
}

/// The targets and the taken places of one tenant.
#[derive(Default)]
struct TenantCalls {
    targets: usize,
    taken: Places,
}

impl TargetTable {
    /// Changes the numbers of a tenant, and removes the tenant if it has no targets and no calls.
    fn change(&mut self, tenant: &Arc<str>, change: impl FnOnce(&mut TenantCalls)) {
        let tenant_calls = self.tenants.entry(Arc::clone(tenant)).or_default();
        change(tenant_calls);
        if tenant_calls.targets == 0 && tenant_calls.taken.count() == 0 {
            self.tenants.remove(tenant);
        }
    }

    /// The input for the decision about shares, for a target with these places.
    fn asking(&self, tenant: &str, target: Places) -> Asking {
        let tenant_calls = self.tenants.get(tenant);
        Asking {
            target,
            tenant: tenant_calls.map_or_else(Places::default, |calls| calls.taken),
            all: self.taken,
            targets: tenant_calls.map_or(0, |calls| calls.targets),
            tenants: self.tenants.len(),
        }
    }
}

/// One target.
pub(crate) struct Target {
    tenant: Arc<str>,
    breaker: Mutex<Breaker>,
    /// A second breaker, for a node without free places for name lookups. After several calls in a row
    /// without a place, one call at a time probes for a free place.
    room: Mutex<Breaker>,
    /// Whether all calls of the target go to one address. With several addresses the circuit breaker is not
    /// used, because it could not tell which address is down.
    is_one: AtomicBool,
    /// A hash of the addresses.
    address: AtomicU64,
    /// The places of the calls in flight. Change it only while holding the lock of [`TargetTable`].
    calls: Mutex<Places>,
    /// Notified when the state of a breaker changes.
    pub(crate) breaker_changed: Notify,
    seed: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Targets {
    /// Returns the target of a queue, for the addresses that are called for it. If the addresses change, it
    /// is a new target: the breakers start anew.
    pub(crate) fn target_of(&self, queue: &QueueKey, addresses: &BTreeSet<&str>) -> Arc<Target> {
        let (is_one, address) = (addresses.len() == 1, self.hasher.hash_one(addresses));
        let mut all = lock(&self.all);
        if !all.targets.contains_key(queue) {
            all.change(&queue.tenant().into(), |calls| calls.targets += 1);
        }
        let new = || {
            Arc::new(Target {
                tenant: queue.tenant().into(),
                breaker: Mutex::default(),
                room: Mutex::default(),
                is_one: AtomicBool::new(is_one),
                address: AtomicU64::new(address),
                calls: Mutex::default(),
                breaker_changed: Notify::new(),
                seed: RandomState::new().hash_one(queue),
            })
        };
        let target = all.targets.entry(queue.clone()).or_insert_with(new);
        target.is_one.store(is_one, Ordering::Relaxed);
        if target.address.swap(address, Ordering::Relaxed) != address {
            *lock(&target.breaker) = Breaker::default();
            *lock(&target.room) = Breaker::default();
            target.breaker_changed.notify_waiters();
        }
        Arc::clone(target)
    }

    /// Removes a target that is not called any more.
    pub(crate) fn forget(&self, queue: &QueueKey) {
        let mut all = lock(&self.all);
        if let Some(target) = all.targets.remove(queue) {
            all.change(&target.tenant, |calls| calls.targets = calls.targets.saturating_sub(1));
        }
    }

    /// The number of calls in flight.
    pub(crate) fn calls(&self) -> usize {
        lock(&self.all).taken.count()
    }

    /// The state of the target of a queue, if there is one.
    pub(crate) fn state(&self, queue: &QueueKey) -> Option<TargetState> {
        lock(&self.all).targets.get(queue).map(|target| target.state())
    }

    /// Takes places for calls to a target: as many as its share permits, at most `max`.
    pub(crate) fn take(self: &Arc<Self>, target: &Arc<Target>, max: usize) -> Vec<CallPlace> {
        let (mut all, mut has) = (lock(&self.all), lock(&target.calls));
        let more = share::may_take(&all.asking(&target.tenant, *has), max);
        has.add(more);
        all.taken.add(more);
        all.change(&target.tenant, |calls| calls.taken.add(more));
        let place = |source| {
            let (targets, target) = (Arc::clone(self), Arc::clone(target));
            CallPlace { targets, target, source }
        };
        more.sources().map(place).collect()
    }

    /// Notified when any call of the node ends.
    pub(crate) fn freed(&self) -> &Notify {
        &self.freed
    }
}

impl Target {
    fn state(&self) -> TargetState {
        let breaker = *lock(&self.breaker);
        TargetState {
            breaker: breaker.state(),
            failures: breaker.failures(),
            probes_at: breaker.probes_at(),
            crowded_until: lock(&self.room).probes_at(),
            calls: lock(&self.calls).count(),
        }
    }

    /// The calls that both breakers permit now.
    pub(crate) fn allows(&self, now: Timestamp) -> Allowed {
        let room = lock(&self.room).allows(now);
        lock(&self.breaker).allows(now).and(room)
    }

    /// Records the start of a call.
    pub(crate) fn begin_call(&self, deadline: Duration, now: Timestamp) {
        lock(&self.room).begun(deadline, now);
        lock(&self.breaker).begun(deadline, now);
    }

    /// Records the end of a call, and returns the change of the target's circuit breaker. A call without a
    /// place says nothing about its target.
    pub(crate) fn end_call(&self, presence: Presence, now: Timestamp) -> Option<Turn> {
        if lock(&self.room).ended(presence.of_room(), self.seed, now).is_some() {
            self.breaker_changed.notify_waiters();
        }
        if !self.is_one.load(Ordering::Relaxed) {
            return None;
        }
        let turn = lock(&self.breaker).ended(presence, self.seed, now);
        if turn.is_some() {
            self.breaker_changed.notify_waiters();
        }
        turn
    }
}

/// One of the node's places for calls. It is held until the outcome of the call is stored.
pub(crate) struct CallPlace {
    targets: Arc<Targets>,
    target: Arc<Target>,
    source: Source,
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        let (mut all, mut has) = (lock(&self.targets.all), lock(&self.target.calls));
        has.free(self.source);
        all.taken.free(self.source);
        all.change(&self.target.tenant, |calls| calls.taken.free(self.source));
        drop((all, has));
        self.targets.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use snavio_model::bounds::{BREAKER_FAILURES, CALLS_MAX, CALLS_PER_QUEUE_MAX};

    use super::*;

    fn queue(n: usize) -> QueueKey {
        QueueKey::stored(&format!("acme/q{n}"))
    }

    /// DLV-4
    #[test]
    fn hanging_calls_leave_places_and_return_them() {
        let targets = Arc::<Targets>::default();
        let address = BTreeSet::from(["a"]);
        let calm = targets.target_of(&queue(99), &address);
        let all: Vec<_> = (0..60).map(|n| targets.target_of(&queue(n), &address)).collect();
        let in_turns = std::iter::repeat_n(&all, CALLS_PER_QUEUE_MAX).flatten();
        let hanging: Vec<_> = in_turns.flat_map(|target| targets.take(target, 1)).collect();
        assert!((CALLS_MAX / 2..=CALLS_MAX).contains(&hanging.len()), "{}", hanging.len());
        let places = targets.take(&calm, 10);
        assert!(!places.is_empty());
        assert_eq!(targets.state(&queue(99)).unwrap().calls, places.len());
        drop(places);
        assert_eq!(targets.state(&queue(99)).unwrap().calls, 0);
        drop(hanging);
        assert_eq!(lock(&targets.all).taken, Places::default());
        assert!(all.iter().all(|target| target.state().calls == 0));
    }

    /// DLV-4
    #[test]
    fn hanging_targets_of_a_tenant_leave_others_their_share() {
        let targets = Arc::<Targets>::default();
        let address = BTreeSet::from(["a"]);
        let calm = QueueKey::stored("zeta/q");
        let calm_target = targets.target_of(&calm, &address);
        let many: Vec<_> = (0..600).map(|n| targets.target_of(&queue(n), &address)).collect();
        let mut hanging: Vec<_> = many.iter().flat_map(|target| targets.take(target, 10)).collect();
        hanging.extend(many.iter().flat_map(|target| targets.take(target, 10)));
        assert!(hanging.len() >= 600, "each has one: {}", hanging.len());
        let places = targets.take(&calm_target, CALLS_PER_QUEUE_MAX);
        assert_eq!(places.len(), CALLS_PER_QUEUE_MAX);
        (0..600).for_each(|n| targets.forget(&queue(n)));
        assert_eq!(lock(&targets.all).tenants.len(), 2, "its calls are still under way");
        drop((hanging, places));
        assert_eq!(lock(&targets.all).tenants.len(), 1);
        targets.forget(&calm);
        assert!(lock(&targets.all).tenants.is_empty());
    }

    /// DLV-4
    #[test]
    fn queue_with_several_addresses_has_no_breaker() {
        let targets = Arc::<Targets>::default();
        for (n, is_one) in [(1, true), (2, false)] {
            let addresses = if is_one { BTreeSet::from(["a"]) } else { BTreeSet::from(["a", "b"]) };
            let target = targets.target_of(&queue(n), &addresses);
            let breaker_changed =
                (0..BREAKER_FAILURES).any(|_| target.end_call(Presence::SILENT, Timestamp(0)).is_some());
            assert_eq!(breaker_changed, is_one);
            let state = targets.state(&queue(n)).unwrap();
            assert_eq!(state.breaker == State::Open, is_one);
        }
        for addresses in [BTreeSet::from(["c"]), BTreeSet::from(["c", "d"])] {
            let target = targets.target_of(&queue(1), &addresses);
            assert_eq!(target.allows(Timestamp(0)), Allowed::All, "a new address has a closed breaker");
            let is_opened =
                (0..BREAKER_FAILURES).any(|_| target.end_call(Presence::SILENT, Timestamp(0)).is_some());
            assert_eq!(is_opened, addresses.len() == 1);
        }
        targets.forget(&queue(1));
        assert_eq!(targets.state(&queue(1)), None);
    }
}
