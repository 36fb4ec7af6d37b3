//! The log of a node: where it is written, and how often one failure may be repeated in it (TEL-8).

use std::error::Error;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};
use snavio_model::bounds;
use snavio_model::telemetry::log_limiter::LogLimiter;
use snavio_server::SECURITY_LOG;
use snavio_server::config::Config;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
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
        builder.event_format(JsonLines).finish().with(limit.clone()).init();
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
        COUNTS | SECURITY_LOG => false,
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

/// The message, the object and the cause of a line.
#[derive(Default)]
struct Cause {
    message: String,
    /// The fields in [`IDENTITY`], as they are written.
    identity: String,
    cause: String,
}

/// Fields that say which object a line is about: the failures of one must not hide those of another.
const IDENTITY: [&str; 7] = ["destination", "issuer", "object", "queue", "route", "task", "tenant"];

impl Cause {
    fn text(&self) -> String {
        let Self { message, identity, cause } = self;
        format!("{message}{identity}: {cause}").chars().take(bounds::LOG_CAUSE_CHARS_MAX).collect()
    }

    fn record(&mut self, field: &Field, value: impl fmt::Display) {
        // A `String` takes everything.
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            "cause" | "error" => write!(self.cause, "{value}"),
            name if IDENTITY.contains(&name) => write!(self.identity, " {name}={value}"),
            _ => Ok(()),
        };
    }
}

impl Visit for Cause {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record(field, Chain(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record(field, format_args!("{value:?}"));
    }
}

/// An error with all its sources: a store that is unavailable is so for one of many reasons.
struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            write!(formatter, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

/// Lines in JSON. The library's own have an error without its sources.
struct JsonLines;

#[derive(Serialize)]
struct JsonLine<'a> {
    timestamp: &'a str,
    level: &'a str,
    fields: Map<String, Value>,
    target: &'a str,
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut fields = JsonFields::default();
        event.record(&mut fields);
        let (metadata, bridged) = (event.metadata(), fields.bridged_target);
        let line = JsonLine {
            timestamp: &timestamp,
            level: metadata.level().as_str(),
            fields: fields.fields,
            target: bridged.as_deref().unwrap_or(metadata.target()),
        };
        writeln!(writer, "{}", serde_json::to_string(&line).map_err(|_| fmt::Error)?)
    }
}

#[derive(Default)]
struct JsonFields {
    fields: Map<String, Value>,
    /// The target of a line that a library wrote through the crate `log`.
    bridged_target: Option<String>,
}

impl JsonFields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        match field.name() {
            "log.target" => self.bridged_target = value.into().as_str().map(str::to_owned),
            name if name.starts_with("log.") => {}
            name => {
                self.fields.insert(name.to_owned(), value.into());
            }
        }
    }
}

impl Visit for JsonFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.add(field, Chain(value).to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use snavio_store::StoreError;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Written {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// The lines that are written at once, in JSON and as text.
    fn lines(log: impl Fn()) -> (Vec<Value>, String) {
        let (json, text) = (Written::default(), Written::default());
        let builder = || tracing_subscriber::fmt().with_ansi(false);
        let subscriber = builder().event_format(JsonLines).with_writer(json.clone()).finish();
        tracing::subscriber::with_default(subscriber.with(LogLimit::new()), &log);
        let subscriber = builder().with_writer(text.clone()).finish();
        tracing::subscriber::with_default(subscriber.with(LogLimit::new()), &log);
        let read = |written: Written| String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let (json, text) = (read(json), read(text));
        let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), text.lines().count());
        (lines, text)
    }

    /// TEL-8
    #[test]
    fn failures_of_one_object_do_not_hide_others() {
        let (lines, _) = lines(|| {
            for _ in 0..3 {
                for name in ["a", "b"] {
                    tracing::info!(target: MESSAGES, tenant = %name, id = name, cause = "overloaded", "refused");
                    tracing::error!(target: "snavio_server", issuer = name, error = "none", "no keys");
                    tracing::warn!(target: "snavio_gate", route = %name, error = "none", "not disabled");
                }
            }
        });
        assert_eq!(lines.len(), 6, "{lines:?}");
    }

    /// REG-8, TEL-8
    #[test]
    fn some_lines_are_never_limited() {
        let (lines, _) = lines(|| {
            for _ in 0..3 {
                tracing::error!(target: SECURITY_LOG, error = "none", "an attempt");
                tracing::info!(target: MESSAGES, id = "in doubt", reason = "unavailable", "refused");
            }
        });
        assert_eq!(lines.len(), 6, "{lines:?}");
    }

    /// TEL-8
    #[test]
    fn errors_are_written_with_their_sources() {
        let (lines, text) = lines(|| {
            for source in ["connection refused", "timed out", "timed out"] {
                let error = StoreError::Unavailable(source.into());
                tracing::warn!(target: "snavio_gate", error = &error as &dyn Error, count = 7, "away");
            }
        });
        let errors: Vec<_> = lines.iter().map(|line| line["fields"]["error"].as_str().unwrap()).collect();
        assert_eq!(errors, ["store is unavailable: connection refused", "store is unavailable: timed out"]);
        assert_eq!((&lines[0]["level"], &lines[0]["fields"]["count"]), (&"WARN".into(), &7.into()));
        assert_eq!(lines[0]["target"], "snavio_gate");
        assert!(text.contains("connection refused") && text.contains("timed out"), "{text}");
    }
}
