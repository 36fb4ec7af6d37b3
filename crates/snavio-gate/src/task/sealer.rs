//! Sealing the registry's changelog (REG-5): what has come since the last seal is sealed every few seconds, by one
//! node for all. Two that try at once make no second chain: the store takes one seal of a number.
//!
//! A node remembers the last seal it saw. One that is gone or another one later was tampered with: nothing is sealed
//! on top of it, and whoever runs the node is told.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use snavio_model::bounds;
use snavio_model::registry::{Fault, LoggedChange, Seal, Signer, Skipped};
use snavio_store::StoreError;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;

use crate::Gate;

/// How often there is something to seal, at most.
const SEALING: Duration = Duration::from_secs(2);
/// How long a node seals for all before it is asked again whether it lives.
const SEALER_TERM: Duration = Duration::from_secs(10);

/// Seals for a gate, once it has a key.
#[derive(Default)]
pub(crate) struct Sealing(OnceLock<Sealer>);

struct Sealer {
    signer: Arc<dyn Signer>,
    seen: Mutex<Option<Seal>>,
    problem: ArcSwapOption<String>,
}

/// Why nothing is sealed.
enum Trouble {
    /// The changelog or its chain is not as it was.
    Tampered(String),
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        match error {
            damaged @ StoreError::Damaged { .. } => Self::Tampered(damaged.to_string()),
            error => Self::Store(error),
        }
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Tampered(fault.to_string())
    }
}

impl Gate {
    /// Seals the changelog from now on, with a key that is known to be the store's.
    pub fn seal_with(self: &Arc<Self>, signer: Arc<dyn Signer>) {
        let sealer = Sealer { signer, seen: Mutex::default(), problem: ArcSwapOption::empty() };
        if self.sealing.0.set(sealer).is_ok() {
            self.keep(tokio::spawn(keep_sealing(Arc::clone(self))));
        }
    }

    /// Why the changelog is not sealed any more, if so.
    pub fn sealing_problem(&self) -> Option<String> {
        let problem = self.sealing.0.get()?.problem.load();
        problem.as_deref().cloned()
    }
}

/// Seals, for as long as the gate lives.
async fn keep_sealing(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(SEALING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        gate.sealing.round(&gate).await;
    }
}

impl Sealing {
    /// Seals what there is, if this node is the one to do it.
    pub(crate) async fn round(&self, gate: &Gate) {
        let Some(sealer) = self.0.get() else { return };
        match sealer.seal(gate).await {
            Ok(()) => {
                sealer.problem.store(None);
                metrics::gauge!("snavio_registry_chain_broken").set(0.0);
            }
            Err(Trouble::Tampered(why)) => {
                metrics::gauge!("snavio_registry_chain_broken").set(1.0);
                if sealer.problem.swap(Some(Arc::new(why.clone()))).is_none() {
                    tracing::error!(why, "the changelog is not sealed any more: run snavio audit verify");
                }
            }
            // Nothing is lost by it: what is not sealed now is sealed later.
            Err(Trouble::Store(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the changelog could not be sealed");
            }
        }
    }
}

impl Sealer {
    async fn seal(&self, gate: &Gate) -> Result<(), Trouble> {
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
                // Another node was quicker. What it sealed is seen the next time.
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
    /// Over the changes that follow, or over those that a restore skipped.
    async fn next(&self, gate: &Gate, last: Option<&Seal>) -> Result<Seal, Trouble> {
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

/// What was seen must still be there, as it was.
async fn check(gate: &Gate, seen: Option<&Seal>, last: Option<&Seal>) -> Result<(), Trouble> {
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
