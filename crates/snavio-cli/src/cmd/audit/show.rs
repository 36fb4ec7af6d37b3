//! `snavio audit show`, `at`, `diff` and `deeds`.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use snavio_model::registry::Kind;
use snavio_sdk::Api;

use crate::CommandResult;
use crate::cmd::apply::with_difference_text;
use crate::cmd::pages;
use crate::cmd::unknown::unknown_name;
use crate::connection::OperatorConnection;
use crate::output::Output;

/// Show the changelog of the registry: each change with its author, time and note.
#[derive(Args)]
#[command(after_help = "Example: snavio audit show
Example: snavio audit show --kind grant --since 120
Example: snavio audit show --kind grant --name 'acme/billing>acme/bot:pay'")]
pub(crate) struct Show {
    #[command(flatten)]
    node: OperatorConnection,
    /// Only changes after this registry version.
    #[arg(long, default_value_t = 0)]
    since: i64,
    /// Only changes of entries of this kind, for example grant.
    #[arg(long)]
    kind: Option<String>,
    /// Only changes of the entry with this name, for example acme/billing>acme/bot:pay.
    #[arg(long)]
    name: Option<String>,
}

impl Show {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api()?;
        if let Some(kind) = self.kind.as_deref().filter(|kind| Kind::stored(kind).is_none()) {
            return Err(unknown_name("kind of entry", kind, Kind::ALL.map(Kind::as_str)));
        }
        let since = ("since", self.since.into());
        let mut all = pages::fetch_all(&api, "registry/changes", &[], since).await?;
        let items = all["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        if let Some(name) = &self.name {
            self.check_name(&api, &items, name).await?;
        }
        let items: Vec<_> = items.into_iter().filter(|change| self.is_selected(change)).collect();
        let rows: Vec<_> = items.iter().map(change_row).collect();
        let columns = ["version", "at", "who", "kind", "name", "what", "why"];
        output.print_rows(&json!({ "items": items }), &rows, &columns);
        Ok(())
    }
}

impl Show {
    fn has_selected_kind(&self, change: &Value) -> bool {
        self.kind.as_deref().is_none_or(|kind| change["kind"] == kind)
    }

    fn is_selected(&self, change: &Value) -> bool {
        self.has_selected_kind(change) && self.name.as_deref().is_none_or(|name| change["name"] == name)
    }

    /// Refuses a name that no entry of the kind ever had. It looks only at the changes that the caller may
    /// see.
    async fn check_name(&self, api: &Api, items: &[Value], name: &str) -> CommandResult {
        if items.iter().any(|change| self.is_selected(change)) {
            return Ok(());
        }
        let mut all = pages::fetch_all(api, "registry/changes", &[], ("since", 0.into())).await?;
        let all: Vec<_> = all["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        if all.iter().any(|change| self.is_selected(change)) {
            return Ok(());
        }
        let of_kind = all.iter().filter(|change| self.has_selected_kind(change));
        Err(unknown_name(
            "entry in the changelog",
            name,
            of_kind.filter_map(|change| change["name"].as_str()),
        ))
    }
}

/// Adds the effect of a change in words.
fn change_row(change: &Value) -> Value {
    let mut row = change.clone();
    row["what"] = match (&change["before"], &change["after"]) {
        (Value::Null, after) => format!("added {after}"),
        (before, Value::Null) => format!("removed {before}"),
        (before, after) => difference_text(before, after),
    }
    .into();
    row
}

/// The members of an entry that changed: `suspended: false → true`.
fn difference_text(before: &Value, after: &Value) -> String {
    let entries = [before, after].into_iter().filter_map(Value::as_object);
    let names = entries.flat_map(|entry| entry.keys());
    let mut names: Vec<_> = names.filter(|name| before[*name] != after[*name]).collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        // The changelog shows no secrets.
        return "changed a secret".to_owned();
    }
    let texts = names.into_iter().map(|name| format!("{name}: {} → {}", before[name], after[name]));
    texts.collect::<Vec<_>>().join(", ")
}

/// Show the entries of the registry at a version.
#[derive(Args)]
#[command(after_help = "Example: snavio audit at 120
Example: snavio audit at 120 --kind grant
Example: snavio audit at 120 --output json")]
pub(crate) struct At {
    #[command(flatten)]
    node: OperatorConnection,
    /// The registry version.
    #[arg(value_name = "VERSION")]
    at: i64,
    /// Only entries of this kind, for example grant.
    #[arg(long)]
    kind: Option<String>,
}

impl At {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let api = self.node.api()?;
        let filters = [("kind", self.kind.as_deref().unwrap_or_default())];
        let mut all =
            pages::fetch_all(&api, &format!("registry/at/{}", self.at), &filters, ("after", "".into()))
                .await?;
        let items = all["items"].take();
        let entries = items.as_array().map(Vec::as_slice).unwrap_or_default();
        let rows = entries.iter().map(|entry| json!({ "kind": entry["kind"], "entry": entry.to_string() }));
        let rows: Vec<_> = rows.collect();
        output.print_rows(&json!({ "version": self.at, "items": entries }), &rows, &["kind", "entry"]);
        Ok(())
    }
}

/// Compare two versions of the registry.
#[derive(Args)]
#[command(after_help = "Example: snavio audit diff 120
Example: snavio audit diff 120 135
Example: snavio audit diff 120 135 --output json")]
pub(crate) struct Diff {
    #[command(flatten)]
    node: OperatorConnection,
    /// The earlier version.
    from: i64,
    /// The later version; without it, the current version.
    to: Option<i64>,
}

impl Diff {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let to = self.to.map(|to| format!("&to={to}")).unwrap_or_default();
        let path = format!("/v1/registry/compare?from={}{to}", self.from);
        let answer = self.node.api()?.call(Method::GET, &path, None).await?;
        let changes = answer["changes"].as_array().cloned().unwrap_or_default();
        let rows: Vec<_> = changes.into_iter().map(with_difference_text).collect();
        output.print_rows(&answer, &rows, &["step", "kind", "name", "difference"]);
        Ok(())
    }
}

/// Show the audit log: the actions of people outside the registry, such as purges, redrives and restores.
#[derive(Args)]
#[command(after_help = "Example: snavio audit deeds
Example: snavio audit deeds --after 268435458
Example: snavio audit deeds --output json")]
pub(crate) struct Deeds {
    #[command(flatten)]
    node: OperatorConnection,
    /// Only entries after this number.
    #[arg(long, default_value_t = 0)]
    after: i64,
}

impl Deeds {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let all = pages::fetch_after(&self.node.api()?, "audit", &[], self.after).await?;
        output.print_list(&all, &["number", "at", "who", "action", "object", "outcome", "why"]);
        Ok(())
    }
}
