//! Section `[snapshot]`: where snapshots of the registry are, and how they are written and read.

use std::time::Duration;

use snavio_store::objects::Place;

use super::{place, raw};

/// A name of an environment is no longer than this.
const ENVIRONMENT_CHARS_MAX: usize = 64;

/// Settings of snapshots.
#[derive(Debug, Clone)]
pub struct SnapshotConfig {
    /// Where they are.
    pub place: Place,
    /// Whose registry they show.
    pub environment: String,
    /// Whether a start reads one.
    pub preload: bool,
    /// How often one is written.
    pub interval: Duration,
    /// How long one may be read.
    pub ttl: Duration,
    /// Bytes of one.
    pub bytes_max: u64,
}

/// The section as usable, if snapshots are wanted.
pub(super) fn usable(raw: &raw::Snapshot, problems: &mut Vec<String>) -> Option<SnapshotConfig> {
    for (name, value, most) in
        [("interval_seconds", raw.interval_seconds, 60), ("ttl_seconds", raw.ttl_seconds, 30 * 86_400)]
    {
        if !(1..=most).contains(&value) {
            problems.push(format!("snapshot.{name} is {value}; use 1 to {most}"));
        }
    }
    if raw.url.is_empty() {
        return None;
    }
    let is_name = |text: &str| {
        (1..=ENVIRONMENT_CHARS_MAX).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_graphic())
    };
    if !is_name(&raw.environment) {
        problems.push(format!(
            "snapshot.environment is {:?}; with snapshot.url, name the environment in up to {ENVIRONMENT_CHARS_MAX} letters",
            raw.environment
        ));
    }
    let place = place::usable("snapshot", &raw.url, &raw.region, &raw.endpoint, problems);
    Some(SnapshotConfig {
        place,
        environment: raw.environment.clone(),
        preload: raw.preload,
        interval: Duration::from_secs(raw.interval_seconds as u64),
        ttl: Duration::from_secs(raw.ttl_seconds as u64),
        bytes_max: raw.bytes_max,
    })
}
