//! The registry in memory, kept as the store's: brought up to date by the difference, and not used when it is too old
//! (REG-14 to REG-19).

use std::sync::Arc;
use std::time::Duration;

use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::Change;
use snavio_model::registry::age::{Cache, Phase};
use snavio_store::StoreError;

use crate::gate::Gate;

/// How long a message waits for a registry that is young enough.
const REVALIDATION_MAX: Duration = Duration::from_secs(2);

pub(crate) fn too_old() -> Refusal {
    Refusal::new(Reason::Unavailable, "this node cannot read the registry as it is now")
}

impl Gate {
    /// Waits for the turn to change the registry: whoever holds it decides on a registry that nobody else
    /// changes through this node meanwhile.
    pub async fn registry_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    /// Makes changes durable and puts them in effect on this node at once (REG-18). Concurrent changes are
    /// told to decide anew.
    pub async fn change_registry(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.store.apply(changes).await?;
        if let Err(error) = self.refresh_registry().await {
            // Durable, and in effect when `follow_registry` reads it: whoever made the change must hear of it, for
            // the answer may hold secrets that nobody sees again.
            tracing::warn!(error = &error as &dyn std::error::Error, "a change could not be read back yet");
        }
        Ok(())
    }

    /// Why this node's registry is not the store's although the store answers, if so.
    pub fn registry_problem(&self) -> Option<String> {
        self.currency.problem()
    }

    /// Brings the registry up to the store's version by the difference.
    pub async fn refresh_registry(&self) -> Result<(), StoreError> {
        let asked_at = self.clock.now();
        let age = self.currency.age(asked_at);
        let began = tokio::time::Instant::now();
        let version = self.registry.load().version();
        let read = self.read_changes().await;
        self.currency.note(&read, asked_at);
        self.meters.refreshed(read.is_ok(), began.elapsed());
        let changes = self.registry.load().version() - version;
        self.log_refresh(age, changes, read.is_ok());
        read
    }

    /// REG-19: on the platform's record, for it is no tenant's. One that finds nothing comes every second.
    fn log_refresh(&self, age: Duration, changes: i64, succeeded: bool) {
        const EVENT: &str = "snavio.cache.refreshed";
        const ALL: &str = "registry";
        let limits = self.currency.limits(Cache::Keys);
        let [age_seconds, fresh_ttl, stale_ttl] =
            [age, limits.fresh, limits.stale].map(|it| it.as_secs_f64());
        if changes > 0 {
            tracing::info!(
                target: "snavio::cache", event = EVENT, cache_type = ALL, age_seconds, fresh_ttl, stale_ttl, changes,
                succeeded, "the registry has changed"
            );
        } else {
            tracing::debug!(
                target: "snavio::cache", event = EVENT, cache_type = ALL, age_seconds, fresh_ttl, stale_ttl, changes,
                succeeded, "the registry was looked at"
            );
        }
    }

    /// Brings the registry up to date first where it is too old to be used, for a bounded time, and afterwards where
    /// it only begins to be (REG-14). What may then be done is told.
    pub(crate) async fn renewed(&self) -> Phase {
        match self.currency.phase_of_senders(self.clock.now()) {
            Phase::Fresh => return Phase::Fresh,
            Phase::Stale => {
                self.wanted.notify_one();
                return Phase::Stale;
            }
            Phase::Expired | Phase::Dropped => {}
        }
        let refresh = async {
            // One asks for all.
            let _turn = self.refreshing.lock().await;
            if self.currency.phase_of_senders(self.clock.now()) >= Phase::Expired
                && let Err(error) = self.refresh_registry().await
            {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the registry is too old, and cannot be read"
                );
            }
        };
        if tokio::time::timeout(REVALIDATION_MAX, refresh).await.is_err() {
            tracing::warn!(
                cause = "no answer in time",
                "the registry is too old, and the store does not answer"
            );
        }
        self.currency.phase_of_senders(self.clock.now())
    }

    /// REG-15: whoever is known by the registry is known by one that is not too old.
    pub async fn check_age(&self) -> Result<(), Refusal> {
        match self.renewed().await {
            Phase::Fresh | Phase::Stale => Ok(()),
            Phase::Expired | Phase::Dropped => Err(too_old()),
        }
    }

    /// Fires when somebody used what begins to be old.
    pub(crate) async fn is_wanted(&self) {
        self.wanted.notified().await;
    }

    async fn read_changes(&self) -> Result<(), StoreError> {
        loop {
            let current = self.registry.load_full();
            let changes = self.store.changes_since(current.version(), snavio_model::bounds::PAGE_MAX).await?;
            if changes.is_empty() {
                return Ok(());
            }
            let next = Arc::new(current.with(&changes, &*self.unseal));
            // Of two refreshes at once the one that is ahead stays.
            self.registry
                .rcu(|now| if now.version() < next.version() { Arc::clone(&next) } else { Arc::clone(now) });
        }
    }
}
