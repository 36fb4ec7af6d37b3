//! The bench runs, and the counts in its report are consistent. The test does not judge the measured figures.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::node::binary;

/// QUA-11
#[test]
fn quick_bench_accounts_for_every_message() {
    let report = bench(&["--quick", "--seconds", "0.1", "--messages", "400", "--routes", "strict"]);
    assert!(report["machine"]["flush_micros"].as_u64().unwrap() > 0);
    assert_eq!((&report["settings"]["rounds"], &report["settings"]["preloaded"]), (&1.into(), &0.into()));

    let ingest = report["ingest"].as_array().unwrap();
    assert_eq!(ingest.len(), 4);
    for cell in ingest {
        let round = &cell["rounds"][0];
        assert!(count(round, "messages") > 0, "{cell}");
        assert_eq!(count(round, "messages"), count(round, "accepted"), "{cell}");
        assert_eq!(count(round, "accepted"), count(round, "settled"), "{cell}");
        assert_eq!(count(round, "broken"), 0, "{cell}");
        assert!(cell["latency_micros"]["p50"].as_u64() <= cell["latency_micros"]["p999"].as_u64());
        assert!(cell["per_second"]["median"].as_f64().unwrap() > 0.0);
    }

    let consumed = &report["consume"][0]["rounds"][0];
    assert_eq!(count(consumed, "messages"), count(consumed, "accepted"), "{consumed}");

    let comparison = &report["comparisons"][0];
    assert_eq!(comparison["contestants"].as_array().unwrap().len(), 2);
    assert_eq!(comparison["ratios"][0]["wanted"], 0.7);
    assert!(comparison["ratios"][0]["ratio"]["median"].as_f64().unwrap() > 0.0);
    assert!(report["fairness"]["p99_flood_to_alone"].as_f64().unwrap() > 0.0);
}

/// QUA-11
#[test]
fn bench_can_preload_the_store() {
    let arguments = ["--routes", "strict", "--batch", "10", "--connections", "2", "--rounds", "1"];
    let more = ["--seconds", "20", "--messages", "100", "--preload", "700", "--random-ids", "--consume"];
    let report = bench(&[&arguments[..], &more].concat());
    assert_eq!(report["settings"]["preloaded"], 700);
    assert_eq!(report["ingest"].as_array().unwrap().len(), 1);
    let round = &report["ingest"][0]["rounds"][0];
    assert_eq!((count(round, "messages"), count(round, "settled")), (100, 100));
    assert!(round["consumed_per_second"].as_f64().unwrap() >= 0.0);
}

fn bench(arguments: &[&str]) -> Value {
    let mut command = Command::new(binary());
    let output = command.args(["bench", "--output", "json"]).args(arguments).stdin(Stdio::null()).output();
    let output = output.expect("the bench runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

fn count(round: &Value, name: &str) -> u64 {
    round[name].as_u64().unwrap_or_else(|| panic!("{name} is not a count: {round}"))
}
