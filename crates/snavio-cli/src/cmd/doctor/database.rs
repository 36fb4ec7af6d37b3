//! What doctor says of a database: asked as a node would ask it, with nothing changed.

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
            Finding::fine("store", format!("PostgreSQL {} answers", examined.version)),
            layout(&examined),
            durability(&examined, config.relaxed),
            platform_key(&examined, config),
            clock(&examined),
        ],
        // Nothing further can be told of it.
        Err(error) => vec![Finding {
            what: "store",
            said: String::new(),
            problem: Some(Failure::from(error).to_string()),
            mend: "mend what is named: store.url, store.ca_file, or the server",
        }],
    }
}

fn layout(examined: &Examined) -> Finding {
    let said = match examined.layout {
        Some(layout) => format!("layout {layout}"),
        None => "no tables yet; the first node makes them".to_owned(),
    };
    let problem = examined.unusable.clone();
    Finding {
        what: "layout",
        said,
        problem,
        mend: "connect as the role that owns the database, to its primary",
    }
}

fn durability(examined: &Examined, relaxed: bool) -> Finding {
    let (said, problem) = match &examined.durability {
        Durability::Durable => (String::new(), None),
        Durability::Relaxed(why) if relaxed => (format!("store.relaxed is set, and {why}"), None),
        Durability::Relaxed(why) => (String::new(), Some(why.clone())),
    };
    Finding { what: "durability", said, problem, mend: "mend the server's setting" }
}

/// Compares this node's platform key with the one that the database's nodes have.
fn platform_key(examined: &Examined, config: &Config) -> Finding {
    let checked = match examined.pins.get(PLATFORM_KEY_PIN) {
        None => Ok("the first node's counts"),
        Some(pinned) => known(pinned, &config.platform_keys).map(|()| "the fleet's"),
    };
    Finding {
        what: "platform key",
        said: checked.as_ref().map_or("", |said| said).to_owned(),
        problem: checked.err().map(|error| Failure::from(error).to_string()),
        mend: "copy platform.key from a node that serves",
    }
}

/// Whether one of the keys is the one of this fingerprint.
fn known(pinned: &str, keys: &[KeySource]) -> Result<(), PlatformError> {
    let mut own = Vec::new();
    for key in keys {
        if !key.is_there() {
            return Err(PlatformError::Missing(key.name()));
        }
        own.push(key.fingerprint()?);
    }
    if own.iter().any(|it| it == pinned) {
        return Ok(());
    }
    let file = keys.first().map(KeySource::name).unwrap_or_default();
    Err(PlatformError::Another { file, pinned: pinned.to_owned(), own: own.join(", ") })
}

/// Nodes go by the database's clock; a machine that is far from it says that it is not ready.
fn clock(examined: &Examined) -> Finding {
    let distance = MachineClock::after(Timestamp(0)).now().skew(examined.now);
    let problem = (distance > CLOCK_DISTANCE_MAX)
        .then(|| format!("this machine's clock is {} s away from the database's", distance.as_secs()));
    Finding { what: "clock", said: String::new(), problem, mend: "set the clock that is wrong" }
}
