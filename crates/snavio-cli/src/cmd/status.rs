//! `snavio status`.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::Output;

/// Show the status of a node and its fleet.
#[derive(Args)]
#[command(after_help = "Example: snavio status
Example: snavio status --url https://snavio.example.com --token-file ./operator.token
Example: snavio status --output json")]
pub(crate) struct Status {
    #[command(flatten)]
    node: OperatorConnection,
}

/// The columns of the table of nodes.
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
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let mut document = self.node.api()?.call(Method::GET, "/v1/status", None).await?;
        if output == Output::Json {
            output.print_object(&document);
            return Ok(());
        }
        let nodes = document.as_object_mut().and_then(|members| members.remove("nodes"));
        let nodes = nodes.as_ref().and_then(Value::as_array).into_iter().flatten();
        let nodes: Vec<_> = nodes.map(node_row).collect();
        flatten(&mut document, "store");
        flatten(&mut document, "chain");
        output.print_object(&document);
        output.print_rows(&Value::Null, &nodes, &COLUMNS);
        Ok(())
    }
}

/// Formats the members of a node for its table row.
fn node_row(node: &Value) -> Value {
    let mut row = node.clone();
    let leads = node["leads"].as_array().into_iter().flatten().filter_map(Value::as_str);
    row["leads"] = json!(leads.collect::<Vec<_>>().join(", "));
    row["silent_seconds"] = json!(format!("{:.1}", node["silent_seconds"].as_f64().unwrap_or_default()));
    row
}

/// Replaces the object `name` with its members, each named `name.member`.
fn flatten(document: &mut Value, name: &str) {
    let Some(members) = document.as_object_mut() else { return };
    let Some(Value::Object(inner)) = members.remove(name) else { return };
    members.extend(inner.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
}
