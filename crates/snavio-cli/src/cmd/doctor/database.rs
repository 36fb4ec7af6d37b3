//! The checks of a database: with the queries of a starting node, but without changing anything.

use snavio_model::time::{Clock, Timestamp};
use snavio_server::config::Config;
use snavio_server::{CLOCK_DISTANCE_MAX, KeySource, MachineClock, PLATFORM_KEY_PIN, PlatformError};
use snavio_store::Durability;
use snavio_store::engine::postgres::{Examined, Options, examine};

use super::Finding;
use crate::cmd::Failure;

pub(super) async fn findings(config: &Config, database: &Options) -> Vec<Finding> {
    match examine(database).await {
        Ok(examined) => vec![
            Finding::passed("store", format!("PostgreSQL {} answers", examined.version)),
            check_layout(&examined),
            check_durability(&examined, config.relaxed),
            check_platform_key(&examined, config),
            check_clock(&examined),
        ],
        // Without a connection the other checks are impossible.
        Err(error) => vec![Finding {
            check: "store",
            detail: String::new(),
            problem: Some(Failure::from(error).to_string()),
            fix: "fix the cause named: store.url, store.ca_file, or the server",
        }],
    }
}

fn check_layout(examined: &Examined) -> Finding {
    let detail = match examined.layout {
        Some(layout) => format!("layout {layout}"),
        None => "no tables yet; the first node makes them".to_owned(),
    };
    let problem = examined.unusable.clone();
    Finding {
        check: "layout",
        detail,
        problem,
        fix: "connect as the role that owns the database, to its primary",
    }
}

fn check_durability(examined: &Examined, is_relaxed: bool) -> Finding {
    let (detail, problem) = match &examined.durability {
        Durability::Durable => (String::new(), None),
        Durability::Relaxed(why) if is_relaxed => (format!("store.relaxed is set, and {why}"), None),
        Durability::Relaxed(why) => (String::new(), Some(why.clone())),
    };
    Finding { check: "durability", detail, problem, fix: "fix the server setting named" }
}

/// Compares the platform key of this configuration with the key of the nodes over the database.
fn check_platform_key(examined: &Examined, config: &Config) -> Finding {
    let checked = match examined.pins.get(PLATFORM_KEY_PIN) {
        None => Ok("the database has none yet; the first node sets it"),
        Some(pinned) => check_fingerprint(pinned, &config.platform_keys).map(|()| "the fleet's"),
    };
    Finding {
        check: "platform key",
        detail: checked.as_ref().map_or("", |detail| detail).to_owned(),
        problem: checked.err().map(|error| Failure::from(error).to_string()),
        fix: "copy platform.key from a running node",
    }
}

/// Checks that one of the keys has this fingerprint.
fn check_fingerprint(pinned: &str, keys: &[KeySource]) -> Result<(), PlatformError> {
    let mut own = Vec::new();
    for key in keys {
        if !key.is_there() {
            return Err(PlatformError::Missing(key.name()));
        }
        own.push(key.fingerprint()?);
    }
    if own.iter().any(|fingerprint| fingerprint == pinned) {
        return Ok(());
    }
    let file = keys.first().map(KeySource::name).unwrap_or_default();
    Err(PlatformError::Another { file, pinned: pinned.to_owned(), own: own.join(", ") })
}

/// Nodes use the clock of the database. A node whose machine's clock is far from it reports that it is not
/// ready.
fn check_clock(examined: &Examined) -> Finding {
    let distance = MachineClock::after(Timestamp(0)).now().skew(examined.now);
    let problem = (distance > CLOCK_DISTANCE_MAX)
        .then(|| format!("this machine's clock is {} s away from the database's", distance.as_secs()));
    Finding { check: "clock", detail: String::new(), problem, fix: "set the clock that is wrong" }
}
