//! The number of a node's concurrent calls that one target may have (DLV-4). Calls that hang leave places for
//! others, and a tenant with many targets leaves places for a tenant with few.
//!
//! Half of the places are divided evenly among the tenants, and each tenant's part evenly among its targets,
//! whatever the others do. The other half is common, for additional need. A tenant takes at most as many
//! common places as it leaves free, and a target at most as many as it leaves of its tenant's maximum. If a
//! part is too small for all targets, each target may still have one spare call above the total. The scheme
//! counts no slow targets and has nothing to tune.

use crate::bounds::{CALLS_MAX, CALLS_PER_QUEUE_MAX};

/// The size of the divided half, and of the common half.
const HALF: usize = CALLS_MAX / 2;

/// The origin of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The target's own part.
    Own,
    /// The common half.
    Common,
    /// Above the total: the one call of a target whose tenant's part is exhausted.
    Spare,
}

/// Counts of places by origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places {
    own: usize,
    common: usize,
    spare: usize,
}

impl Places {
    /// The total count.
    pub fn count(self) -> usize {
        self.own + self.common + self.spare
    }

    /// The origin of each place.
    pub fn sources(self) -> impl Iterator<Item = Source> {
        let of = std::iter::repeat_n;
        of(Source::Own, self.own).chain(of(Source::Common, self.common)).chain(of(Source::Spare, self.spare))
    }

    /// Adds the counts of `more`.
    pub fn add(&mut self, more: Self) {
        self.own += more.own;
        self.common += more.common;
        self.spare += more.spare;
    }

    /// Frees one place of this origin.
    pub fn free(&mut self, source: Source) {
        let count = match source {
            Source::Own => &mut self.own,
            Source::Common => &mut self.common,
            Source::Spare => &mut self.spare,
        };
        *count = count.saturating_sub(1);
    }
}

/// The situation of a target that requests places.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// Places of the target.
    pub target: Places,
    /// Places of all targets of its tenant.
    pub tenant: Places,
    /// Places of all targets.
    pub all: Places,
    /// Number of targets of its tenant.
    pub targets: usize,
    /// Number of tenants with targets.
    pub tenants: usize,
}

/// The places that a target may take in addition to its own, at most `most`.
pub fn may_take(asking: &Asking, most: usize) -> Places {
    let Asking { target, tenant, all, targets, tenants } = *asking;
    let most = most.min(CALLS_PER_QUEUE_MAX.saturating_sub(target.count()));
    let of_tenant = (HALF / tenants.max(1)).max(1);
    let part = (of_tenant / targets.max(1)).clamp(1, CALLS_PER_QUEUE_MAX);
    // Parts shrink as targets and tenants arrive, so older targets may exceed theirs and leave less.
    let left = of_tenant.saturating_sub(tenant.own).min(HALF.saturating_sub(all.own));
    let current = target.own + target.spare;
    let own = part.saturating_sub(current).min(left).min(most);
    let spare = usize::from(current + own == 0).min(most);
    // With n more places a tenant has tenant.common + n, and free - n remain, so n is at most half the
    // difference. The same holds for a target within its tenant's maximum.
    let free = HALF.saturating_sub(all.common);
    let of_tenant = free.saturating_sub(tenant.common).div_ceil(2);
    let common = of_tenant.saturating_sub(target.common).div_ceil(2);
    Places { own, common: common.min(most - own - spare), spare }
}

#[cfg(test)]
mod tests;
