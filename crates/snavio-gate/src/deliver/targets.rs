//! Those whom a node calls, one for each queue: how many calls are under way, and whether it is called now (DLV-4).

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

/// How a target is, as this node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetState {
    /// Whether it is called.
    pub breaker: State,
    /// Calls in a row that found it down.
    pub failures: u32,
    /// When it is tried again, while it is not called.
    pub probes_at: Option<Timestamp>,
    /// When a call is tried again, while none finds a place on this node to look its name up.
    pub crowded_until: Option<Timestamp>,
    /// Calls under way.
    pub calls: usize,
}

/// All targets of a node.
#[derive(Default)]
pub(crate) struct Targets {
    all: Mutex<All>,
    hasher: RandomState,
    /// Told when a call has ended.
    freed: Notify,
}

#[derive(Default)]
struct All {
    targets: HashMap<QueueKey, Arc<Target>>,
    /// Those that have targets, or calls under way.
    tenants: HashMap<Arc<str>, OfTenant>,
    taken: Places,
}

/// What one tenant has of them.
#[derive(Default)]
struct OfTenant {
    targets: usize,
    taken: Places,
}

impl All {
    /// Changes what a tenant has, and forgets one that has nothing.
    fn change(&mut self, tenant: &Arc<str>, change: impl FnOnce(&mut OfTenant)) {
        let of_tenant = self.tenants.entry(Arc::clone(tenant)).or_default();
        change(of_tenant);
        if of_tenant.targets == 0 && of_tenant.taken.count() == 0 {
            self.tenants.remove(tenant);
        }
    }

    /// How things stand for a target that has those places.
    fn asking(&self, tenant: &str, target: Places) -> Asking {
        let of_tenant = self.tenants.get(tenant);
        Asking {
            target,
            tenant: of_tenant.map_or_else(Places::default, |it| it.taken),
            all: self.taken,
            targets: of_tenant.map_or(0, |it| it.targets),
            tenants: self.tenants.len(),
        }
    }
}

/// One of them.
pub(crate) struct Target {
    tenant: Arc<str>,
    breaker: Mutex<Breaker>,
    /// The same for what its calls take here: where there was no place for several in a row, one at a time finds out whether
    /// there is.
    room: Mutex<Breaker>,
    /// Whether its calls all go to one address; the breaker of several would be nobody's.
    is_one: AtomicBool,
    /// What those addresses are, as a number.
    address: AtomicU64,
    /// Places of calls under way; changed only with [`All`] in hand.
    calls: Mutex<Places>,
    /// Told when the breaker has turned.
    pub(crate) turned: Notify,
    seed: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Targets {
    /// The target of a queue, by the addresses that are called for it. Another address is another target: what is known of
    /// the one before says nothing of it.
    pub(crate) fn of(&self, queue: &QueueKey, addresses: &BTreeSet<&str>) -> Arc<Target> {
        let (is_one, address) = (addresses.len() == 1, self.hasher.hash_one(addresses));
        let mut all = lock(&self.all);
        if !all.targets.contains_key(queue) {
            all.change(&queue.tenant().into(), |it| it.targets += 1);
        }
        let new = || {
            Arc::new(Target {
                tenant: queue.tenant().into(),
                breaker: Mutex::default(),
                room: Mutex::default(),
                is_one: AtomicBool::new(is_one),
                address: AtomicU64::new(address),
                calls: Mutex::default(),
                turned: Notify::new(),
                seed: RandomState::new().hash_one(queue),
            })
        };
        let target = all.targets.entry(queue.clone()).or_insert_with(new);
        target.is_one.store(is_one, Ordering::Relaxed);
        if target.address.swap(address, Ordering::Relaxed) != address {
            *lock(&target.breaker) = Breaker::default();
            *lock(&target.room) = Breaker::default();
            target.turned.notify_waiters();
        }
        Arc::clone(target)
    }

    /// Forgets a target that is not called any more.
    pub(crate) fn forget(&self, queue: &QueueKey) {
        let mut all = lock(&self.all);
        if let Some(target) = all.targets.remove(queue) {
            all.change(&target.tenant, |it| it.targets = it.targets.saturating_sub(1));
        }
    }

    /// How many calls are under way.
    pub(crate) fn calls(&self) -> usize {
        lock(&self.all).taken.count()
    }

    /// How the target of a queue is, if there is one.
    pub(crate) fn state(&self, queue: &QueueKey) -> Option<TargetState> {
        lock(&self.all).targets.get(queue).map(|it| it.state())
    }

    /// Takes places for calls to a target: as many as its share allows, and at most so many.
    pub(crate) fn take(self: &Arc<Self>, target: &Arc<Target>, most: usize) -> Vec<Place> {
        let (mut all, mut has) = (lock(&self.all), lock(&target.calls));
        let more = share::may_take(&all.asking(&target.tenant, *has), most);
        has.add(more);
        all.taken.add(more);
        all.change(&target.tenant, |it| it.taken.add(more));
        let place = |source| {
            let (targets, target) = (Arc::clone(self), Arc::clone(target));
            Place { targets, target, source }
        };
        more.sources().map(place).collect()
    }

    /// Told when a call has ended, to whomever.
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

    /// What may be called now.
    pub(crate) fn allows(&self, now: Timestamp) -> Allowed {
        let room = lock(&self.room).allows(now);
        lock(&self.breaker).allows(now).and(room)
    }

    /// A call begins.
    pub(crate) fn begun(&self, deadline: Duration, now: Timestamp) {
        lock(&self.room).begun(deadline, now);
        lock(&self.breaker).begun(deadline, now);
    }

    /// A call has ended. Says what that changed for its target, of which a call without a place tells nothing.
    pub(crate) fn ended(&self, presence: Presence, now: Timestamp) -> Option<Turn> {
        if lock(&self.room).ended(presence.of_room(), self.seed, now).is_some() {
            self.turned.notify_waiters();
        }
        if !self.is_one.load(Ordering::Relaxed) {
            return None;
        }
        let turn = lock(&self.breaker).ended(presence, self.seed, now);
        if turn.is_some() {
            self.turned.notify_waiters();
        }
        turn
    }
}

/// A place among a node's calls, kept until what came of the call is.
pub(crate) struct Place {
    targets: Arc<Targets>,
    target: Arc<Target>,
    source: Source,
}

impl Drop for Place {
    fn drop(&mut self) {
        let (mut all, mut has) = (lock(&self.targets.all), lock(&self.target.calls));
        has.free(self.source);
        all.taken.free(self.source);
        all.change(&self.target.tenant, |it| it.taken.free(self.source));
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
    fn places_come_back_and_those_that_hang_leave_some() {
        let targets = Arc::<Targets>::default();
        let address = BTreeSet::from(["a"]);
        let calm = targets.of(&queue(99), &address);
        let all: Vec<_> = (0..60).map(|n| targets.of(&queue(n), &address)).collect();
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
        assert!(all.iter().all(|it| it.state().calls == 0));
    }

    /// DLV-4
    #[test]
    fn a_tenant_with_many_targets_that_hang_leaves_another_its_part() {
        let targets = Arc::<Targets>::default();
        let address = BTreeSet::from(["a"]);
        let calm = QueueKey::stored("zeta/q");
        let calm_target = targets.of(&calm, &address);
        let many: Vec<_> = (0..600).map(|n| targets.of(&queue(n), &address)).collect();
        let mut hanging: Vec<_> = many.iter().flat_map(|it| targets.take(it, 10)).collect();
        hanging.extend(many.iter().flat_map(|it| targets.take(it, 10)));
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
    fn a_queue_for_several_addresses_has_no_breaker() {
        let targets = Arc::<Targets>::default();
        for (n, is_one) in [(1, true), (2, false)] {
            let addresses = if is_one { BTreeSet::from(["a"]) } else { BTreeSet::from(["a", "b"]) };
            let target = targets.of(&queue(n), &addresses);
            let turned =
                (0..BREAKER_FAILURES).any(|_| target.ended(Presence::SILENT, Timestamp(0)).is_some());
            assert_eq!(turned, is_one);
            let state = targets.state(&queue(n)).unwrap();
            assert_eq!(state.breaker == State::Open, is_one);
        }
        for addresses in [BTreeSet::from(["c"]), BTreeSet::from(["c", "d"])] {
            let target = targets.of(&queue(1), &addresses);
            assert_eq!(target.allows(Timestamp(0)), Allowed::All, "another target is not left alone");
            let is_left_alone =
                (0..BREAKER_FAILURES).any(|_| target.ended(Presence::SILENT, Timestamp(0)).is_some());
            assert_eq!(is_left_alone, addresses.len() == 1);
        }
        targets.forget(&queue(1));
        assert_eq!(targets.state(&queue(1)), None);
    }
}
