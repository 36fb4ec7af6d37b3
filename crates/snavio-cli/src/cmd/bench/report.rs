//! The report: tables for people, the whole of it as JSON.

use serde::Serialize;
use serde_json::{Value, json};

use super::machine::Machine;
use super::round::Rounds;
use crate::Ended;
use crate::output::Output;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) cells: Vec<Rounds>,
}

impl Report {
    pub(super) fn print(&self, output: Output) -> Ended {
        if output == Output::Json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        let rows: Vec<Value> = self.cells.iter().map(row).collect();
        println!("{:?}", self.machine);
        output.rows(&Value::Null, &rows, &["what", "per second", "range", "p50", "p99", "p999", "max", "msgs per flush", "server µs", "client µs", "others"]);
        Ok(())
    }
}

fn row(r: &Rounds) -> Value {
    let ms = |us: u64| format!("{:.2}", us as f64 / 1000.0);
    let f = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.1}"));
    json!({"what": r.what, "per second": format!("{:.0}", r.per_second.median), "range": format!("{:.0}-{:.0}", r.per_second.least, r.per_second.most),
      "p50": ms(r.latency_micros.p50), "p99": ms(r.latency_micros.p99), "p999": ms(r.latency_micros.p999), "max": ms(r.latency_micros.max),
      "msgs per flush": f(r.messages_per_flush), "server µs": f(r.server_micros_per_message), "client µs": f(r.client_micros_per_message), "others": format!("{:.0} %", r.others_percent_max)})
}
