//! Who asked for its configuration, written down for all nodes (REG-11): which signed requests were taken, so that
//! none is good twice, and what was given; the latter at once, and not again for a minute when it is the same.

use std::sync::{Mutex, MutexGuard, PoisonError};

use snavio_gate::{Gate, ServiceNote};
use snavio_model::bounds;
use snavio_model::limit::throttle::Throttle;
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::signature::signed_request;
use snavio_model::signature::webhook::WebhookSignature;
use snavio_model::telemetry::seldom::Seldom;
use snavio_model::time::Timestamp;
use snavio_store::{Act, Deed, StoreError};

use crate::http::Problem;

/// How often a request is taken anew because another node was quicker. A node's own take turns.
const ATTEMPTS_MAX: usize = 32;

/// One poll: by whom, and the version whose secret is given.
#[derive(Debug, Clone)]
pub(crate) struct Poll<'a> {
    pub(crate) who: String,
    pub(crate) client: &'a str,
    pub(crate) service: &'a ServiceName,
    pub(crate) given: Option<&'a KeyVersion>,
    pub(crate) at: Timestamp,
}

/// What was written down lately.
pub(crate) struct Polls {
    taking: tokio::sync::Mutex<()>,
    replayed: Mutex<Throttle<ServiceName>>,
    noted: Mutex<Seldom<(ServiceName, String)>>,
    recorded: Mutex<Seldom<(String, Option<KeyVersion>)>>,
}

impl Default for Polls {
    fn default() -> Self {
        let most = bounds::KEY_REPORTS_REMEMBERED_MAX;
        Self {
            taking: tokio::sync::Mutex::default(),
            replayed: Mutex::default(),
            noted: Mutex::new(Seldom::new(bounds::CONFIG_POLL_NOTED, most)),
            recorded: Mutex::new(Seldom::new(bounds::CONFIG_POLL_NOTED, most)),
        }
    }
}

impl Polls {
    /// Takes a signed request, which is good once, whichever nodes it is sent to.
    pub(crate) async fn take(
        &self,
        gate: &Gate,
        service: &ServiceName,
        signature: &WebhookSignature,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let name = ServiceNote::Signed.of(service);
        let _turn = self.taking.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let noted = gate.store().note(&name).await?;
            let taken = signed_request::take(noted.as_deref(), signature, now, gate.window());
            let taken = taken.inspect_err(|refusal| self.tell(service, refusal, now))?;
            if gate.store().move_note(&name, noted.as_deref(), &taken, Vec::new()).await? {
                return Ok(());
            }
        }
        Err(Refusal::new(Reason::Overloaded, "too many requests of this service come at once").into())
    }

    /// Counts a replay and tells operators: somebody has what was not meant for them. Who tries all the time fills no
    /// log with it.
    fn tell(&self, service: &ServiceName, refusal: &Refusal, now: Timestamp) {
        if refusal.reason != Reason::Replayed {
            return;
        }
        metrics::counter!("snavio_signed_requests_replayed_total").increment(1);
        if lock(&self.replayed).fail(service.clone(), now).is_ok() {
            tracing::warn!(%service, "refused: a signed request for the configuration was sent again");
        }
    }

    /// Writes a poll down. A secret is given only after this has succeeded.
    pub(crate) async fn write_down(&self, gate: &Gate, poll: &Poll<'_>) -> Result<(), StoreError> {
        let given = (poll.client.to_owned(), poll.given.cloned());
        if lock(&self.recorded).is_due(&given, poll.at) {
            let act = Act { who: poll.who.clone(), why: String::new(), at: poll.at };
            let outcome = match poll.given {
                Some(version) => format!("the secret of {version} was given"),
                None => "no secret was given".to_owned(),
            };
            let deed = Deed { action: "tenant_config.poll", object: poll.service.to_string(), outcome };
            gate.store().put_on_record(act, deed).await?;
            lock(&self.recorded).done(given, poll.at);
        }
        // By client, too: a service that is registered again has another.
        let noted = (poll.service.clone(), poll.client.to_owned());
        if lock(&self.noted).is_due(&noted, poll.at) {
            gate.note_poll(poll.service, poll.at).await?;
            lock(&self.noted).done(noted, poll.at);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
