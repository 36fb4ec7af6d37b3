//! `snavio status`.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use crate::Ended;
use crate::connection::AsOperator;
use crate::output::Output;

/// Show how a node does, and the nodes that share its store.
///
/// Example: snavio status --url http://127.0.0.1:8080
#[derive(Args)]
pub(crate) struct Status {
    #[command(flatten)]
    node: AsOperator,
}

/// What is told of each node.
const COLUMNS: [&str; 10] = [
    "id",
    "address",
    "version",
    "started_at",
    "silent_seconds",
    "registry_version",
    "registry_lag",
    "waiting",
    "draining",
    "leads",
];

impl Status {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let mut document = self.node.api()?.call(Method::GET, "/v1/status", None).await?;
        if output == Output::Json {
            output.object(&document);
            return Ok(());
        }
        let nodes = document.as_object_mut().and_then(|members| members.remove("nodes"));
        let nodes = nodes.as_ref().and_then(Value::as_array).into_iter().flatten();
        let nodes: Vec<_> = nodes.map(row).collect();
        flatten(&mut document, "store");
        flatten(&mut document, "chain");
        output.object(&document);
        output.rows(&Value::Null, &nodes, &COLUMNS);
        Ok(())
    }
}

/// A node as its row shows it.
fn row(node: &Value) -> Value {
    let mut row = node.clone();
    let leads = node["leads"].as_array().into_iter().flatten().filter_map(Value::as_str);
    row["leads"] = json!(leads.collect::<Vec<_>>().join(", "));
    row["silent_seconds"] = json!(format!("{:.1}", node["silent_seconds"].as_f64().unwrap_or_default()));
    row
}

/// Puts the members of a member beside it, under both names.
fn flatten(document: &mut Value, name: &str) {
    let Some(members) = document.as_object_mut() else { return };
    let Some(Value::Object(inner)) = members.remove(name) else { return };
    members.extend(inner.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
}
