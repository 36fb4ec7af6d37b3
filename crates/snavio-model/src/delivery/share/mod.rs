//! How many of a node's calls one target may have under way (DLV-4), so that those that hang leave places for those that do
//! not, and a tenant that has many leaves places for one that has few.
//!
//! Half of the places are divided among the tenants, and each tenant's part among its targets, whatever the others do. The
//! other half is for whoever needs more: a tenant takes no more of that than is left, and of what its tenant may still take a
//! target takes no more than is left. Where a part is too small for all, every target may still have one call, beside the
//! others'. No count of who is slow is kept, and there is nothing to tune.

use crate::bounds::{CALLS_MAX, CALLS_PER_QUEUE_MAX};

/// The half that is divided, and the half that is common.
const HALF: usize = CALLS_MAX / 2;

/// Where a place comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The target's own part.
    Own,
    /// Those that are for all.
    Common,
    /// Beside all others: the one of a target whose tenant's part is taken.
    Spare,
}

/// Places, by where they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places {
    own: usize,
    common: usize,
    spare: usize,
}

impl Places {
    /// All of them.
    pub fn count(self) -> usize {
        self.own + self.common + self.spare
    }

    /// Where each of them comes from.
    pub fn sources(self) -> impl Iterator<Item = Source> {
        let of = std::iter::repeat_n;
        of(Source::Own, self.own).chain(of(Source::Common, self.common)).chain(of(Source::Spare, self.spare))
    }

    /// Adds those.
    pub fn add(&mut self, more: Self) {
        self.own += more.own;
        self.common += more.common;
        self.spare += more.spare;
    }

    /// Takes one off.
    pub fn free(&mut self, source: Source) {
        let count = match source {
            Source::Own => &mut self.own,
            Source::Common => &mut self.common,
            Source::Spare => &mut self.spare,
        };
        *count = count.saturating_sub(1);
    }
}

/// How things stand for a target that wants places.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// What it has.
    pub target: Places,
    /// What all targets of its tenant have.
    pub tenant: Places,
    /// What all targets have.
    pub all: Places,
    /// How many targets its tenant has.
    pub targets: usize,
    /// How many tenants have targets.
    pub tenants: usize,
}

/// The places that a target may take beside those that it has, at most so many.
pub fn may_take(asking: &Asking, most: usize) -> Places {
    let Asking { target, tenant, all, targets, tenants } = *asking;
    let most = most.min(CALLS_PER_QUEUE_MAX.saturating_sub(target.count()));
    let of_tenant = (HALF / tenants.max(1)).max(1);
    let part = (of_tenant / targets.max(1)).clamp(1, CALLS_PER_QUEUE_MAX);
    // Parts get smaller as targets and tenants come: those that have more of old leave less to be had.
    let left = of_tenant.saturating_sub(tenant.own).min(HALF.saturating_sub(all.own));
    let has = target.own + target.spare;
    let own = part.saturating_sub(has).min(left).min(most);
    let spare = usize::from(has + own == 0).min(most);
    // With n more a tenant has tenant.common + n of them, and free - n are left; a target of that likewise.
    let free = HALF.saturating_sub(all.common);
    let of_tenant = free.saturating_sub(tenant.common).div_ceil(2);
    let common = of_tenant.saturating_sub(target.common).div_ceil(2);
    Places { own, common: common.min(most - own - spare), spare }
}

#[cfg(test)]
mod tests;
