//! The log of a node: its format, and a limit on repeated lines about one failure (TEL-8).

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

/// The target of lines with the number of suppressed lines.
const COUNTS: &str = "snavio::log";
/// The target of lines about single messages.
const MESSAGES: &str = "snavio::message";
/// The target of lines about migrations.
const MIGRATIONS: &str = "refinery_core";
/// The interval at which due counts are written.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

/// Starts the log of this process.
pub(crate) fn start(config: &Config) -> Result<LogLimit, Failure> {
    let mut filter = EnvFilter::try_new(&config.log_filter)
        .map_err(|error| Failure::caused_by(format!("log.filter is {:?}", config.log_filter), &error))?;
    if !config.log_filter.contains(MIGRATIONS) {
        // Every new store runs all migrations. A line for each of them is noise.
        filter = filter.add_directive(Directive::from_str(&format!("{MIGRATIONS}=warn"))?);
    }
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // If standard error is closed, the library would report that on standard error and panic.
    let builder = builder.log_internal_errors(false);
    // Colours only on a terminal: in a file they are noise.
    let builder = builder.with_ansi(std::io::stderr().is_terminal());
    let limit = LogLimit::new();
    if config.log_json {
        builder.event_format(JsonLines).finish().with(limit.clone()).init();
    } else {
        builder.finish().with(limit.clone()).init();
    }
    Ok(limit)
}

/// Limits lines that have a cause (a field `cause` or `error`) and all lines of libraries. Of the lines about
/// single messages it limits only those with a field `cause`: the code that logs the others limits them.
#[derive(Clone)]
pub(crate) struct LogLimit {
    started_at: Instant,
    limiter: Arc<Mutex<LogLimiter<Callsite>>>,
}

/// A statement in the code that logs.
#[derive(Clone, Copy)]
struct Callsite(&'static Metadata<'static>);

impl PartialEq for Callsite {
    fn eq(&self, other: &Self) -> bool {
        self.0.callsite() == other.0.callsite()
    }
}

impl Eq for Callsite {}

impl Hash for Callsite {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.callsite().hash(state);
    }
}

impl LogLimit {
    fn new() -> Self {
        Self { started_at: Instant::now(), limiter: Arc::default() }
    }

    fn limiter(&self) -> MutexGuard<'_, LogLimiter<Callsite>> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes due counts of suppressed lines until the process ends.
    pub(crate) async fn keep_flushing(self) {
        let mut tick = tokio::time::interval(FLUSH_EVERY);
        loop {
            tick.tick().await;
            self.write_due(self.started_at.elapsed());
        }
    }

    /// Writes all remaining counts.
    pub(crate) fn flush(&self) {
        self.write_due(Duration::MAX);
    }

    fn write_due(&self, now: Duration) {
        // Each count is logged as a line, which takes the lock again: it must be free before the loop.
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
        let mut cause = LineCause::default();
        event.record(&mut cause);
        let now = self.started_at.elapsed();
        self.limiter().admit(&Callsite(event.metadata()), &cause.text(), now)
    }
}

/// The message, the object and the cause of a line: lines that agree in all three are repeats.
#[derive(Default)]
struct LineCause {
    message: String,
    /// The fields named in [`IDENTITY`], as ` name=value`.
    identity: String,
    cause: String,
}

/// Fields that name the object of a line. Failures of one object must not suppress failures of another.
const IDENTITY: [&str; 7] = ["destination", "issuer", "object", "queue", "route", "task", "tenant"];

impl LineCause {
    fn text(&self) -> String {
        let Self { message, identity, cause } = self;
        format!("{message}{identity}: {cause}").chars().take(bounds::LOG_CAUSE_CHARS_MAX).collect()
    }

    fn record(&mut self, field: &Field, value: impl fmt::Display) {
        // Writing to a `String` cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            "cause" | "error" => write!(self.cause, "{value}"),
            name if IDENTITY.contains(&name) => write!(self.identity, " {name}={value}"),
            _ => Ok(()),
        };
    }
}

impl Visit for LineCause {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record(field, ErrorChain(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record(field, format_args!("{value:?}"));
    }
}

/// An error with all its sources. The sources give the reason, for example why a store is unavailable.
struct ErrorChain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
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

/// Formats lines as JSON. The library's own JSON format leaves out the sources of an error.
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
    /// The original target of a line that a library logged through the crate `log`.
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
        self.add(field, ErrorChain(value).to_string());
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
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for LogBuffer {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    impl LogBuffer {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// Runs `log` twice and returns the lines that it logs: as JSON and as text. Counts of suppressed lines
    /// are not due yet.
    fn capture_lines(log: impl Fn()) -> (Vec<Value>, String) {
        let (json, text) = (LogBuffer::default(), LogBuffer::default());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).event_format(JsonLines);
        let subscriber = subscriber.with_writer(json.clone()).finish();
        tracing::subscriber::with_default(subscriber.with(LogLimit::new()), &log);
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(text.clone()).finish();
        tracing::subscriber::with_default(subscriber.with(LogLimit::new()), &log);
        let (json, text) = (json.text(), text.text());
        let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), text.lines().count());
        (lines, text)
    }

    /// TEL-8
    #[test]
    fn failures_of_one_object_do_not_hide_others() {
        let (lines, _) = capture_lines(|| {
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
    fn security_lines_and_message_lines_are_never_limited() {
        let (lines, _) = capture_lines(|| {
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
        let (lines, text) = capture_lines(|| {
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
