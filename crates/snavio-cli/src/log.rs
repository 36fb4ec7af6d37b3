//! The log of a node: where it is written, and how often one failure may be repeated in it (TEL-8).

use std::error::Error;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snavio_model::limits;
use snavio_model::log_limiter::LogLimiter;
use snavio_server::config::Config;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::cmd::Failure;

/// The target of lines that count others.
const COUNTS: &str = "snavio::log";
/// The target of lines about single messages.
const MESSAGES: &str = "snavio::message";
/// The target of lines about migrations.
const MIGRATIONS: &str = "refinery_core";
/// How often counts are written that are due.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

/// Starts the log of this process.
pub(crate) fn start(config: &Config) -> Result<LogLimit, Failure> {
    let mut filter = EnvFilter::try_new(&config.log_filter)
        .map_err(|error| Failure::of(format!("log.filter is {:?}", config.log_filter), &error))?;
    if !config.log_filter.contains(MIGRATIONS) {
        // Every new store runs all migrations: a line for each tells nobody anything.
        filter = filter.add_directive(Directive::from_str(&format!("{MIGRATIONS}=warn"))?);
    }
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // It would write to standard error that it cannot write to standard error, and panic.
    let builder = builder.log_internal_errors(false);
    // Colours are for eyes: in a file they are noise.
    let builder = builder.with_ansi(std::io::stderr().is_terminal());
    let limit = LogLimit::new();
    if config.log_json {
        builder.json().finish().with(limit.clone()).init();
    } else {
        builder.finish().with(limit.clone()).init();
    }
    Ok(limit)
}

/// Limits lines that have a cause (a field `cause`, or a field `error`) and all lines of libraries. Lines about single
/// messages are limited where they are written, unless they have a field `cause`.
#[derive(Clone)]
pub(crate) struct LogLimit {
    started_at: Instant,
    limiter: Arc<Mutex<LogLimiter<Site>>>,
}

/// A place in the code that logs.
#[derive(Clone, Copy)]
struct Site(&'static Metadata<'static>);

impl PartialEq for Site {
    fn eq(&self, other: &Self) -> bool {
        self.0.callsite() == other.0.callsite()
    }
}

impl Eq for Site {}

impl Hash for Site {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.callsite().hash(state);
    }
}

impl LogLimit {
    fn new() -> Self {
        Self { started_at: Instant::now(), limiter: Arc::default() }
    }

    fn limiter(&self) -> MutexGuard<'_, LogLimiter<Site>> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes counts for as long as the process runs.
    pub(crate) async fn keep_flushing(self) {
        let mut tick = tokio::time::interval(FLUSH_EVERY);
        loop {
            tick.tick().await;
            self.write_due(self.started_at.elapsed());
        }
    }

    /// Writes all counts that were not written yet.
    pub(crate) fn flush(&self) {
        self.write_due(Duration::MAX);
    }

    fn write_due(&self, now: Duration) {
        // Each is a line: the lock must be free by then.
        let due = self.limiter().due(now);
        for repeated in due {
            let (from, cause, count) = (repeated.site.0.target(), repeated.cause, repeated.count);
            let level = *repeated.site.0.level();
            if level == Level::ERROR {
                tracing::error!(target: COUNTS, from, cause, count, "more lines of this cause");
            } else if level == Level::WARN {
                tracing::warn!(target: COUNTS, from, cause, count, "more lines of this cause");
            } else {
                tracing::info!(target: COUNTS, from, cause, count, "more lines of this cause");
            }
        }
    }
}

fn is_limited(line: &Metadata<'_>) -> bool {
    let has = |name| line.fields().field(name).is_some();
    match line.target() {
        COUNTS => false,
        MESSAGES => has("cause"),
        ours if ours.starts_with("snavio") => has("cause") || has("error"),
        _ => true,
    }
}

impl<S: Subscriber> Layer<S> for LogLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if !is_limited(event.metadata()) {
            return true;
        }
        let mut cause = Cause::default();
        event.record(&mut cause);
        let now = self.started_at.elapsed();
        self.limiter().admit(&Site(event.metadata()), &cause.text(), now)
    }
}

/// What a line says, and why.
#[derive(Default)]
struct Cause {
    message: String,
    cause: String,
}

impl Cause {
    fn text(&self) -> String {
        let Self { message, cause } = self;
        format!("{message}: {cause}").chars().take(limits::LOG_CAUSE_CHARS_MAX).collect()
    }
}

impl Visit for Cause {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            "cause" | "error" => self.cause.push_str(value),
            _ => {}
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        if matches!(field.name(), "cause" | "error") {
            let mut next = Some(value);
            while let Some(error) = next {
                let between = if self.cause.is_empty() { "" } else { ": " };
                // A `String` takes everything.
                let _ = write!(self.cause, "{between}{error}");
                next = error.source();
            }
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = match field.name() {
            "message" => &mut self.message,
            "cause" | "error" => &mut self.cause,
            _ => return,
        };
        // A `String` takes everything.
        let _ = write!(text, "{value:?}");
    }
}
