//! `/metrics`, in the format of Prometheus (TEL-8).

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use snavio_gate::TargetState;
use snavio_model::bounds;
use snavio_model::delivery::QueueAttributes;
use snavio_model::delivery::breaker::State as BreakerState;
use snavio_model::identity::permission::Permission;
use snavio_model::name::QueueKey;
use snavio_model::registry::Registry;
use snavio_model::time::Clock;
use snavio_store::{StoreError, files};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::answer::typed;
use super::{App, Problem, Shared};
use crate::principal::Principal;

const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Figures for Prometheus, for operators and auditors of all.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, content_type = "text/plain", body = String)))]
pub(super) async fn metrics(State(app): State<Shared>, principal: Principal) -> Result<Response, Problem> {
    principal.may(Permission::Read)?;
    Ok(render(&app).await)
}

/// The same for the admin listener.
pub(super) async fn open(State(app): State<Shared>) -> Response {
    render(&app).await
}

/// Whatever of it can be told is told: figures are needed most when something fails.
async fn render(app: &App) -> Response {
    look(app);
    let now = Instant::now();
    let until = now + COUNTING_MAX;
    let queues_held = app.queue_figures.get(now, FIGURES_KEPT, 0, async || counted(app, until).await);
    let recorded = app.gate.conflicts_recorded();
    let conflicts =
        app.open_conflicts.get(now, CONFLICTS_KEPT, recorded, async || count_conflicts(app, until).await);
    let (held, _) = tokio::join!(queues_held, conflicts);
    // Last: whatever was counted for this answer is in it.
    let mut text = app.metrics.render();
    if let Some(held) = held {
        let registry = app.gate.registry();
        let queues = queues(&registry, &held);
        write_queues(&mut text, &queues);
        write_targets(&mut text, app, &queues);
    }
    typed(StatusCode::OK, MEDIA, text)
}

type Held = HashMap<QueueKey, QueueAttributes>;

/// How long all counting may take for one scrape: who scrapes gives up after ten seconds.
const COUNTING_MAX: Duration = Duration::from_secs(4);

/// What every queue holds, unless the store does not tell.
async fn counted(app: &App, until: Instant) -> Option<Arc<Held>> {
    let store = app.gate.store();
    let asked = tokio::time::timeout_at(until, store.all_attributes(app.clock.now())).await;
    let silent = || StoreError::Unavailable("it does not answer".into());
    let answer = asked.unwrap_or_else(|_| Err(silent()));
    metrics::gauge!("snavio_store_up").set(if answer.is_ok() { 1.0 } else { 0.0 });
    match answer {
        Ok(held) => Some(Arc::new(held.into_iter().collect())),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the figures of queues could not be read; /metrics leaves them out");
            None
        }
    }
}

/// Counts open conflicts: an index counts them, and an alert hangs on it.
async fn count_conflicts(app: &App, until: Instant) -> Option<()> {
    match tokio::time::timeout_at(until, app.gate.store().open_conflicts()).await {
        Ok(Ok(open)) => {
            metrics::gauge!("events_conflicts_open").set(open as f64);
            return Some(());
        }
        Ok(Err(error)) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot count open conflicts; /metrics shows the last count");
        }
        Err(_) => {
            tracing::warn!(
                cause = "no answer in time",
                "cannot count open conflicts; /metrics shows the last count"
            );
        }
    }
    None
}

/// Counting reads every delivery of the store: many who ask within this time are told the same.
const FIGURES_KEPT: Duration = Duration::from_secs(5);
/// Many scrapers cost one query.
const CONFLICTS_KEPT: Duration = Duration::from_secs(1);

/// A count that is shared for a while.
pub(crate) struct SharedCount<T>(Mutex<Option<LastCount<T>>>);

struct LastCount<T> {
    at: Instant,
    /// Which state of this node it was made for.
    of: u64,
    count: Option<T>,
}

/// Figures of the queues.
pub(crate) type QueueFigures = SharedCount<Arc<Held>>;

impl<T> Default for SharedCount<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> SharedCount<T> {
    /// The count, made anew if it is old or was made for another state. Whoever asks meanwhile waits for that, also when
    /// nothing comes of it: a store that does not answer is not asked by each in turn.
    async fn get(
        &self,
        now: Instant,
        kept: Duration,
        of: u64,
        count: impl AsyncFnOnce() -> Option<T>,
    ) -> Option<T> {
        let mut last = self.0.lock().await;
        if let Some(last) = &*last
            && last.of >= of
            && now.saturating_duration_since(last.at) < kept
        {
            return last.count.clone();
        }
        let count = count().await;
        *last = Some(LastCount { at: now, of, count: count.clone() });
        count
    }
}

/// Gauges of what is as it is now.
fn look(app: &App) {
    app.gate.begin_route_counters();
    let figures = app.gate.store().figures();
    if let Some(own) = figures.own {
        metrics::gauge!("snavio_store_wal_bytes").set(own.wal_bytes as f64);
        metrics::gauge!("snavio_store_deliveries").set(own.deliveries as f64);
    }
    metrics::gauge!("snavio_intake_waiting").set(app.gate.waiting() as f64);
    metrics::gauge!("snavio_requests_in_flight").set(app.load.requests.now() as f64);
    metrics::gauge!("snavio_body_bytes_in_flight").set(app.load.body_bytes.now() as f64);
    metrics::gauge!("snavio_registry_version").set(app.gate.registry().version() as f64);
    metrics::gauge!("snavio_relaxed").set(f64::from(u8::from(app.relaxed)));
    if let Ok(free) = files::free_bytes(&app.data_folder) {
        metrics::gauge!("snavio_disk_free_bytes").set(free as f64);
    }
    metrics::counter!("snavio_store_commits_total").absolute(figures.commits);
    metrics::counter!("snavio_store_messages_total").absolute(figures.messages);
    metrics::counter!("snavio_store_round_trips_total").absolute(figures.round_trips);
}

/// The queues that routes name, a bounded number of them, each with what it holds: nothing, if the store knows none.
fn queues<'a>(registry: &'a Registry, held: &Held) -> Vec<(&'a QueueKey, QueueAttributes)> {
    let named: BTreeSet<_> = registry.queues().collect();
    let named = named.into_iter().take(bounds::METRIC_SERIES_MAX);
    named.map(|queue| (queue, held.get(queue).copied().unwrap_or_default())).collect()
}

type Figure = fn(&QueueAttributes) -> u64;

/// Written here and not through the recorder, which would go on showing queues that are gone.
fn write_queues(text: &mut String, queues: &[(&QueueKey, QueueAttributes)]) {
    let figures: [(&str, &str, Figure); 5] = [
        ("snavio_queue_depth", "deliveries that may be received now", |it| it.depth),
        ("snavio_queue_in_flight", "deliveries handed out and not yet ended", |it| it.in_flight),
        ("snavio_queue_delayed", "deliveries given back for later", |it| it.delayed),
        ("snavio_queue_oldest_age_seconds", "how long the oldest has been waiting", |it| {
            it.oldest_age_seconds
        }),
        ("snavio_queue_dead_letters", "dead letters that gathered here", |it| it.dead_letters),
    ];
    for (name, help, figure) in figures {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (queue, attributes) in queues {
            // Names of tenants and queues hold nothing that would have to be escaped.
            let (tenant, queue) = (queue.tenant(), queue.queue());
            let _ = writeln!(text, "{name}{{tenant=\"{tenant}\",queue=\"{queue}\"}} {}", figure(attributes));
        }
    }
}

type TargetFigure = fn(&TargetState) -> usize;

/// Of the same queues those that the gateway takes from: how the one it calls is.
fn write_targets(text: &mut String, app: &App, queues: &[(&QueueKey, QueueAttributes)]) {
    let called = queues.iter().filter_map(|(queue, _)| Some((*queue, app.gate.target(queue)?)));
    let called: Vec<_> = called.collect();
    let figures: [(&str, &str, TargetFigure); 2] = [
        (
            "snavio_target_breaker",
            "0 while a target is called, 1 while one call finds out, 2 while it is down",
            |it| match it.breaker {
                BreakerState::Closed => 0,
                BreakerState::HalfOpen => 1,
                BreakerState::Open => 2,
            },
        ),
        ("snavio_target_calls", "calls under way to a target", |it| it.calls),
    ];
    for (name, help, figure) in figures {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (queue, state) in &called {
            let (tenant, queue) = (queue.tenant(), queue.queue());
            let _ = writeln!(text, "{name}{{tenant=\"{tenant}\",queue=\"{queue}\"}} {}", figure(state));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// TEL-8
    #[tokio::test]
    async fn queues_are_counted_once_for_all_who_ask_within_a_while() {
        for told in [Some(Arc::default()), None] {
            let (figures, counts) = (QueueFigures::default(), AtomicUsize::new(0));
            let start = Instant::now();
            let ask = |later| {
                figures.get(start + later, FIGURES_KEPT, 0, async || {
                    counts.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    told.clone()
                })
            };
            tokio::join!(ask(Duration::ZERO), ask(Duration::ZERO), ask(Duration::ZERO));
            assert_eq!(ask(FIGURES_KEPT / 2).await, told);
            assert_eq!(counts.load(Ordering::Relaxed), 1);
            assert_eq!(ask(FIGURES_KEPT).await, told);
            assert_eq!(counts.load(Ordering::Relaxed), 2);
        }
    }
    /// TEL-8
    #[tokio::test]
    async fn new_conflicts_are_counted_at_once() {
        let (shared, counts) = (SharedCount::default(), AtomicUsize::new(0));
        let start = Instant::now();
        let ask = |later, of| {
            shared.get(start + later, CONFLICTS_KEPT, of, async || {
                Some(counts.fetch_add(1, Ordering::Relaxed) + 1)
            })
        };
        for (later, of, expected) in
            [(0, 0, 1), (500, 0, 1), (600, 1, 2), (600, 1, 2), (700, 0, 2), (1599, 1, 2), (1600, 1, 3)]
        {
            assert_eq!(ask(Duration::from_millis(later), of).await, Some(expected), "{later} {of}");
        }
    }
}
