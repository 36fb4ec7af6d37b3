//! Missing numbers of an entity, as ranges. The number of ranges is bounded: the lowest are forgotten first.
//! The size of forgotten gaps is counted separately, because the gateway can no longer know which of their
//! numbers arrive.

use serde::{Deserialize, Serialize};

use crate::bounds::ORDER_GAPS_MAX;

/// A range of missing numbers, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gap {
    pub from: i64,
    pub to: i64,
}

impl Gap {
    /// The count of numbers in the gap.
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
    /// Count of numbers in gaps at the time when these were forgotten.
    #[serde(default, skip_serializing_if = "is_zero")]
    forgotten: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Gaps {
    /// The tracked gaps.
    pub fn open(&self) -> &[Gap] {
        &self.open
    }

    /// The count of missing numbers in tracked gaps.
    pub fn missing(&self) -> u64 {
        self.open.iter().fold(0, |sum, gap| sum.saturating_add(gap.size()))
    }

    /// The count of numbers that were missing in gaps when these were forgotten. Some may have arrived since.
    pub fn untracked(&self) -> u64 {
        self.forgotten
    }

    /// Whether no number is tracked as missing and no gap was forgotten.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.forgotten == 0
    }

    /// Opens a gap above all others and returns its size.
    pub(super) fn open_above(&mut self, last: i64, number: i64) -> u64 {
        let (Some(from), Some(to)) = (last.checked_add(1), number.checked_sub(1)) else { return 0 };
        if from > to {
            return 0;
        }
        self.open.push(Gap { from, to });
        self.forget_lowest();
        Gap { from, to }.size()
    }

    /// Removes an arrived number from its gap. Returns whether it was tracked as missing.
    pub(super) fn close(&mut self, number: i64) -> bool {
        let Some(index) = self.open.iter().position(|gap| (gap.from..=gap.to).contains(&number)) else {
            return false;
        };
        let Gap { from, to } = self.open[index];
        let rest = [Gap { from, to: number.saturating_sub(1) }, Gap { from: number.saturating_add(1), to }];
        let left = [from < number, number < to];
        let rest = rest.into_iter().zip(left).filter_map(|(gap, is_left)| is_left.then_some(gap));
        self.open.splice(index..=index, rest);
        self.forget_lowest();
        true
    }

    fn forget_lowest(&mut self) {
        while self.open.len() > ORDER_GAPS_MAX {
            self.forgotten = self.forgotten.saturating_add(self.open.remove(0).size());
        }
    }
}
