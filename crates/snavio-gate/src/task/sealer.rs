//! Seals the registry's changelog (REG-5). One node does it for all, every few seconds, for the changes since
//! the last seal. Two nodes at once make no second chain, because the store takes only one seal of each
//! number.
//!
//! A node remembers the last seal that it saw. If this seal is missing or differs later, the chain was
//! tampered with: the node seals nothing on top of it and alerts its operator.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use snavio_model::bounds;
use snavio_model::registry::{Fault, LoggedChange, Seal, Signer, Skipped};
use snavio_store::StoreError;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;

use crate::Gate;

/// The interval of sealing.
const SEAL_INTERVAL: Duration = Duration::from_secs(2);
/// The term for which a node leads the sealing without renewal.
const SEALER_TERM: Duration = Duration::from_secs(10);

/// The sealer of a gate, once it has a key.
#[derive(Default)]
pub(crate) struct Sealing(OnceLock<Sealer>);

struct Sealer {
    signer: Arc<dyn Signer>,
    seen: Mutex<Option<Seal>>,
    problem: ArcSwapOption<String>,
}

/// Why the changelog was not sealed.
enum SealError {
    /// The changelog or its chain was altered.
    Tampered(String),
    Store(StoreError),
}

impl From<StoreError> for SealError {
    fn from(error: StoreError) -> Self {
        match error {
            damaged @ StoreError::Damaged { .. } => Self::Tampered(damaged.to_string()),
            error => Self::Store(error),
        }
    }
}

impl From<Fault> for SealError {
    fn from(fault: Fault) -> Self {
        Self::Tampered(fault.to_string())
    }
}

impl Gate {
    /// From now on, seals the changelog with a key that is known to be the store's.
    pub fn seal_with(self: &Arc<Self>, signer: Arc<dyn Signer>) {
        let sealer = Sealer { signer, seen: Mutex::default(), problem: ArcSwapOption::empty() };
        if self.sealing.0.set(sealer).is_ok() {
            self.add_task(tokio::spawn(run_sealing(Arc::clone(self))));
        }
    }

    /// Why the changelog is no longer sealed, if so.
    pub fn sealing_problem(&self) -> Option<String> {
        let problem = self.sealing.0.get()?.problem.load();
        problem.as_deref().cloned()
    }
}

/// Seals the changelog until the gate stops.
async fn run_sealing(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(SEAL_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        gate.sealing.round(&gate).await;
    }
}

impl Sealing {
    /// Seals the changes since the last seal, if this node leads the task.
    pub(crate) async fn round(&self, gate: &Gate) {
        let Some(sealer) = self.0.get() else { return };
        match sealer.seal(gate).await {
            Ok(()) => {
                sealer.problem.store(None);
                metrics::gauge!("snavio_registry_chain_broken").set(0.0);
            }
            Err(SealError::Tampered(why)) => {
                metrics::gauge!("snavio_registry_chain_broken").set(1.0);
                if sealer.problem.swap(Some(Arc::new(why.clone()))).is_none() {
                    tracing::error!(why, "the changelog is no longer sealed: run snavio audit verify");
                }
            }
            // No change is lost: a later round seals these changes.
            Err(SealError::Store(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the changelog could not be sealed");
            }
        }
    }
}

impl Sealer {
    async fn seal(&self, gate: &Gate) -> Result<(), SealError> {
        let mut seen = self.seen.lock().await;
        let mut last = gate.store().last_seal().await?;
        check(gate, seen.as_ref(), last.as_ref()).await?;
        loop {
            let sealed = last.as_ref().map_or(0, |seal| seal.last_version);
            metrics::gauge!("snavio_registry_sealed_version").set(sealed as f64);
            seen.clone_from(&last);
            if gate.registry().version() < sealed {
                let version = gate.store().version().await?;
                if version < sealed {
                    return Err(Fault::SkippedTooFar { last: sealed, version }.into());
                }
            }
            if gate.registry().version() <= sealed || !gate.leads("sealer", SEALER_TERM).await {
                return Ok(());
            }
            let seal = self.next(gate, last.as_ref()).await?;
            match gate.store().seal(seal.clone()).await {
                // Another node sealed first. The next round sees its seal.
                Err(StoreError::Stale { .. }) => return Ok(()),
                done => done?,
            }
            let (number, version) = (seal.number, seal.last_version);
            let head = seal.head_digest().map(|head| head.to_string()).unwrap_or_default();
            tracing::info!(number, version, head, "the changelog is sealed");
            last = Some(seal);
        }
    }
}

impl Sealer {
    /// The next seal, over the changes that follow, or over the versions that a restore skipped.
    async fn next(&self, gate: &Gate, last: Option<&Seal>) -> Result<Seal, SealError> {
        let (first, now) = (last.map_or(1, |seal| seal.last_version + 1), gate.clock().now());
        let logged = gate.store().logged_since(first - 1, bounds::SEAL_CHANGES_MAX).await?;
        if logged.first().is_none_or(|change| change.version != first) {
            let (name, _) = Skipped { first, last: first }.note();
            let noted = gate.store().note(&name).await?;
            let skipped = noted.and_then(|value| Skipped::of_note(&name, &value));
            let skipped = skipped.ok_or(Fault::ChangeMissing { version: first })?;
            let version = gate.store().version().await?;
            if skipped.last > version {
                return Err(Fault::SkippedTooFar { last: skipped.last, version }.into());
            }
            if let Some(within) = logged.first().filter(|change| change.version <= skipped.last) {
                return Err(Fault::ChangeSkipped { version: within.version }.into());
            }
            return Ok(Seal::skip(last, skipped, now, &*self.signer)?);
        }
        let evidence: Vec<_> = logged.iter().map(LoggedChange::evidence).collect();
        Ok(Seal::next(last, &evidence, now, &*self.signer)?)
    }
}

/// Checks that the last seal that was seen is still there, unchanged.
async fn check(gate: &Gate, seen: Option<&Seal>, last: Option<&Seal>) -> Result<(), SealError> {
    let Some(seen) = seen else { return Ok(()) };
    let number = seen.number;
    match last {
        Some(last) if last.number == number && last == seen => return Ok(()),
        Some(last) if last.number > number => {}
        Some(last) if last.number == number => return Err(Fault::SealAltered { number }.into()),
        _ => return Err(Fault::SealMissing { number }.into()),
    }
    match gate.store().seals(number - 1, 1).await?.first() {
        Some(now) if now == seen => Ok(()),
        Some(now) if now.number == number => Err(Fault::SealAltered { number }.into()),
        _ => Err(Fault::SealMissing { number }.into()),
    }
}
