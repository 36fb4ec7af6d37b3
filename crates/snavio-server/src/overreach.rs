//! Attempts to act for a source that is somebody else's: each is refused and counted, and goes on the record (REG-8).

use std::sync::{Mutex, PoisonError};

use snavio_model::limit::throttle::Throttle;
use snavio_model::refusal::Refusal;
use snavio_model::time::Clock;
use snavio_store::{Act, Deed};

use crate::http::App;
use crate::principal::{Principal, forbidden};

/// The target of log lines that are never limited: each may be the only trace of an attempt.
pub const SECURITY_LOG: &str = "snavio::security";

/// Who tried how often. Each attempt is counted; who tries all the time fills no record with it.
#[derive(Default)]
pub(crate) struct Overreach(Mutex<Throttle<String>>);

impl Overreach {
    /// Counts an attempt, writes it down, and says no: the same, whether or not there is such a source.
    pub(crate) async fn refuse(
        &self,
        app: &App,
        principal: &Principal,
        action: &'static str,
        object: String,
    ) -> Refusal {
        self.note(app, principal.name(), action, object).await;
        forbidden("nobody acts for a source that is not their own")
    }

    /// Counts an attempt that was refused, and writes it down.
    pub(crate) async fn note(&self, app: &App, who: String, action: &'static str, object: String) {
        metrics::counter!("snavio_foreign_source_total").increment(1);
        let at = app.clock.now();
        let is_told = self.0.lock().unwrap_or_else(PoisonError::into_inner).fail(who.clone(), at).is_ok();
        if is_told {
            tracing::warn!(target: SECURITY_LOG, who, action, object, "refused: the source is not the caller's own");
            let deed = Deed { action, object, outcome: "refused: the source is not the caller's own".into() };
            let act = Act { who: who.clone(), why: String::new(), at };
            if let Err(error) = app.gate.store().put_on_record(act, deed).await {
                let error = &error as &dyn std::error::Error;
                tracing::error!(target: SECURITY_LOG, error, who, "an attempt to act for another's source could not be put on the record");
            }
        }
    }
}
