//! Section `[snapshot]`: where snapshots of the registry are, and how they are written and read.

use std::collections::BTreeMap;
use std::time::Duration;

use snavio_store::objects::{Objects, Place};

use super::raw;

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

impl SnapshotConfig {
    /// Takes what the environment says about S3; the settings come last, and win.
    pub(super) fn know_environment(&mut self, environment: &BTreeMap<String, String>) {
        let of_s3 = environment.iter().filter(|(name, _)| name.starts_with("AWS_"));
        let mut options: Vec<_> = of_s3.map(|(name, value)| (name.clone(), value.clone())).collect();
        options.append(&mut self.place.options);
        self.place.options = options;
    }
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
    let given = [("AWS_REGION", &raw.region), ("AWS_ENDPOINT_URL", &raw.endpoint)];
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    let options = given.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    let place = Place { url: raw.url.clone(), options };
    if !Objects::is_place(&place.url) {
        problems.push(format!("snapshot.url is {:?}; use file:///folder or s3://bucket/prefix", raw.url));
    }
    Some(SnapshotConfig {
        place,
        environment: raw.environment.clone(),
        preload: raw.preload,
        interval: Duration::from_secs(raw.interval_seconds as u64),
        ttl: Duration::from_secs(raw.ttl_seconds as u64),
        bytes_max: raw.bytes_max,
    })
}
