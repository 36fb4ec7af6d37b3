//! Who asked for its configuration and what it was given, written down for all nodes: at once, and not again for a
//! minute when it is the same (REG-11).

use std::sync::{Mutex, MutexGuard, PoisonError};

use snavio_gate::Gate;
use snavio_model::limits;
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_model::seldom::Seldom;
use snavio_model::time::Timestamp;
use snavio_store::{Act, Deed, StoreError};

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
    noted: Mutex<Seldom<ServiceName>>,
    recorded: Mutex<Seldom<(String, Option<KeyVersion>)>>,
}

impl Default for Polls {
    fn default() -> Self {
        let most = limits::KEY_REPORTS_REMEMBERED_MAX;
        Self {
            noted: Mutex::new(Seldom::new(limits::CONFIG_POLL_NOTED, most)),
            recorded: Mutex::new(Seldom::new(limits::CONFIG_POLL_NOTED, most)),
        }
    }
}

impl Polls {
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
        if lock(&self.noted).is_due(poll.service, poll.at) {
            gate.note_poll(poll.service, poll.at).await?;
            lock(&self.noted).done(poll.service.clone(), poll.at);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
