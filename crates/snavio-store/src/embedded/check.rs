//! The check value of evidence rows: CRC-32 over their columns, each preceded by its length (QUA-1).

use crate::StoreError;

/// Says loudly that a record is damaged; what needs it is refused, and the rest goes on.
pub(super) fn alert(error: &StoreError) {
    tracing::error!(error = error as &dyn std::error::Error, "a stored record is damaged: run snavio doctor");
}

/// Room for the columns of a usual row.
const ROW_BYTES: usize = 2048;

/// Gathers columns in order. They are put side by side first: many small pieces cost more than one copy.
pub(super) struct Check(Vec<u8>);

impl Default for Check {
    fn default() -> Self {
        Self(Vec::with_capacity(ROW_BYTES))
    }
}

impl Check {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn number(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn value(self) -> i64 {
        i64::from(crc32fast::hash(&self.0))
    }
}
