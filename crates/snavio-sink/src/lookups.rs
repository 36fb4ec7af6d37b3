//! Name lookups: bounded in number, divided by tenants, and cached for a moment (DLV-4, QUA-6).
//!
//! A lookup occupies a thread for as long as the machine's resolver tries, even if every caller has given up.
//! So one lookup of a name serves all callers that wait for it, and a tenant gets at most an eighth of the
//! places. A tenant's names that hang therefore do not block the names of other tenants. Half of the places
//! are reserved for names that resolved recently. So names that hang, even those of many tenants, never block
//! names that resolved recently.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snavio_model::bounds;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// The time that a lookup waits for a free place.
const PLACE_TIME_MAX: Duration = Duration::from_secs(2);
/// The time that a name counts as recently resolved.
const RESOLVED_FOR: Duration = Duration::from_secs(3600);
/// Stands for a lookup without a tenant: such a name is not in any tenant's share.
pub(crate) const NO_TENANT: &str = "";

/// The result of a lookup, shared by all callers that wait for it.
type LookupResult = Result<Vec<SocketAddr>, Arc<std::io::Error>>;
type PendingLookup = watch::Receiver<Option<LookupResult>>;
/// One place of the tenant's share and one of the node's.
type Permits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Lookups in flight and lookups that have just ended.
pub(crate) struct Lookups {
    resolver: Resolver,
    /// Places for names that resolved recently.
    resolved_places: Arc<Semaphore>,
    /// Places for all other names.
    other_places: Arc<Semaphore>,
    /// Each tenant's share: one for names that resolved recently (`true`), one for the others.
    by_tenant: Mutex<HashMap<(String, bool), Arc<Semaphore>>>,
    by_name: Mutex<HashMap<String, PendingLookup>>,
    /// The names of each tenant that resolved, with the time.
    resolved: Mutex<HashMap<String, HashMap<String, Instant>>>,
    /// The time that the result of a lookup is kept.
    ttl: Duration,
}

/// Lookups of other names took all places, so the name was not looked up. This says nothing about the target.
#[derive(Debug, thiserror::Error)]
#[error("too many name lookups are in flight; try again later")]
pub struct Crowded;

/// Resolves names to addresses.
pub(crate) enum Resolver {
    /// The machine's resolver.
    System,
    /// A script, for names that resolve to another address on each lookup.
    #[cfg(test)]
    Script(Mutex<Vec<SocketAddr>>),
    /// A resolver that blocks until `may` permits it, and counts the blocked lookups.
    #[cfg(test)]
    Stuck { waiting: std::sync::atomic::AtomicUsize, may: Semaphore },
}

impl Resolver {
    async fn find(&self, name: &str) -> std::io::Result<Vec<SocketAddr>> {
        match self {
            Self::System => Ok(tokio::net::lookup_host((name, 0)).await?.collect()),
            #[cfg(test)]
            Self::Script(script) => Ok(lock(script).pop().into_iter().collect()),
            #[cfg(test)]
            Self::Stuck { waiting, may } => {
                waiting.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let _ = may.acquire().await;
                waiting.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                Ok(Vec::new())
            }
        }
    }
}

impl Lookups {
    pub(crate) fn new(resolver: Resolver, ttl: Duration) -> Self {
        let other_places = bounds::LOOKUPS_MAX - bounds::LOOKUPS_ANSWERING_MAX;
        Self {
            resolver,
            resolved_places: Arc::new(Semaphore::new(bounds::LOOKUPS_ANSWERING_MAX)),
            other_places: Arc::new(Semaphore::new(other_places)),
            by_tenant: Mutex::default(),
            by_name: Mutex::default(),
            resolved: Mutex::default(),
            ttl,
        }
    }

    /// Resolves a name, or waits for the lookup of the name that is in flight.
    pub(crate) async fn find(
        self: Arc<Self>,
        name: &str,
        tenant: &str,
    ) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let mut looking = self.begin(name, tenant, PLACE_TIME_MAX).await?;
        let found = looking.wait_for(Option::is_some).await?.clone();
        found.unwrap_or_else(|| Ok(Vec::new())).map_err(Into::into)
    }

    /// Starts the lookup of a name as soon as a place is free, unless one is in flight. The place is held
    /// until the lookup ends, even if no caller waits any more, because the abandoned lookup still occupies
    /// its thread.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        name: &str,
        tenant: &str,
        wait_max: Duration,
    ) -> Result<PendingLookup, Crowded> {
        let under_way = lock(&self.by_name).get(name).cloned();
        if let Some(looking) = under_way {
            // The name counts as resolved for this tenant, too.
            if matches!(&*looking.borrow(), Some(Ok(found)) if !found.is_empty()) {
                self.mark_resolved(name, tenant);
            }
            return Ok(looking);
        }
        let place = async {
            let has_resolved = self.has_resolved(name, tenant);
            let own = self.tenant_places(tenant, has_resolved).acquire_owned().await?;
            let of_all = if has_resolved { &self.resolved_places } else { &self.other_places };
            Ok((own, Arc::clone(of_all).acquire_owned().await?))
        };
        // The semaphores are never closed, so an `AcquireError` does not occur.
        let place: Result<Result<Permits, tokio::sync::AcquireError>, _> =
            tokio::time::timeout(wait_max.min(PLACE_TIME_MAX), place).await;
        let place = place.map_err(|_| Crowded)?.map_err(|_| Crowded)?;
        Ok(Arc::clone(self).start(name.to_owned(), tenant.to_owned(), place))
    }

    /// Whether a name of a tenant resolved recently.
    fn has_resolved(&self, name: &str, tenant: &str) -> bool {
        let resolved = lock(&self.resolved);
        resolved.get(tenant).and_then(|names| names.get(name)).is_some_and(|at| at.elapsed() < RESOLVED_FOR)
    }

    fn mark_resolved(&self, name: &str, tenant: &str) {
        let mut resolved = lock(&self.resolved);
        if is_full(&resolved, tenant) {
            resolved.values_mut().for_each(|names| names.retain(|_, at| at.elapsed() < RESOLVED_FOR));
        }
        if !is_full(&resolved, tenant) {
            resolved.entry(tenant.to_owned()).or_default().insert(name.to_owned(), Instant::now());
        }
    }

    /// Forgets that a name resolved, until it resolves again: a name that begins to hang takes a place among
    /// the recently resolved names only once.
    fn unmark_resolved(&self, name: &str, tenant: &str) {
        let mut resolved = lock(&self.resolved);
        if let Some(of_tenant) = resolved.get_mut(tenant) {
            of_tenant.remove(name);
        }
        resolved.retain(|_, names| !names.is_empty());
    }

    /// A tenant's share of the places.
    fn tenant_places(&self, tenant: &str, has_resolved: bool) -> Arc<Semaphore> {
        if tenant == NO_TENANT {
            return Arc::new(Semaphore::new(1));
        }
        let mut all = lock(&self.by_tenant);
        // A share without waiting or running lookups has no state worth keeping.
        all.retain(|_, places| Arc::strong_count(places) > 1);
        let places = all.entry((tenant.to_owned(), has_resolved));
        Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(bounds::LOOKUPS_PER_TENANT_MAX))))
    }

    #[cfg(test)]
    pub(crate) fn clear_names(&self) {
        lock(&self.by_name).clear();
    }

    #[cfg(test)]
    pub(crate) fn is_script_exhausted(&self) -> bool {
        matches!(&self.resolver, Resolver::Script(script) if lock(script).is_empty())
    }

    fn start(self: Arc<Self>, name: String, tenant: String, place: Permits) -> PendingLookup {
        let (sender, looking) = watch::channel(None);
        // Another caller may have started the lookup while this one waited for its place.
        match lock(&self.by_name).entry(name.clone()) {
            Entry::Occupied(other) => return other.get().clone(),
            Entry::Vacant(free) => drop(free.insert(looking.clone())),
        }
        tokio::spawn(async move {
            self.unmark_resolved(&name, &tenant);
            let found = self.resolver.find(&name).await.map_err(Arc::new);
            if found.as_ref().is_ok_and(|addresses| !addresses.is_empty()) {
                self.mark_resolved(&name, &tenant);
            }
            drop(place);
            sender.send_replace(Some(found));
            tokio::time::sleep(self.ttl).await;
            lock(&self.by_name).remove(&name);
        });
        looking
    }
}

/// Whether there is no room for another resolved name, of this tenant or at all.
fn is_full(resolved: &HashMap<String, HashMap<String, Instant>>, tenant: &str) -> bool {
    resolved.values().map(HashMap::len).sum::<usize>() >= bounds::NAMES_ANSWERING_MAX
        || resolved.get(tenant).is_some_and(|names| names.len() >= bounds::NAMES_ANSWERING_PER_TENANT_MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::guard::{Guarded, PostError};

    const SHORT: Duration = Duration::from_millis(300);
    const AMPLE: Duration = Duration::from_secs(6);

    /// A guard whose lookups all hang.
    fn stuck_guard() -> Guarded {
        let resolver = Resolver::Stuck { waiting: Default::default(), may: Semaphore::new(0) };
        Guarded::with_resolver(&[], resolver, AMPLE).unwrap()
    }

    fn waiting(guard: &Guarded) -> usize {
        let Resolver::Stuck { waiting, .. } = &guard.lookups.resolver else {
            panic!("the resolver is not stuck")
        };
        waiting.load(SeqCst)
    }

    async fn post(guard: &Guarded, name: &str, tenant: &str, timeout: Duration) -> PostError {
        let url = format!("https://{name}/");
        guard.post((&url, tenant), Default::default(), "{}".into(), timeout).await.unwrap_err()
    }

    /// Posts to this number of hanging names at the same time.
    async fn post_to_dead_names(
        guard: &Guarded,
        count: usize,
        tenant: &str,
        timeout: Duration,
    ) -> Vec<PostError> {
        let posts = (0..count).map(|number| async move {
            post(guard, &format!("dead-{number}.example"), tenant, timeout).await
        });
        futures_util::future::join_all(posts).await
    }

    async fn find(lookups: &Arc<Lookups>) -> Vec<SocketAddr> {
        Arc::clone(lookups).find("shop.example", "acme").await.unwrap()
    }

    fn is_crowded(error: &PostError) -> bool {
        matches!(error, PostError::Unsent(error) if error.is_crowded())
    }

    /// DLV-4, QUA-6: names that hang take no more threads than the limit, even after all callers gave up.
    #[tokio::test]
    async fn lookups_are_bounded_after_callers_gave_up() {
        let guard = stuck_guard();
        fn name(number: usize) -> (String, String) {
            (format!("shop-{number}.example"), format!("tenant-{number}"))
        }
        for (name, tenant) in (0..3 * bounds::LOOKUPS_MAX).step_by(2).map(name) {
            guard.lookups.mark_resolved(&name, &tenant);
        }
        let call = async |number: usize| {
            let (name, tenant) = name(number);
            let ended = post(&guard, &name, &tenant, SHORT).await;
            assert!(matches!(ended, PostError::Unsent(_)), "its own timeout ended: {ended:?}");
            assert!(waiting(&guard) <= bounds::LOOKUPS_MAX);
        };
        futures_util::future::join_all((0..3 * bounds::LOOKUPS_MAX).map(call)).await;
        assert_eq!(waiting(&guard), bounds::LOOKUPS_MAX, "they have not ended");
        let Resolver::Stuck { may, .. } = &guard.lookups.resolver else {
            panic!("the resolver is not stuck")
        };
        may.add_permits(1);
        let all_ended = async {
            while waiting(&guard) > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), all_ended).await.expect("each makes room for the next");
    }

    /// DLV-4: a name that hangs takes one place. A caller that finds no place learns nothing about its
    /// target.
    #[tokio::test]
    async fn name_takes_one_place_for_all_waiting_callers() {
        let guard = stuck_guard();
        let posts = (0..3 * bounds::LOOKUPS_MAX).map(|_| post(&guard, "dead.example", "acme", SHORT));
        futures_util::future::join_all(posts).await;
        assert_eq!(waiting(&guard), 1);
    }

    /// DLV-4: a tenant whose names hang fills only its own share of the places.
    #[tokio::test]
    async fn tenants_hanging_names_leave_places_to_others() {
        let guard = stuck_guard();
        let ended = post_to_dead_names(&guard, bounds::LOOKUPS_MAX, "slow", AMPLE).await;
        assert_eq!(waiting(&guard), bounds::LOOKUPS_PER_TENANT_MAX);
        let crowded = ended.iter().filter(|error| is_crowded(error)).count();
        assert_eq!(crowded, bounds::LOOKUPS_MAX - bounds::LOOKUPS_PER_TENANT_MAX);
        let other = post(&guard, "other.example", "acme", AMPLE).await;
        assert!(!is_crowded(&other), "it is looked up: {other:?}");
        assert_eq!(waiting(&guard), bounds::LOOKUPS_PER_TENANT_MAX + 1);
    }

    /// DLV-4: a call that found no place, even with a short timeout, is not a call without an answer.
    #[tokio::test]
    async fn wait_for_place_is_not_silence_of_target() {
        let guard = stuck_guard();
        post_to_dead_names(&guard, bounds::LOOKUPS_PER_TENANT_MAX, "acme", SHORT).await;
        let late = post(&guard, "alive.example", "acme", SHORT).await;
        assert!(is_crowded(&late), "{late:?}");
    }

    /// DLV-4: names that hang do not block names of the same tenant that resolve.
    #[tokio::test]
    async fn recently_resolved_name_has_a_place_beside_hanging_names() {
        let guard = stuck_guard();
        guard.lookups.mark_resolved("alive.example", "acme");
        post_to_dead_names(&guard, bounds::LOOKUPS_PER_TENANT_MAX, "acme", SHORT).await;
        let late = post(&guard, "alive.example", "acme", AMPLE).await;
        assert!(!is_crowded(&late), "{late:?}");
        assert_eq!(waiting(&guard), bounds::LOOKUPS_PER_TENANT_MAX + 1);
        assert!(!guard.lookups.has_resolved("alive.example", "acme"), "it hangs now");
    }

    /// DLV-4: names that resolved have places, even if many tenants have names that hang.
    #[tokio::test]
    async fn dead_names_leave_half_of_places_to_resolved_names() {
        let guard = stuck_guard();
        guard.lookups.mark_resolved("alive.example", "acme");
        let call = async |number: usize| {
            let (name, tenant) = (format!("dead-{number}.example"), format!("tenant-{}", number % 16));
            post(&guard, &name, &tenant, SHORT).await;
        };
        futures_util::future::join_all((0..2 * bounds::LOOKUPS_MAX).map(call)).await;
        let others = bounds::LOOKUPS_MAX - bounds::LOOKUPS_ANSWERING_MAX;
        assert_eq!(waiting(&guard), others);
        assert!(is_crowded(&post(&guard, "new.example", "acme", SHORT).await));
        let late = post(&guard, "alive.example", "acme", AMPLE).await;
        assert!(!is_crowded(&late), "{late:?}");
        assert_eq!(waiting(&guard), others + 1);
    }

    /// DLV-4: a name that one tenant looked up counts as resolved for every tenant that uses the result.
    #[tokio::test]
    async fn lookup_result_counts_for_every_tenant() {
        let address = "127.0.0.1:1".parse().unwrap();
        let lookups = Arc::new(Lookups::new(Resolver::Script(Mutex::new(vec![address])), AMPLE));
        for tenant in ["acme", "zeta"] {
            assert_eq!(Arc::clone(&lookups).find("shop.example", tenant).await.unwrap(), [address]);
            assert!(lookups.has_resolved("shop.example", tenant), "{tenant}");
        }
    }

    /// DLV-4: a tenant with many names that resolve evicts no other tenant's names.
    #[tokio::test]
    async fn resolved_names_are_remembered_by_tenant() {
        let lookups = Lookups::new(Resolver::System, AMPLE);
        for number in 0..2 * bounds::NAMES_ANSWERING_PER_TENANT_MAX {
            lookups.mark_resolved(&format!("shop-{number}.example"), "many");
        }
        lookups.mark_resolved("alive.example", "acme");
        assert!(
            lookups.has_resolved("alive.example", "acme") && !lookups.has_resolved("alive.example", "many")
        );
        assert_eq!(lock(&lookups.resolved)["many"].len(), bounds::NAMES_ANSWERING_PER_TENANT_MAX);
    }

    /// QUA-6: the result of a lookup is kept for a moment, and then the name is looked up again.
    #[tokio::test]
    async fn lookup_result_expires() {
        let addresses = ["127.0.0.3:1", "127.0.0.2:1", "127.0.0.1:1"].map(|address| address.parse().unwrap());
        let script = Resolver::Script(Mutex::new(addresses.to_vec()));
        let lookups = Arc::new(Lookups::new(script, AMPLE));
        assert_eq!(find(&lookups).await, [addresses[2]]);
        assert_eq!(find(&lookups).await, [addresses[2]]);
        let script = Resolver::Script(Mutex::new(addresses.to_vec()));
        let briefly = Arc::new(Lookups::new(script, Duration::ZERO));
        assert_eq!(find(&briefly).await, [addresses[2]]);
        while !lock(&briefly.by_name).is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(find(&briefly).await, [addresses[1]]);
    }
}
