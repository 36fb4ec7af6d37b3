//! Numbers that are missing, as ranges. How many there are is bounded: the lowest are forgotten first. How many numbers those
//! had is counted apart, since nobody can tell any more which of them come.

use serde::{Deserialize, Serialize};

use crate::bounds::ORDER_GAPS_MAX;

/// Numbers that are missing, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gap {
    /// The first.
    pub from: i64,
    /// The last.
    pub to: i64,
}

impl Gap {
    /// How many numbers it has.
    pub fn size(&self) -> u64 {
        self.to.abs_diff(self.from).saturating_add(1)
    }
}

/// The open gaps of an entity, lowest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gaps {
    open: Vec<Gap>,
    /// How many numbers were missing in gaps when they ceased to be tracked.
    #[serde(default, skip_serializing_if = "is_zero")]
    forgotten: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Gaps {
    /// Those that are tracked.
    pub fn open(&self) -> &[Gap] {
        &self.open
    }

    /// How many numbers are known to be missing.
    pub fn missing(&self) -> u64 {
        self.open.iter().fold(0, |sum, gap| sum.saturating_add(gap.size()))
    }

    /// How many more were missing when they ceased to be tracked, the lowest of all. Which of them have come since is not known.
    pub fn untracked(&self) -> u64 {
        self.forgotten
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.forgotten == 0
    }

    /// Opens a gap above all others, and says how large it is.
    pub(super) fn open_above(&mut self, last: i64, number: i64) -> u64 {
        let (Some(from), Some(to)) = (last.checked_add(1), number.checked_sub(1)) else { return 0 };
        if from > to {
            return 0;
        }
        self.open.push(Gap { from, to });
        self.forget();
        Gap { from, to }.size()
    }

    /// A missing number has come. Whether it was known to be missing.
    pub(super) fn close(&mut self, number: i64) -> bool {
        let Some(place) = self.open.iter().position(|gap| (gap.from..=gap.to).contains(&number)) else {
            return false;
        };
        let Gap { from, to } = self.open[place];
        let rest = [Gap { from, to: number.saturating_sub(1) }, Gap { from: number.saturating_add(1), to }];
        let left = [from < number, number < to];
        let rest = rest.into_iter().zip(left).filter_map(|(gap, is_left)| is_left.then_some(gap));
        self.open.splice(place..=place, rest);
        self.forget();
        true
    }

    fn forget(&mut self) {
        while self.open.len() > ORDER_GAPS_MAX {
            self.forgotten = self.forgotten.saturating_add(self.open.remove(0).size());
        }
    }
}
