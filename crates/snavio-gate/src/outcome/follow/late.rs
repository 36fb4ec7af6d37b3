//! Late reports that are on record, so that repeated reports and invented fencing tokens do not fill the
//! record (CLM-7).
//!
//! Reports in flight count as if they were on record, so that concurrent reports see each other.

use std::collections::HashMap;
use std::sync::Mutex;

use snavio_model::bounds;
use snavio_model::delivery::Receipt;
use snavio_model::id::Serial;
use snavio_store::{Finished, OnRecord};

use super::lock;

/// For each delivery, the fencing tokens of its late reports, and whether each is on record yet.
#[derive(Default)]
pub(super) struct LateReports(Mutex<HashMap<Serial, Vec<(Serial, bool)>>>);

impl LateReports {
    /// For each report, the late reports that are on record. The reports are in flight from now on.
    pub(super) fn begin<'a>(&'a self, receipts: &[Receipt]) -> (ReportsInFlight<'a>, Vec<OnRecord>) {
        let mut reports = lock(&self.0);
        let mut begun = Vec::with_capacity(receipts.len());
        let mut on_record = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let fences = reports.entry(receipt.delivery_id).or_default();
            if fences.iter().any(|(fence, _)| *fence == receipt.fence) {
                on_record.push(OnRecord::This);
                continue;
            }
            // The store itself counts the late reports of one call.
            let of_this_call =
                begun.iter().filter(|other: &&Receipt| other.delivery_id == receipt.delivery_id).count();
            let others = fences.len().saturating_sub(of_this_call);
            on_record.push(OnRecord::Others(u32::try_from(others).unwrap_or(u32::MAX)));
            fences.push((receipt.fence, false));
            begun.push(*receipt);
        }
        (ReportsInFlight { late: self, begun }, on_record)
    }
}

/// Reports that the store is processing. Dropping this ends their being in flight, even without an answer of
/// the store.
pub(super) struct ReportsInFlight<'a> {
    late: &'a LateReports,
    begun: Vec<Receipt>,
}

impl ReportsInFlight<'_> {
    /// Marks the reports that the store put on record.
    pub(super) fn ended<'a>(self, ended: impl Iterator<Item = (&'a Receipt, &'a Finished)>) {
        let mut reports = lock(&self.late.0);
        let late: Vec<_> = ended.filter(|(_, finished)| finished.put_on_record).collect();
        if reports.len() >= bounds::FENCED_REMEMBERED_MAX && !late.is_empty() {
            reports.retain(|_, fences| {
                fences.retain(|(_, is_on_record)| !is_on_record);
                !fences.is_empty()
            });
        }
        for (receipt, _) in late {
            let fences = reports.entry(receipt.delivery_id).or_default();
            fences.retain(|(fence, _)| *fence != receipt.fence);
            fences.push((receipt.fence, true));
        }
    }
}

impl Drop for ReportsInFlight<'_> {
    fn drop(&mut self) {
        let mut reports = lock(&self.late.0);
        for Receipt { delivery_id, fence } in &self.begun {
            if let Some(fences) = reports.get_mut(delivery_id) {
                fences.retain(|(other, is_on_record)| other != fence || *is_on_record);
                if fences.is_empty() {
                    reports.remove(delivery_id);
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

    fn end(in_flight: ReportsInFlight<'_>, receipt: &Receipt, put_on_record: bool) {
        in_flight.ended([(receipt, &Finished::fenced(FENCED, put_on_record))].into_iter());
    }

    /// CLM-7
    #[test]
    fn reports_on_record_are_distinguished() {
        let late = LateReports::default();
        let one = receipt(1, 10);
        for (expected, put_on_record) in
            [(OnRecord::Others(0), false), (OnRecord::Others(0), true), (OnRecord::This, false)]
        {
            let (in_flight, on_record) = late.begin(&[one]);
            assert_eq!(on_record, [expected]);
            end(in_flight, &one, put_on_record);
        }
        let (_, on_record) = late.begin(&[receipt(1, 11), receipt(1, 12), receipt(1, 11), receipt(2, 10)]);
        let others = OnRecord::Others;
        assert_eq!(
            on_record,
            [others(1), others(1), OnRecord::This, others(0)],
            "the store counts the reports of the same call"
        );
        assert_eq!(lock(&late.0).len(), 1, "a report that is not on record leaves no entry");
    }

    /// CLM-7
    #[test]
    fn concurrent_reports_see_each_other() {
        let late = LateReports::default();
        let (first, second) = (receipt(1, 10), receipt(1, 11));
        let (in_flight, _) = late.begin(&[first]);
        let (lost, on_record) = late.begin(&[second]);
        assert_eq!(on_record, [OnRecord::Others(1)]);
        assert_eq!(late.begin(&[first]).1, [OnRecord::This]);
        drop(lost);
        end(in_flight, &first, true);
        assert_eq!(late.begin(&[second]).1, [OnRecord::Others(1)]);
    }

    /// CLM-7
    #[test]
    fn remembered_reports_are_bounded() {
        let late = LateReports::default();
        for delivery in 0..=bounds::FENCED_REMEMBERED_MAX as i64 {
            let report = receipt(delivery, 1);
            let (in_flight, _) = late.begin(&[report]);
            end(in_flight, &report, true);
        }
        assert!(lock(&late.0).len() <= 2);
    }
}
