//! Who waits for something by name, a tenant's telemetry or a queue's deliveries: a notifier for each name that is
//! waited for, and none for the others, so that a commit wakes only those it concerns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Waiting(Mutex<ByName>);

#[derive(Default)]
struct ByName {
    notifiers: HashMap<String, Weak<Notify>>,
    /// At this many, those that nobody waits on any more are let go: there are never more than twice as many as
    /// there are readers.
    prune_at: usize,
}

impl Waiting {
    /// Fires when there may be something under the name.
    pub(crate) fn of(&self, name: &str) -> Arc<Notify> {
        let mut waiting = self.lock();
        if let Some(notifier) = waiting.notifiers.get(name).and_then(Weak::upgrade) {
            return notifier;
        }
        if waiting.notifiers.len() >= waiting.prune_at {
            waiting.notifiers.retain(|_, notifier| notifier.strong_count() > 0);
            waiting.prune_at = 2 * waiting.notifiers.len() + 1;
        }
        let notifier = Arc::new(Notify::new());
        waiting.notifiers.insert(name.to_owned(), Arc::downgrade(&notifier));
        notifier
    }

    /// Wakes all who wait for these names.
    pub(crate) fn wake<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let waiting = self.lock();
        if waiting.notifiers.is_empty() {
            return;
        }
        for name in names {
            if let Some(notifier) = waiting.notifiers.get(name).and_then(Weak::upgrade) {
                notifier.notify_waiters();
            }
        }
    }

    /// Wakes up to so many of those who wait for a name, and one that is about to.
    pub(crate) fn wake_some(&self, name: &str, count: usize) {
        let notifier = self.lock().notifiers.get(name).and_then(Weak::upgrade);
        if let Some(notifier) = notifier {
            (0..count).for_each(|_| notifier.notify_one());
        }
    }

    /// The names that somebody waits for.
    pub(crate) fn names(&self) -> Vec<String> {
        let waiting = self.lock();
        let awaited = waiting.notifiers.iter().filter(|(_, notifier)| notifier.strong_count() > 0);
        awaited.map(|(name, _)| name.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, ByName> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_left_are_forgotten() {
        let waiting = Waiting::default();
        let kept = waiting.of("acme");
        for n in 0..1000 {
            waiting.of(&format!("tenant-{n}"));
            assert!(waiting.lock().notifiers.len() <= 4);
        }
        assert!(Arc::ptr_eq(&kept, &waiting.of("acme")));
    }
}
