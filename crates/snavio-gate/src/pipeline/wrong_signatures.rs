//! Messages and requests with a wrong or missing signature or key, counted by the sender whose token they came with
//! (PIP-1): past a rate they are told to wait and leave no telemetry. Signatures are verified first, so that right ones pass, and each sender
//! has its own count.

use std::sync::{Mutex, PoisonError};

use snavio_model::bounds;
use snavio_model::limit::throttle::Throttle;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::Timestamp;

/// The counts.
pub(crate) struct WrongSignatures(Mutex<Throttle<ServiceName>>);

impl Default for WrongSignatures {
    fn default() -> Self {
        let (most, window) = (bounds::SIGNATURE_FAILURES_MAX, bounds::AUTH_FAILURES_WINDOW);
        Self(Mutex::new(Throttle::new(most, window, bounds::AUTH_CALLERS_MAX)))
    }
}

impl WrongSignatures {
    /// Counts a refusal for a wrong signature; past the rate it becomes one that says when to come back.
    pub(crate) fn throttle(&self, source: &ServiceName, refusal: Refusal, now: Timestamp) -> Refusal {
        if !refusal.reason.is_of_signature() {
            return refusal;
        }
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).fail(source.clone(), now) {
            Ok(()) => refusal,
            Err(wait) => {
                let (most, window) = (bounds::SIGNATURE_FAILURES_MAX, bounds::AUTH_FAILURES_WINDOW.as_secs());
                let last = refusal.detail;
                let detail = format!(
                    "{source} sent more than {most} wrong signatures within {window} s; the last: {last}"
                );
                Refusal::retry(Reason::SignatureThrottled, wait, detail)
            }
        }
    }
}
