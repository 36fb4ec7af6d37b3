//! Who waits for a tenant's telemetry: a notifier for each tenant that is being read, and none for the others, so
//! that a commit wakes only those it concerns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;

use super::writer::lock;

#[derive(Default)]
pub(super) struct Written(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    notifiers: HashMap<String, Weak<Notify>>,
    /// At this many, those that nobody waits on any more are let go: there are never more than twice as many as
    /// there are readers.
    prune_at: usize,
}

impl Written {
    /// Fires when telemetry of the tenant may have been written.
    pub(super) fn of(&self, tenant: &str) -> Arc<Notify> {
        let mut waiting = lock(&self.0);
        if let Some(notifier) = waiting.notifiers.get(tenant).and_then(Weak::upgrade) {
            return notifier;
        }
        if waiting.notifiers.len() >= waiting.prune_at {
            waiting.notifiers.retain(|_, notifier| notifier.strong_count() > 0);
            waiting.prune_at = 2 * waiting.notifiers.len() + 1;
        }
        let notifier = Arc::new(Notify::new());
        waiting.notifiers.insert(tenant.to_owned(), Arc::downgrade(&notifier));
        notifier
    }

    /// Wakes the readers of these tenants.
    pub(super) fn wake<'a>(&self, tenants: impl IntoIterator<Item = &'a str>) {
        let waiting = lock(&self.0);
        if waiting.notifiers.is_empty() {
            return;
        }
        for tenant in tenants {
            if let Some(notifier) = waiting.notifiers.get(tenant).and_then(Weak::upgrade) {
                notifier.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_left_are_forgotten() {
        let written = Written::default();
        let kept = written.of("acme");
        for n in 0..1000 {
            written.of(&format!("tenant-{n}"));
            assert!(lock(&written.0).notifiers.len() <= 4);
        }
        assert!(Arc::ptr_eq(&kept, &written.of("acme")));
    }
}
