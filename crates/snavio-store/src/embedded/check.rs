//! The check value of evidence rows: CRC-32 over their columns, each preceded by its length (QUA-1).

use crate::StoreError;

/// Says loudly that a record is damaged; what needs it is refused, and the rest goes on.
pub(super) fn alert(error: &StoreError) {
    tracing::error!(error = error as &dyn std::error::Error, "a stored record is damaged: run snavio doctor");
}

/// Gathers columns in order.
#[derive(Default)]
pub(super) struct Check(crc32fast::Hasher);

impl Check {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        self.0.update(bytes);
    }

    pub(super) fn number(&mut self, number: i64) {
        self.0.update(&number.to_le_bytes());
    }

    pub(super) fn value(self) -> i64 {
        i64::from(self.0.finalize())
    }
}
