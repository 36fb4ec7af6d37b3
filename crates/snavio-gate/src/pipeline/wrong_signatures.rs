//! Throttling of wrong signatures and keys, counted by the source whose token they came with (PIP-1). Above
//! the limit, refusals ask for a wait and leave no telemetry. Signatures are verified first, so that correct
//! messages still pass. Each source has its own count.

use std::sync::{Mutex, PoisonError};

use snavio_model::bounds;
use snavio_model::limit::throttle::Throttle;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::Timestamp;

/// The counts of wrong signatures by source.
pub(crate) struct WrongSignatures(Mutex<Throttle<ServiceName>>);

impl Default for WrongSignatures {
    fn default() -> Self {
        let (max, window) = (bounds::SIGNATURE_FAILURES_MAX, bounds::AUTH_FAILURES_WINDOW);
        Self(Mutex::new(Throttle::new(max, window, bounds::AUTH_CALLERS_MAX)))
    }
}

impl WrongSignatures {
    /// Counts a refusal because of a wrong signature. Above the limit, replaces it by a refusal with a time
    /// for the retry.
    pub(crate) fn throttle(&self, source: &ServiceName, refusal: Refusal, now: Timestamp) -> Refusal {
        if !refusal.reason.is_of_signature() {
            return refusal;
        }
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).fail(source.clone(), now) {
            Ok(()) => refusal,
            Err(wait) => {
                let (max, window) = (bounds::SIGNATURE_FAILURES_MAX, bounds::AUTH_FAILURES_WINDOW.as_secs());
                let last = refusal.detail;
                let detail = format!(
                    "{source} sent more than {max} wrong signatures within {window} s; the last: {last}"
                );
                Refusal::retry(Reason::SignatureThrottled, wait, detail)
            }
        }
    }
}
