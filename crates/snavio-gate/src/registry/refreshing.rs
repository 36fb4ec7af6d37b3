//! Keeps the registry in memory up to date by the changes in the store. A registry that is too old is not
//! used (REG-14 to REG-19).

use std::sync::Arc;
use std::time::Duration;

use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::Change;
use snavio_model::registry::age::{Cache, Phase};
use snavio_store::StoreError;

use crate::gate::Gate;

/// The time that a message waits for a registry that is young enough.
const REVALIDATION_MAX: Duration = Duration::from_secs(2);

pub(crate) fn too_old() -> Refusal {
    Refusal::new(Reason::Unavailable, "this node cannot read the current registry")
}

impl Gate {
    /// Waits for the lock for changes of the registry. While a caller holds it, no other caller changes the
    /// registry through this node.
    pub async fn registry_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    /// Commits changes and puts them into effect on this node at once (REG-18). The later of two concurrent
    /// changes gets `StoreError::Stale` and must decide again.
    pub async fn change_registry(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.store.apply(changes).await?;
        if let Err(error) = self.refresh_registry().await {
            // The change is committed, and takes effect when `follow_registry` reads it. The caller must get
            // a success, because its response may contain secrets that are shown only once.
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a committed change could not be read back yet"
            );
        }
        Ok(())
    }

    /// Why this node cannot follow the registry although the store answers, if so.
    pub fn registry_problem(&self) -> Option<String> {
        self.currency.problem()
    }

    /// Reads the changes since the registry's version from the store and applies them.
    pub async fn refresh_registry(&self) -> Result<(), StoreError> {
        let asked_at = self.clock.now();
        let age = self.currency.age(asked_at);
        let began = tokio::time::Instant::now();
        let version = self.registry.load().version();
        let read = self.read_changes().await;
        self.currency.record_read(&read, asked_at);
        self.meters.refreshed(read.is_ok(), began.elapsed());
        let changes = self.registry.load().version() - version;
        self.log_refresh(age, changes, read.is_ok());
        read
    }

    /// REG-19: logs a refresh on the platform's record, because it concerns no single tenant. A refresh
    /// without changes happens every second and is logged at debug level.
    fn log_refresh(&self, age: Duration, changes: i64, succeeded: bool) {
        const EVENT: &str = "snavio.cache.refreshed";
        const ALL: &str = "registry";
        let limits = self.currency.limits(Cache::Keys);
        let [age_seconds, fresh_ttl, stale_ttl] =
            [age, limits.fresh, limits.stale].map(|duration| duration.as_secs_f64());
        if changes > 0 {
            tracing::info!(
                target: "snavio::cache", event = EVENT, cache_type = ALL, age_seconds, fresh_ttl, stale_ttl, changes,
                succeeded, "the registry has changed"
            );
        } else {
            tracing::debug!(
                target: "snavio::cache", event = EVENT, cache_type = ALL, age_seconds, fresh_ttl, stale_ttl, changes,
                succeeded, "the registry is unchanged"
            );
        }
    }

    /// Refreshes the registry before use if it is too old, for a bounded time. If it is only stale, starts a
    /// refresh afterwards (REG-14). Returns the phase that then applies.
    pub(crate) async fn refresh_if_needed(&self) -> Phase {
        match self.currency.phase_of_senders(self.clock.now()) {
            Phase::Fresh => return Phase::Fresh,
            Phase::Stale => {
                self.wanted.notify_one();
                return Phase::Stale;
            }
            Phase::Expired | Phase::Dropped => {}
        }
        let refresh = async {
            // One refresh serves all waiting messages.
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

    /// REG-15: refuses callers while the registry that identifies them is too old.
    pub async fn check_age(&self) -> Result<(), Refusal> {
        match self.refresh_if_needed().await {
            Phase::Fresh | Phase::Stale => Ok(()),
            Phase::Expired | Phase::Dropped => Err(too_old()),
        }
    }

    /// Waits until a stale registry was used.
    pub(crate) async fn stale_use(&self) {
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
            // The newer version of two concurrent refreshes stays.
            self.registry
                .rcu(|now| if now.version() < next.version() { Arc::clone(&next) } else { Arc::clone(now) });
        }
    }
}
