//! Reports that came late and are on record, so that whoever tells the same again, or makes fences up, fills nothing (CLM-7).
//!
//! What is under way counts as if it were on record: reports that come at once know of each other.

use std::collections::HashMap;
use std::sync::Mutex;

use snavio_model::bounds;
use snavio_model::delivery::Receipt;
use snavio_model::id::Serial;
use snavio_store::{Finished, OnRecord};

use super::lock;

/// The fences under which each delivery was reported on late, and whether that is on record yet.
#[derive(Default)]
pub(super) struct LateReports(Mutex<HashMap<Serial, Vec<(Serial, bool)>>>);

impl LateReports {
    /// What is on record beside each of some reports, which are under way from now on.
    pub(super) fn begin<'a>(&'a self, receipts: &[Receipt]) -> (UnderWay<'a>, Vec<OnRecord>) {
        let mut known = lock(&self.0);
        let mut begun = Vec::with_capacity(receipts.len());
        let mut on_record = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let told = known.entry(receipt.delivery_id).or_default();
            if told.iter().any(|(fence, _)| *fence == receipt.fence) {
                on_record.push(OnRecord::This);
                continue;
            }
            // The store knows those of one call itself.
            let of_this_call =
                begun.iter().filter(|it: &&Receipt| it.delivery_id == receipt.delivery_id).count();
            let others = told.len().saturating_sub(of_this_call);
            on_record.push(OnRecord::Others(u32::try_from(others).unwrap_or(u32::MAX)));
            told.push((receipt.fence, false));
            begun.push(*receipt);
        }
        (UnderWay { late: self, begun }, on_record)
    }
}

/// Reports that are with the store; whatever becomes of them, they are not under way for ever.
pub(super) struct UnderWay<'a> {
    late: &'a LateReports,
    begun: Vec<Receipt>,
}

impl UnderWay<'_> {
    /// Notes what went on record.
    pub(super) fn ended<'a>(self, ended: impl Iterator<Item = (&'a Receipt, &'a Finished)>) {
        let mut known = lock(&self.late.0);
        let late: Vec<_> = ended.filter(|(_, finished)| finished.put_on_record).collect();
        if known.len() >= bounds::FENCED_REMEMBERED_MAX && !late.is_empty() {
            known.retain(|_, told| {
                told.retain(|(_, is_on_record)| !is_on_record);
                !told.is_empty()
            });
        }
        for (receipt, _) in late {
            let told = known.entry(receipt.delivery_id).or_default();
            told.retain(|(fence, _)| *fence != receipt.fence);
            told.push((receipt.fence, true));
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut known = lock(&self.late.0);
        for Receipt { delivery_id, fence } in &self.begun {
            if let Some(told) = known.get_mut(delivery_id) {
                told.retain(|(it, is_on_record)| it != fence || *is_on_record);
                if told.is_empty() {
                    known.remove(delivery_id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use snavio_model::claim::Status;

    use super::*;

    const FENCED: Option<Status> = Some(Status::Completed);

    fn receipt(delivery: i64, fence: i64) -> Receipt {
        Receipt { delivery_id: Serial(delivery), fence: Serial(fence) }
    }

    fn ended(under_way: UnderWay<'_>, told: &Receipt, put_on_record: bool) {
        under_way.ended([(told, &Finished::fenced(FENCED, put_on_record))].into_iter());
    }

    /// CLM-7
    #[test]
    fn what_is_on_record_is_told_from_what_is_not() {
        let late = LateReports::default();
        let one = receipt(1, 10);
        for (expected, put_on_record) in
            [(OnRecord::Others(0), false), (OnRecord::Others(0), true), (OnRecord::This, false)]
        {
            let (under_way, on_record) = late.begin(&[one]);
            assert_eq!(on_record, [expected]);
            ended(under_way, &one, put_on_record);
        }
        let (_, on_record) = late.begin(&[receipt(1, 11), receipt(1, 12), receipt(1, 11), receipt(2, 10)]);
        let others = OnRecord::Others;
        assert_eq!(
            on_record,
            [others(1), others(1), OnRecord::This, others(0)],
            "the store counts the call's own"
        );
        assert_eq!(lock(&late.0).len(), 1, "and what was not put on record leaves nothing");
    }

    /// CLM-7
    #[test]
    fn what_comes_at_once_knows_of_each_other() {
        let late = LateReports::default();
        let (first, second) = (receipt(1, 10), receipt(1, 11));
        let (under_way, _) = late.begin(&[first]);
        let (lost, on_record) = late.begin(&[second]);
        assert_eq!(on_record, [OnRecord::Others(1)]);
        assert_eq!(late.begin(&[first]).1, [OnRecord::This]);
        drop(lost);
        ended(under_way, &first, true);
        assert_eq!(late.begin(&[second]).1, [OnRecord::Others(1)]);
    }

    /// CLM-7
    #[test]
    fn what_is_remembered_has_its_bound() {
        let late = LateReports::default();
        for delivery in 0..=bounds::FENCED_REMEMBERED_MAX as i64 {
            let told = receipt(delivery, 1);
            let (under_way, _) = late.begin(&[told]);
            ended(under_way, &told, true);
        }
        assert!(lock(&late.0).len() <= 2);
    }
}
