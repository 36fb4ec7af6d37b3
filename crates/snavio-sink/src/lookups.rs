//! What names stand for: looked up so many at a time, divided by tenants, and kept for a moment (DLV-4, QUA-6).
//!
//! A lookup takes a thread for as long as the machine's resolver tries, whoever has given up meanwhile. So each name is
//! looked up once for all who wait for it, and no tenant has more than an eighth of the places: its names that nobody answers
//! for keep no other tenant from its own. Nor do those of several tenants, however many, keep anybody from names that
//! answered of late: half of the places are for those.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snavio_model::bounds;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// How long a lookup waits for its place.
const PLACE_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a name that answered is known to do so.
const ANSWERS_FOR: Duration = Duration::from_secs(3600);
/// Who asks for what no tenant has named: such a name has no tenant's share to keep to.
pub(crate) const NOBODY: &str = "";

/// What a lookup came to, for all who wait for it.
type Found = Result<Vec<SocketAddr>, Arc<std::io::Error>>;
type Looking = watch::Receiver<Option<Found>>;
/// A place of all, and of the tenant's.
type Place = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Lookups under way, and those that have just ended.
pub(crate) struct Lookups {
    names: Names,
    /// For names that answered of late.
    answering_places: Arc<Semaphore>,
    /// For others.
    other_places: Arc<Semaphore>,
    /// Those of a tenant, for names that answered of late and for others.
    by_tenant: Mutex<HashMap<(String, bool), Arc<Semaphore>>>,
    by_name: Mutex<HashMap<String, Looking>>,
    /// Names of each tenant that answered, and when.
    answering: Mutex<HashMap<String, HashMap<String, Instant>>>,
    /// How long a name is kept.
    kept: Duration,
}

/// Names were to be looked up for others, and there was no place for this one: nothing is known of whom it stands for.
#[derive(Debug, thiserror::Error)]
#[error("too many names are being looked up")]
pub struct Crowded;

/// Who says what names stand for.
pub(crate) enum Names {
    /// The machine.
    System,
    /// A script, for names that stand for something else each time they are asked for.
    #[cfg(test)]
    Script(Mutex<Vec<SocketAddr>>),
    /// One that answers nobody until it may, and counts those who wait.
    #[cfg(test)]
    Stuck { waiting: std::sync::atomic::AtomicUsize, may: Semaphore },
}

impl Names {
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
    pub(crate) fn by(names: Names, kept: Duration) -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self {
            names,
            answering_places: places(bounds::LOOKUPS_ANSWERING_MAX),
            other_places: places(bounds::LOOKUPS_MAX - bounds::LOOKUPS_ANSWERING_MAX),
            by_tenant: Mutex::default(),
            by_name: Mutex::default(),
            answering: Mutex::default(),
            kept,
        }
    }

    /// What a name stands for.
    pub(crate) async fn find(
        self: Arc<Self>,
        name: &str,
        tenant: &str,
    ) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let mut looking = self.begin(name, tenant, PLACE_TIME_MAX).await?;
        let found = looking.wait_for(Option::is_some).await?.clone();
        found.unwrap_or_else(|| Ok(Vec::new())).map_err(Into::into)
    }

    /// Begins to look a name up as soon as there is a place for it, unless somebody has. The place is kept until the lookup has
    /// ended, whoever waits for it: one that was given up still has its thread.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        name: &str,
        tenant: &str,
        most: Duration,
    ) -> Result<Looking, Crowded> {
        let under_way = lock(&self.by_name).get(name).cloned();
        if let Some(looking) = under_way {
            // It has answered this tenant, too.
            if matches!(&*looking.borrow(), Some(Ok(found)) if !found.is_empty()) {
                self.note_answer(name, tenant);
            }
            return Ok(looking);
        }
        let place = async {
            let answers = self.answers(name, tenant);
            let own = self.share(tenant, answers).acquire_owned().await?;
            let of_all = if answers { &self.answering_places } else { &self.other_places };
            Ok((own, Arc::clone(of_all).acquire_owned().await?))
        };
        // None of them is ever closed.
        let place: Result<Result<Place, tokio::sync::AcquireError>, _> =
            tokio::time::timeout(most.min(PLACE_TIME_MAX), place).await;
        let place = place.map_err(|_| Crowded)?.map_err(|_| Crowded)?;
        Ok(Arc::clone(self).look(name.to_owned(), tenant.to_owned(), place))
    }

    /// Whether a name of a tenant answered of late.
    fn answers(&self, name: &str, tenant: &str) -> bool {
        let answering = lock(&self.answering);
        answering.get(tenant).and_then(|it| it.get(name)).is_some_and(|at| at.elapsed() < ANSWERS_FOR)
    }

    fn note_answer(&self, name: &str, tenant: &str) {
        let mut answering = lock(&self.answering);
        let is_full = |all: &HashMap<String, HashMap<_, _>>| {
            all.values().map(HashMap::len).sum::<usize>() >= bounds::NAMES_ANSWERING_MAX
                || all.get(tenant).is_some_and(|it| it.len() >= bounds::NAMES_ANSWERING_PER_TENANT_MAX)
        };
        if is_full(&answering) {
            answering.values_mut().for_each(|it| it.retain(|_, at| at.elapsed() < ANSWERS_FOR));
        }
        if !is_full(&answering) {
            answering.entry(tenant.to_owned()).or_default().insert(name.to_owned(), Instant::now());
        }
    }

    /// Until it answers again: one that hangs has one of the places for those that answer, once.
    fn forget_answer(&self, name: &str, tenant: &str) {
        let mut answering = lock(&self.answering);
        if let Some(of_tenant) = answering.get_mut(tenant) {
            of_tenant.remove(name);
        }
        answering.retain(|_, it| !it.is_empty());
    }

    /// The places of a tenant.
    fn share(&self, tenant: &str, answers: bool) -> Arc<Semaphore> {
        if tenant == NOBODY {
            return Arc::new(Semaphore::new(1));
        }
        let mut all = lock(&self.by_tenant);
        // Those that nobody waits for have nothing to remember.
        all.retain(|_, it| Arc::strong_count(it) > 1);
        let new = || Arc::new(Semaphore::new(bounds::LOOKUPS_PER_TENANT_MAX));
        Arc::clone(all.entry((tenant.to_owned(), answers)).or_insert_with(new))
    }

    /// Forgets what is kept.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        lock(&self.by_name).clear();
    }

    #[cfg(test)]
    pub(crate) fn is_script_over(&self) -> bool {
        matches!(&self.names, Names::Script(script) if lock(script).is_empty())
    }

    fn look(self: Arc<Self>, name: String, tenant: String, place: Place) -> Looking {
        let (told, looking) = watch::channel(None);
        // Somebody may have begun while this one waited for its place.
        match lock(&self.by_name).entry(name.clone()) {
            Entry::Occupied(other) => return other.get().clone(),
            Entry::Vacant(free) => drop(free.insert(looking.clone())),
        }
        tokio::spawn(async move {
            self.forget_answer(&name, &tenant);
            let found = self.names.find(&name).await.map_err(Arc::new);
            if found.as_ref().is_ok_and(|it| !it.is_empty()) {
                self.note_answer(&name, &tenant);
            }
            drop(place);
            told.send_replace(Some(found));
            tokio::time::sleep(self.kept).await;
            lock(&self.by_name).remove(&name);
        });
        looking
    }
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

    /// Calls by names that nobody answers for.
    fn stuck() -> Guarded {
        let names = Names::Stuck { waiting: Default::default(), may: Semaphore::new(0) };
        Guarded::by_names(&[], names, AMPLE).unwrap()
    }

    fn waiting(guard: &Guarded) -> usize {
        let Names::Stuck { waiting, .. } = &guard.lookups.names else { panic!("it is stuck") };
        waiting.load(SeqCst)
    }

    async fn post(guard: &Guarded, name: &str, tenant: &str, timeout: Duration) -> PostError {
        let url = format!("https://{name}/");
        guard.post((&url, tenant), Default::default(), "{}".into(), timeout).await.unwrap_err()
    }

    fn is_crowded(error: &PostError) -> bool {
        matches!(error, PostError::Unsent(error) if error.is_crowded())
    }

    /// DLV-4, QUA-6: names that nobody answers for take no more threads than they may, also once nobody waits for them.
    #[tokio::test]
    async fn names_are_looked_up_so_many_at_a_time_whoever_has_given_up() {
        let guard = stuck();
        let name = |number: usize| (format!("shop-{number}.example"), format!("tenant-{number}"));
        for (name, tenant) in (0..3 * bounds::LOOKUPS_MAX).step_by(2).map(name) {
            guard.lookups.note_answer(&name, &tenant);
        }
        let call = async |number: usize| {
            let (name, tenant) = name(number);
            let ended = post(&guard, &name, &tenant, SHORT).await;
            assert!(matches!(ended, PostError::Unsent(_)), "its own time is over: {ended:?}");
            assert!(waiting(&guard) <= bounds::LOOKUPS_MAX);
        };
        futures_util::future::join_all((0..3 * bounds::LOOKUPS_MAX).map(call)).await;
        assert_eq!(waiting(&guard), bounds::LOOKUPS_MAX, "they have not ended");
        let Names::Stuck { may, .. } = &guard.lookups.names else { panic!("it is stuck") };
        may.add_permits(1);
        let all_ended = async {
            while waiting(&guard) > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), all_ended).await.expect("each makes room for the next");
    }

    /// DLV-4: a name that nobody answers for takes one place, and who finds none free says nothing of whom it calls.
    #[tokio::test]
    async fn one_name_has_one_place_however_many_wait_for_it() {
        let guard = stuck();
        let call = async |_| post(&guard, "dead.example", "acme", SHORT).await;
        futures_util::future::join_all((0..3 * bounds::LOOKUPS_MAX).map(call)).await;
        assert_eq!(waiting(&guard), 1);
    }

    /// DLV-4: a tenant whose names nobody answers for has its part of the places, and leaves the others theirs.
    #[tokio::test]
    async fn a_tenants_names_keep_no_other_tenant_from_its_own() {
        let guard = stuck();
        let call = async |number: usize| post(&guard, &format!("dead-{number}.example"), "slow", AMPLE).await;
        let ended = futures_util::future::join_all((0..bounds::LOOKUPS_MAX).map(call)).await;
        assert_eq!(waiting(&guard), bounds::LOOKUPS_PER_TENANT_MAX);
        let crowded = ended.iter().filter(|it| is_crowded(it)).count();
        assert_eq!(crowded, bounds::LOOKUPS_MAX - bounds::LOOKUPS_PER_TENANT_MAX);
        let other = post(&guard, "other.example", "acme", AMPLE).await;
        assert!(!is_crowded(&other), "it is looked up: {other:?}");
        assert_eq!(waiting(&guard), bounds::LOOKUPS_PER_TENANT_MAX + 1);
    }

    /// DLV-4: however short its time is, a call that found no place is not one that nobody answered.
    #[tokio::test]
    async fn what_waited_for_others_was_not_met_with_silence() {
        let guard = stuck();
        let call = async |number: usize| {
            post(&guard, &format!("dead-{number}.example"), "acme", SHORT).await;
        };
        futures_util::future::join_all((0..bounds::LOOKUPS_PER_TENANT_MAX).map(call)).await;
        let late = post(&guard, "alive.example", "acme", SHORT).await;
        assert!(is_crowded(&late), "{late:?}");
    }

    /// DLV-4: names that nobody answers for do not keep a tenant from those that do.
    #[tokio::test]
    async fn a_name_that_answered_of_late_has_a_place_beside_those_that_hang() {
        let guard = stuck();
        guard.lookups.note_answer("alive.example", "acme");
        let call = async |number: usize| {
            post(&guard, &format!("dead-{number}.example"), "acme", SHORT).await;
        };
        futures_util::future::join_all((0..bounds::LOOKUPS_PER_TENANT_MAX).map(call)).await;
        let late = post(&guard, "alive.example", "acme", AMPLE).await;
        assert!(!is_crowded(&late), "{late:?}");
        assert_eq!(waiting(&guard), bounds::LOOKUPS_PER_TENANT_MAX + 1);
        assert!(!guard.lookups.answers("alive.example", "acme"), "it hangs now");
    }

    /// DLV-4: however many tenants have names that nobody answers for, those that answered have places.
    #[tokio::test]
    async fn the_dead_names_of_all_tenants_leave_half_of_the_places_to_those_that_answered() {
        let guard = stuck();
        guard.lookups.note_answer("alive.example", "acme");
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

    /// DLV-4: a name that another tenant had looked up has answered whoever uses what was found.
    #[tokio::test]
    async fn a_name_has_answered_all_who_use_what_was_found() {
        let address = "127.0.0.1:1".parse().unwrap();
        let lookups = Arc::new(Lookups::by(Names::Script(Mutex::new(vec![address])), AMPLE));
        for tenant in ["acme", "zeta"] {
            assert_eq!(Arc::clone(&lookups).find("shop.example", tenant).await.unwrap(), [address]);
            assert!(lookups.answers("shop.example", tenant), "{tenant}");
        }
    }

    /// DLV-4: a tenant with many names that answer takes nobody else's names out of memory.
    #[tokio::test]
    async fn each_tenants_names_that_answer_are_known() {
        let lookups = Lookups::by(Names::System, AMPLE);
        for number in 0..2 * bounds::NAMES_ANSWERING_PER_TENANT_MAX {
            lookups.note_answer(&format!("shop-{number}.example"), "many");
        }
        lookups.note_answer("alive.example", "acme");
        assert!(lookups.answers("alive.example", "acme") && !lookups.answers("alive.example", "many"));
        assert_eq!(lock(&lookups.answering)["many"].len(), bounds::NAMES_ANSWERING_PER_TENANT_MAX);
    }

    /// QUA-6: what a name stood for is kept for a moment, and then it is asked again.
    #[tokio::test]
    async fn a_name_is_kept_for_a_moment() {
        let addresses = ["127.0.0.3:1", "127.0.0.2:1", "127.0.0.1:1"].map(|it| it.parse().unwrap());
        let script = || Names::Script(Mutex::new(addresses.to_vec()));
        let lookups = Arc::new(Lookups::by(script(), AMPLE));
        let find =
            async |lookups: &Arc<Lookups>| Arc::clone(lookups).find("shop.example", "acme").await.unwrap();
        assert_eq!(find(&lookups).await, [addresses[2]]);
        assert_eq!(find(&lookups).await, [addresses[2]]);
        let briefly = Arc::new(Lookups::by(script(), Duration::ZERO));
        assert_eq!(find(&briefly).await, [addresses[2]]);
        while !lock(&briefly.by_name).is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(find(&briefly).await, [addresses[1]]);
    }
}
