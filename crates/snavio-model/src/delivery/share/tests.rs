use proptest::prelude::*;

use super::*;

/// Targets whose calls never end, of tenants by number.
struct Held {
    held: Vec<(usize, Places)>,
    tenants: usize,
}

impl Held {
    /// Of tenants that have so many targets each.
    fn of(tenants: &[usize]) -> Self {
        let targets = tenants.iter().enumerate();
        let held = targets.flat_map(|(tenant, count)| (0..*count).map(move |_| (tenant, Places::default())));
        Self { held: held.collect(), tenants: tenants.len() }
    }

    fn all(&self) -> Places {
        sum(self.held.iter().map(|it| it.1))
    }

    fn of_tenant(&self, tenant: usize) -> Places {
        sum(self.held.iter().filter(|it| it.0 == tenant).map(|it| it.1))
    }

    fn may_take(&self, place: usize, most: usize) -> Places {
        let (tenant, target) = self.held[place];
        let targets = self.held.iter().filter(|it| it.0 == tenant).count();
        let (of_tenant, tenants) = (self.of_tenant(tenant), self.tenants);
        may_take(&Asking { target, tenant: of_tenant, all: self.all(), targets, tenants }, most)
    }

    fn take(&mut self, place: usize, most: usize) -> Places {
        let more = self.may_take(place, most);
        self.held[place].1.add(more);
        more
    }

    /// Lets those take what they may, one after the other, until none may any more.
    fn hang(&mut self, hanging: std::ops::Range<usize>, most: usize) {
        while hanging.clone().map(|place| self.take(place, most).count()).sum::<usize>() > 0 {}
    }
}

fn sum(places: impl Iterator<Item = Places>) -> Places {
    let mut sum = Places::default();
    places.for_each(|it| sum.add(it));
    sum
}

/// DLV-4
#[test]
fn targets_that_hang_leave_every_other_its_part() {
    for targets in [2, 9, 16, 50, 201] {
        let mut held = Held::of(&[targets]);
        held.hang(0..targets - 1, CALLS_PER_QUEUE_MAX);
        let left = held.may_take(targets - 1, CALLS_PER_QUEUE_MAX).count();
        let part = (HALF / targets).clamp(1, CALLS_PER_QUEUE_MAX);
        assert!(left >= part, "{targets}: {left} left of a part of {part}");
        assert!(held.held.iter().all(|it| it.1.count() <= CALLS_PER_QUEUE_MAX));
        assert!(held.all().count() <= CALLS_MAX, "{targets}: {:?}", held.all());
    }
}

/// DLV-4: however many targets of one tenant hang, another has its part, and what it may take of the common ones.
#[test]
fn a_tenant_whose_targets_hang_leaves_every_other_its_part() {
    for (hanging, others) in [(200, 1), (1500, 1), (200, 20), (1500, 100)] {
        let mut held = Held::of(&[&[hanging][..], &vec![1; others]].concat());
        held.hang(0..hanging, CALLS_PER_QUEUE_MAX);
        assert!(held.of_tenant(0).common <= HALF / 2, "{:?}", held.all());
        let part = (HALF / (others + 1)).min(CALLS_PER_QUEUE_MAX);
        for other in hanging..hanging + others {
            let own = held.take(other, CALLS_PER_QUEUE_MAX).own;
            assert_eq!(own, part, "{hanging} hang, {others} do not");
        }
    }
}

/// DLV-4: one of fifty that is dead is not noticed by the rest.
#[test]
fn one_that_hangs_takes_nothing_that_others_would_miss() {
    let mut held = Held::of(&[50]);
    held.hang(0..1, CALLS_PER_QUEUE_MAX);
    assert_eq!(held.held[0].1.count(), CALLS_PER_QUEUE_MAX);
    assert_eq!(held.may_take(1, CALLS_PER_QUEUE_MAX).count(), CALLS_PER_QUEUE_MAX);
}

/// DLV-4
#[test]
fn every_target_may_have_one_call_however_many_hang() {
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
    assert_eq!(may_take(&asking, 10).count(), 0, "and no second one");
}

/// DLV-4
#[test]
fn no_more_is_taken_than_is_asked_for() {
    let mut held = Held::of(&[50]);
    assert_eq!(held.take(0, 3), Places { own: 3, ..Places::default() });
    assert_eq!(held.take(0, 9), Places { own: 7, common: 2, spare: 0 });
    held.take(0, CALLS_PER_QUEUE_MAX);
    assert_eq!(held.take(0, 3).count(), 0, "a target has no more than that");
}

/// DLV-4: tenants and targets that come one by one find smaller parts, and the bound holds all the same.
#[test]
fn those_that_come_late_find_a_place_within_the_bound() {
    for is_one_tenant in [true, false] {
        let mut held = Held { held: Vec::new(), tenants: 1 };
        for place in 0..300 {
            let tenant = if is_one_tenant { 0 } else { place };
            held.held.push((tenant, Places::default()));
            held.tenants = tenant + 1;
            assert!(held.take(place, CALLS_PER_QUEUE_MAX).count() >= 1, "{place}");
        }
        let all = held.all();
        assert!(all.own <= HALF && all.common <= HALF && all.spare <= held.held.len(), "{all:?}");
    }
}

proptest! {
    /// DLV-4: whatever is taken and freed in whatever order, the bounds hold, and whoever has nothing gets something.
    #[test]
    fn the_bounds_hold_in_whatever_order(
        tenants in prop::collection::vec(1..30_usize, 1..20),
        steps in prop::collection::vec((0..1000_usize, 1..70_usize, any::<bool>()), 1..200),
    ) {
        let mut held = Held::of(&tenants);
        let count = held.held.len();
        for (place, most, frees) in steps {
            let place = place % count;
            if frees {
                let last = held.held[place].1.sources().last();
                last.into_iter().for_each(|it| held.held[place].1.free(it));
                continue;
            }
            let had = held.held[place].1.count();
            let more = held.take(place, most);
            prop_assert!(more.count() <= most && (had > 0 || more.count() > 0), "{more:?}");
            let (all, of_tenant) = (held.all(), held.of_tenant(held.held[place].0));
            prop_assert!(all.own <= HALF && all.common <= HALF && all.spare <= count, "{all:?}");
            prop_assert!(of_tenant.own <= (HALF / tenants.len()).max(1), "{of_tenant:?}");
            prop_assert!(of_tenant.common <= HALF.div_ceil(2), "{of_tenant:?}");
        }
    }
}
