//! The memory of a node under full load. This test is a program of its own, because nothing else may load the
//! machine.

use std::process::{Command, Stdio};

use serde_json::Value;
use snavio_model::bounds::RECENT_MESSAGES_MAX;

/// The most that a node may grow between the first quarter of the run and the last, for a run of any length.
/// It is not zero, because the allocator keeps memory that it used once.
const GROWTH_MIB_MAX: f64 = 24.0;
/// The memory of recent messages fills during the run. It may grow by this much for each message, with the
/// growth of its table.
const RECENT_BYTES_PER_MESSAGE_MAX: f64 = 60.0;
/// The memory of recent messages holds two generations. Growth with messages beyond that number is a leak.
const RECENT_MESSAGES: u64 = 2 * RECENT_MESSAGES_MAX as u64;
/// A run with fewer messages proves nothing.
const MESSAGES_MIN: u64 = 100_000;

/// QUA-1
#[test]
fn memory_is_flat_under_full_load() {
    let long = std::env::var("TEST_LONG").is_ok_and(|long| long == "1");
    let seconds = if long { "600" } else { "60" };
    let mut bench = Command::new(env!("CARGO_BIN_EXE_snavio"));
    let ran = bench.args(["bench", "--output", "json", "--memory", seconds]).stdin(Stdio::null()).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let memory = &report["memory"];
    let [first, last] = ["first", "last"].map(|quarter| memory[quarter]["median"].as_f64().unwrap());
    let messages = memory["messages"].as_u64().unwrap();
    println!("{seconds} s, {messages} messages: {first:.0} MiB in the first quarter, {last:.0} in the last");
    assert!(messages >= MESSAGES_MIN, "{messages} messages are too few to prove anything");
    let recent = messages.min(RECENT_MESSAGES) as f64;
    let growth_max = GROWTH_MIB_MAX + RECENT_BYTES_PER_MESSAGE_MAX * recent / f64::from(1 << 20);
    assert!(last <= first + growth_max, "{first} MiB became {last} MiB: {memory}");
}
