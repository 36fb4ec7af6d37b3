//! The process's recorder of metrics: how values are gathered, and what each of them means (TEL-8).

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use snavio_gate::SNAPSHOT_TROUBLE_CAUSES;
use tokio_util::sync::CancellationToken;

/// Samples of histograms wait in memory until they are sorted in: not for longer than this.
const UPKEEP: Duration = Duration::from_secs(1);

const SECONDS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 20.0];
/// Few, because every route of the API has a histogram of its own.
const REQUEST_SECONDS: [f64; 2] = [0.05, 0.5];
const GAP_SIZES: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 1_000.0, 10_000.0, 1_000_000.0];
const MESSAGES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// The process has one recorder; a second node in the same process (tests, benches) shares it. Counters that
/// are made before it are never seen: it comes first.
pub(crate) fn recorder() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(install).clone()
}

fn install() -> PrometheusHandle {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .and_then(|builder| {
            let requests = Matcher::Full("snavio_http_request_seconds".to_owned());
            builder.set_buckets_for_metric(requests, &REQUEST_SECONDS)
        })
        .and_then(|it| {
            it.set_buckets_for_metric(Matcher::Full("snavio_commit_messages".to_owned()), &MESSAGES)
        })
        .and_then(|it| {
            it.set_buckets_for_metric(Matcher::Full("event_sequence_gap_size".to_owned()), &GAP_SIZES)
        });
    let recorder = builder.expect("the lists of buckets are not empty").build_recorder();
    let handle = recorder.handle();
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("another metrics recorder is installed; /metrics stays empty");
    }
    describe();
    begin();
    handle
}

/// Sorts samples in for as long as the node runs, whether or not anybody reads them.
pub(crate) async fn keep_up(handle: PrometheusHandle, stopping: CancellationToken) {
    let upkeep = async {
        let mut tick = tokio::time::interval(UPKEEP);
        loop {
            tick.tick().await;
            handle.run_upkeep();
        }
    };
    stopping.run_until_cancelled(upkeep).await;
}

/// Counters without labels that nothing else makes at the start.
const COUNTERS: [&str; 20] = [
    "events_archive_failures_total",
    "snavio_attempts_fenced_total",
    "snavio_attempts_fenced_unrecorded_total",
    "snavio_attempts_lapsed_total",
    "snavio_auth_failures_total",
    "snavio_connections_refused_total",
    "snavio_executed_after_revoked_total",
    "snavio_foreign_source_total",
    "snavio_issuer_failures_total",
    "snavio_legacy_key_uses_total",
    "snavio_push_disabled_total",
    "snavio_signed_requests_replayed_total",
    "snavio_snapshots_written_total",
    "snavio_store_commits_total",
    "snavio_store_messages_total",
    "snavio_store_round_trips_total",
    "snavio_target_breaks_total",
    "snavio_telemetry_dropped_total",
    "snavio_telemetry_suppressed_total",
    "snavio_unseal_failures_total",
];

/// Counters by one label, with its values.
const LABELLED_COUNTERS: [(&str, &str, &[&str]); 3] = [
    ("snavio_config_polls_total", "secret", &["given", "withheld"]),
    ("snavio_snapshot_write_failures_total", "cause", &SNAPSHOT_TROUBLE_CAUSES),
    ("snavio_snapshot_load_failures_total", "cause", &SNAPSHOT_TROUBLE_CAUSES),
];

/// Gauges that something sets only later.
const GAUGES: [&str; 8] = [
    "events_archive_backlog",
    "events_conflicts_open",
    "snavio_connections",
    "snavio_registry_chain_broken",
    "snavio_registry_sealed_version",
    "snavio_snapshot_bytes",
    "snavio_snapshot_left_out",
    "snavio_store_up",
];

/// Makes all counters and gauges whose labels are known: the first increment of one that begins with it is lost to
/// `increase` and `rate`.
fn begin() {
    for name in COUNTERS {
        counter!(name).increment(0);
    }
    for (name, label, values) in LABELLED_COUNTERS {
        for value in values {
            counter!(name, label => *value).increment(0);
        }
    }
    for name in GAUGES {
        // Nothing is taken off what another node in this process has set.
        gauge!(name).increment(0.0);
    }
}

fn describe() {
    describe_counter!("snavio_commands_total", "commands by verdict, path and reason");
    describe_counter!("snavio_events_total", "events by verdict, path and reason");
    describe_counter!("snavio_route_commands_total", "commands permitted onto a registered route");
    describe_counter!("snavio_strict_commands_total", "commands to routes that claim ids");
    describe_counter!("snavio_duplicates_prevented_total", "commands seen before that went nowhere");
    describe_counter!("snavio_signature_failures_total", "commands unsigned, forged or under a wrong key");
    describe_counter!("snavio_misroutes_total", "commands with a grant and no route");
    describe_counter!("snavio_escalations_total", "commands that memory could not decide, by reason");
    describe_histogram!("snavio_settle_seconds", "from the hand-over to the committer until the answer");
    describe_histogram!("snavio_commit_messages", "messages that shared a commit");
    describe_histogram!(
        "snavio_http_request_seconds",
        "from the head of a request to the head of its answer, by route"
    );
    describe_histogram!("snavio_push_seconds", "time that a push took, by whether it was taken");
    describe_counter!("snavio_push_disabled_total", "routes whose receiver said that it is gone");
    describe_counter!(
        "snavio_target_breaks_total",
        "times that a target was down and is left alone for a while"
    );
    describe_counter!("snavio_telemetry_suppressed_total", "records of refusals that were only counted");
    describe_counter!("snavio_telemetry_dropped_total", "records of refusals that could not be written");
    describe_counter!("snavio_snapshots_written_total", "snapshots of the registry that were written");
    describe_counter!("snavio_snapshot_write_failures_total", "snapshots that were not written, by cause");
    describe_counter!("snavio_snapshot_load_failures_total", "snapshots that were refused, by cause");
    describe_gauge!("snavio_snapshot_bytes", "bytes of the last snapshot that this node wrote");
    describe_gauge!("snavio_snapshot_left_out", "tenants whose entries the last snapshot leaves out");
    describe_histogram!(
        "snavio_snapshot_write_seconds",
        "from the look at the store until a snapshot is there"
    );
    describe_counter!("snavio_unseal_failures_total", "sealed keys that did not open under the platform key");
    describe_counter!("snavio_auth_failures_total", "tokens and client secrets that were wrong");
    describe_counter!("snavio_issuer_failures_total", "exchanges that failed for want of an issuer's keys");
    describe_counter!("snavio_foreign_source_total", "attempts to act for a source that is another's");
    describe_counter!("snavio_signed_requests_replayed_total", "signed requests that were sent again");
    describe_counter!("snavio_connections_refused_total", "connections past the limit");
    describe_gauge!("snavio_connections", "open connections");
    describe_gauge!("snavio_requests_in_flight", "requests and streams under way");
    describe_gauge!("snavio_body_bytes_in_flight", "bytes of bodies in memory");
    describe_gauge!("snavio_intake_waiting", "messages that wait for their commit");
    describe_counter!("events_processed_total", "messages by what became of their processing");
    describe_histogram!("events_processing_latency_seconds", "duration of a call of an HTTP processor");
    describe_counter!("snavio_attempts_lapsed_total", "attempts whose worker did not report in time");
    describe_counter!("snavio_attempts_fenced_total", "late reports that were fenced and recorded");
    describe_counter!(
        "snavio_attempts_fenced_unrecorded_total",
        "late reports that were fenced and not recorded"
    );
    describe_counter!("events_conflicts_total", "messages refused because their id has other content");
    describe_gauge!("events_conflicts_open", "conflicts of the whole store that are not resolved");
    describe_counter!(
        "event_order_violations_total",
        "messages whose number is not above the last one of their entity"
    );
    describe_counter!(
        "event_unordered_total",
        "messages that passed an ordered route without entity or number"
    );
    describe_counter!("event_sequence_gaps_total", "times that numbers were missing before a message");
    describe_histogram!("event_sequence_gap_size", "numbers missing in a gap");
    describe_histogram!(
        "sequence_validation_duration_seconds",
        "from the hand-over of an ordered message until it was judged and committed"
    );
    describe_gauge!("events_archive_backlog", "ended claims that wait for the archive");
    describe_counter!(
        "events_archive_failures_total",
        "failures while writing to or deleting from the archive"
    );
    describe_counter!("snavio_legacy_key_uses_total", "commands signed with a previous key");
    describe_counter!(
        "snavio_config_polls_total",
        "answers to GET /v1/tenant-config, by whether they contained the secret"
    );
    describe_gauge!("snavio_store_up", "1 when the store answered the last time its queues were counted");
    describe_counter!("snavio_cache_uses_total", "uses of cached registry data, by its age");
    describe_histogram!("snavio_cache_age_seconds", "age of the registry when it permitted a message");
    describe_histogram!("snavio_cache_refresh_seconds", "duration of a read of registry changes");
    describe_counter!(
        "snavio_executed_after_revoked_total",
        "commands executed after their permission was revoked"
    );
    describe_gauge!("snavio_registry_sealed_version", "the last change of the registry that is sealed");
    describe_gauge!("snavio_registry_chain_broken", "1 when this node cannot seal the changelog");
    describe_gauge!("snavio_store_wal_bytes", "bytes of the write-ahead log");
    describe_gauge!("snavio_store_deliveries", "deliveries that wait or are in flight");
    describe_gauge!("snavio_disk_free_bytes", "bytes that may still be written to the data folder's disk");
    describe_gauge!("snavio_registry_version", "the registry's version in memory");
    describe_gauge!("snavio_relaxed", "1 when an acknowledged message may be lost in a crash");
    describe_counter!("snavio_store_commits_total", "commits, each of them one flush");
    describe_counter!("snavio_store_messages_total", "messages settled");
    describe_counter!(
        "snavio_store_round_trips_total",
        "how often statements were sent to a database and awaited, alone or several in one flight"
    );
}
