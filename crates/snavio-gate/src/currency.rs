//! Whether the registry in memory is the store's: by an old one, keys and grants that were taken back are still good.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use snavio_model::limits;
use snavio_model::refusal::{Reason, Refusal};
use snavio_store::StoreError;
use tokio::time::Instant;

/// What a node that cannot read a change has to say.
const UPGRADE: &str = "a newer version may have written it: upgrade this node";

/// How current the registry is. A store that does not answer makes no difference here: it takes no messages either.
pub(crate) struct Currency {
    current_at: Mutex<Instant>,
    /// Set for as long as the store has a change that cannot be read.
    unreadable: ArcSwapOption<Unreadable>,
}

struct Unreadable {
    why: String,
    /// When the registry was last known to be current.
    current_at: Instant,
}

impl Currency {
    /// Of a registry that was just read.
    pub(crate) fn new(now: Instant) -> Self {
        Self { current_at: Mutex::new(now), unreadable: ArcSwapOption::empty() }
    }

    /// Takes note of how reading the changes ended.
    pub(crate) fn note(&self, read: &Result<(), StoreError>, now: Instant) {
        let mut current_at = self.current_at.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(()) => {
                *current_at = now;
                if self.unreadable.swap(None).is_some() {
                    tracing::info!("every change of the registry can be read again");
                }
            }
            Err(error @ StoreError::Damaged { .. }) => {
                let why = format!("{error}; {UPGRADE}");
                let said = Unreadable { why: why.clone(), current_at: *current_at };
                if self.unreadable.swap(Some(Arc::new(said))).is_none() {
                    tracing::error!(why, "this node cannot follow the registry, and soon takes no messages");
                }
            }
            Err(_) => {}
        }
    }

    /// Why the registry is not current, if the store answers and it is not all the same.
    pub(crate) fn problem(&self) -> Option<String> {
        self.unreadable.load().as_ref().map(|it| it.why.clone())
    }

    /// Refuses to decide by a registry that has been old for too long.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Refusal> {
        match &*self.unreadable.load() {
            Some(it) if now.duration_since(it.current_at) > limits::REGISTRY_AGE_MAX => {
                Err(Refusal::new(Reason::Unavailable, "this node cannot read the registry as it is now"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// REG-18
    #[test]
    fn an_old_registry_is_told_of_at_once_and_decides_nothing_after_a_while() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let damaged = || Err(StoreError::Damaged { what: "registry change", key: "7".to_owned() });
        let currency = Currency::new(start);
        let seen = |seconds| (currency.problem().is_some(), currency.check(after(seconds)).is_err());

        currency.note(&Ok(()), after(1));
        currency.note(&Err(StoreError::Closed), after(9));
        assert_eq!(seen(9), (false, false), "a store that is down is no old registry");
        currency.note(&Ok(()), after(10));
        currency.note(&damaged(), after(11));
        assert_eq!(seen(11), (true, false));
        currency.note(&damaged(), after(15));
        assert_eq!(seen(15), (true, false));
        assert_eq!(seen(16), (true, true));
        currency.note(&Err(StoreError::Closed), after(17));
        assert_eq!(seen(17), (true, true), "nothing was read since");
        currency.note(&Ok(()), after(18));
        assert_eq!(seen(30), (false, false));
        currency.note(&damaged(), after(31));
        assert_eq!(seen(31), (true, true), "it was last current long ago");
    }
}
