use proptest::prelude::*;

use super::*;

/// Targets with calls that never end. Tenants are numbers.
struct HangingCalls {
    targets: Vec<(usize, Places)>,
    tenants: usize,
}

impl HangingCalls {
    /// Targets without calls; each tenant has the given number of targets.
    fn of(tenants: &[usize]) -> Self {
        let targets = tenants.iter().enumerate();
        let held = targets.flat_map(|(tenant, count)| (0..*count).map(move |_| (tenant, Places::default())));
        Self { targets: held.collect(), tenants: tenants.len() }
    }

    fn all(&self) -> Places {
        sum(self.targets.iter().map(|target| target.1))
    }

    fn of_tenant(&self, tenant: usize) -> Places {
        sum(self.targets.iter().filter(|target| target.0 == tenant).map(|target| target.1))
    }

    fn may_take(&self, index: usize, most: usize) -> Places {
        let (tenant, target) = self.targets[index];
        let targets = self.targets.iter().filter(|target| target.0 == tenant).count();
        let (of_tenant, tenants) = (self.of_tenant(tenant), self.tenants);
        may_take(&Asking { target, tenant: of_tenant, all: self.all(), targets, tenants }, most)
    }

    fn take(&mut self, index: usize, most: usize) -> Places {
        let more = self.may_take(index, most);
        self.targets[index].1.add(more);
        more
    }

    /// Lets these targets take places in turn, until none of them can take more.
    fn hang(&mut self, hanging: std::ops::Range<usize>, most: usize) {
        while hanging.clone().map(|index| self.take(index, most).count()).sum::<usize>() > 0 {}
    }
}

fn sum(places: impl Iterator<Item = Places>) -> Places {
    let mut sum = Places::default();
    places.for_each(|more| sum.add(more));
    sum
}

/// DLV-4
#[test]
fn hanging_targets_leave_every_other_its_part() {
    for targets in [2, 9, 16, 50, 201] {
        let mut held = HangingCalls::of(&[targets]);
        held.hang(0..targets - 1, CALLS_PER_QUEUE_MAX);
        let left = held.may_take(targets - 1, CALLS_PER_QUEUE_MAX).count();
        let part = (HALF / targets).clamp(1, CALLS_PER_QUEUE_MAX);
        assert!(left >= part, "{targets}: {left} left of a part of {part}");
        assert!(held.targets.iter().all(|target| target.1.count() <= CALLS_PER_QUEUE_MAX));
        assert!(held.all().count() <= CALLS_MAX, "{targets}: {:?}", held.all());
    }
}

/// DLV-4: however many targets of one tenant hang, another tenant has its part and its share of the common
/// places.
#[test]
fn hanging_tenant_leaves_every_other_its_part() {
    for (hanging, others) in [(200, 1), (1500, 1), (200, 20), (1500, 100)] {
        let mut held = HangingCalls::of(&[&[hanging][..], &vec![1; others]].concat());
        held.hang(0..hanging, CALLS_PER_QUEUE_MAX);
        assert!(held.of_tenant(0).common <= HALF / 2, "{:?}", held.all());
        let part = (HALF / (others + 1)).min(CALLS_PER_QUEUE_MAX);
        for other in hanging..hanging + others {
            let own = held.take(other, CALLS_PER_QUEUE_MAX).own;
            assert_eq!(own, part, "{hanging} hang, {others} do not");
        }
    }
}

/// DLV-4: the other targets do not notice one dead target of fifty.
#[test]
fn hanging_target_takes_nothing_from_others() {
    let mut held = HangingCalls::of(&[50]);
    held.hang(0..1, CALLS_PER_QUEUE_MAX);
    assert_eq!(held.targets[0].1.count(), CALLS_PER_QUEUE_MAX);
    assert_eq!(held.may_take(1, CALLS_PER_QUEUE_MAX).count(), CALLS_PER_QUEUE_MAX);
}

/// DLV-4
#[test]
fn every_target_may_have_one_call() {
    let count = 10 * CALLS_MAX;
    let mut held = Places::default();
    for _ in 0..count {
        let target = Places::default();
        let asking = Asking { target, tenant: held, all: held, targets: count, tenants: 1 };
        let more = may_take(&asking, 1);
        assert_eq!((more.own + more.spare, more.common), (1, 0));
        held.add(more);
    }
    assert!(held.own <= HALF, "{held:?}");
    let target = Places { own: 1, ..Places::default() };
    let full = Places { common: HALF, ..held };
    let asking = Asking { target, tenant: full, all: full, targets: count, tenants: 1 };
    assert_eq!(may_take(&asking, 10).count(), 0, "there is no second one");
}

/// DLV-4
#[test]
fn take_is_limited_to_the_request() {
    let mut held = HangingCalls::of(&[50]);
    assert_eq!(held.take(0, 3), Places { own: 3, ..Places::default() });
    assert_eq!(held.take(0, 9), Places { own: 7, common: 2, spare: 0 });
    held.take(0, CALLS_PER_QUEUE_MAX);
    assert_eq!(held.take(0, 3).count(), 0, "a target has no more places than that");
}

/// DLV-4: tenants and targets that arrive one by one get smaller parts, and the bound still holds.
#[test]
fn late_targets_find_a_place_within_the_bound() {
    for is_one_tenant in [true, false] {
        let mut held = HangingCalls { targets: Vec::new(), tenants: 1 };
        for place in 0..300 {
            let tenant = if is_one_tenant { 0 } else { place };
            held.targets.push((tenant, Places::default()));
            held.tenants = tenant + 1;
            assert!(held.take(place, CALLS_PER_QUEUE_MAX).count() >= 1, "{place}");
        }
        let all = held.all();
        assert!(all.own <= HALF && all.common <= HALF && all.spare <= held.targets.len(), "{all:?}");
    }
}

proptest! {
    /// DLV-4: in any order of taking and freeing, the bounds hold, and a target without a place gets one.
    #[test]
    fn bounds_hold_in_any_order(
        tenants in prop::collection::vec(1..30_usize, 1..20),
        steps in prop::collection::vec((0..1000_usize, 1..70_usize, any::<bool>()), 1..200),
    ) {
        let mut held = HangingCalls::of(&tenants);
        let count = held.targets.len();
        for (place, most, frees) in steps {
            let place = place % count;
            if frees {
                let last = held.targets[place].1.sources().last();
                last.into_iter().for_each(|source| held.targets[place].1.free(source));
                continue;
            }
            let before = held.targets[place].1.count();
            let more = held.take(place, most);
            prop_assert!(more.count() <= most && (before > 0 || more.count() > 0), "{more:?}");
            let (all, of_tenant) = (held.all(), held.of_tenant(held.targets[place].0));
            prop_assert!(all.own <= HALF && all.common <= HALF && all.spare <= count, "{all:?}");
            prop_assert!(of_tenant.own <= (HALF / tenants.len()).max(1), "{of_tenant:?}");
            prop_assert!(of_tenant.common <= HALF.div_ceil(2), "{of_tenant:?}");
        }
    }
}
