//! `snavio audit show`, `at`, `diff` and `deeds`.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use snavio_model::registry::Kind;
use snavio_sdk::Api;

use crate::Ended;
use crate::cmd::apply::with_differences;
use crate::cmd::pages;
use crate::cmd::unknown::unknown;
use crate::connection::AsOperator;
use crate::output::Output;

/// Show who changed what in the registry, when and why, with what was before and after.
///
/// Example: snavio audit show --kind grant --since 120
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    node: AsOperator,
    /// Only changes after this version.
    #[arg(long, default_value_t = 0)]
    since: i64,
    /// Only changes of entries of this kind, for example grant.
    #[arg(long)]
    kind: Option<String>,
    /// Only changes of the entry of this name, for example acme/billing>acme/bot:pay.
    #[arg(long)]
    name: Option<String>,
}

impl Show {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api()?;
        if let Some(kind) = self.kind.as_deref().filter(|kind| Kind::stored(kind).is_none()) {
            return Err(unknown("kind of entry", kind, Kind::ALL.map(Kind::as_str)));
        }
        let since = ("since", self.since.into());
        let mut all = pages::whole(&api, "registry/changes", &[], since).await?;
        let wanted = |asked: &Option<String>, has: &Value| asked.as_deref().is_none_or(|it| has == it);
        let is_wanted = |it: &Value| wanted(&self.kind, &it["kind"]) && wanted(&self.name, &it["name"]);
        let items = all["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        if let Some(name) = &self.name {
            self.check_name(&api, &items, name).await?;
        }
        let items: Vec<_> = items.into_iter().filter(is_wanted).collect();
        let rows: Vec<_> = items.iter().map(row).collect();
        let columns = ["version", "at", "who", "kind", "name", "what", "why"];
        output.rows(&json!({ "items": items }), &rows, &columns);
        Ok(())
    }
}

impl Show {
    /// Refuses a name that no entry of the kind ever had, as far as the changelog is shown to the caller.
    async fn check_name(&self, api: &Api, items: &[Value], name: &str) -> Ended {
        let is_of_kind = |it: &&Value| self.kind.as_deref().is_none_or(|kind| kind == it["kind"]);
        let has_name = |items: &[Value]| items.iter().filter(is_of_kind).any(|it| it["name"] == name);
        if has_name(items) {
            return Ok(());
        }
        let mut all = pages::whole(api, "registry/changes", &[], ("since", 0.into())).await?;
        let all: Vec<_> = all["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        if has_name(&all) {
            return Ok(());
        }
        let names = all.iter().filter(is_of_kind).filter_map(|it| it["name"].as_str());
        Err(unknown("entry in the changelog", name, names))
    }
}

/// A change with what it did in words.
fn row(change: &Value) -> Value {
    let mut row = change.clone();
    row["what"] = match (&change["before"], &change["after"]) {
        (Value::Null, after) => format!("added {after}"),
        (before, Value::Null) => format!("removed {before}"),
        (before, after) => difference(before, after),
    }
    .into();
    row
}

/// The members of an entry that changed: `suspended: false → true`.
fn difference(before: &Value, after: &Value) -> String {
    let names = [before, after].into_iter().filter_map(Value::as_object).flat_map(|it| it.keys());
    let mut names: Vec<_> = names.filter(|name| before[*name] != after[*name]).collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return "changed what is secret".to_owned();
    }
    let told = names.into_iter().map(|name| format!("{name}: {} → {}", before[name], after[name]));
    told.collect::<Vec<_>>().join(", ")
}

/// Show what was registered at a version.
///
/// Example: snavio audit at 120 --kind grant
#[derive(Args)]
pub(crate) struct At {
    #[command(flatten)]
    node: AsOperator,
    /// The registry's version.
    #[arg(value_name = "VERSION")]
    at: i64,
    /// Only entries of this kind, for example grant.
    #[arg(long)]
    kind: Option<String>,
}

impl At {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let api = self.node.api()?;
        let filters = [("kind", self.kind.as_deref().unwrap_or_default())];
        let mut all =
            pages::whole(&api, &format!("registry/at/{}", self.at), &filters, ("after", "".into())).await?;
        let items = all["items"].take();
        let entries = items.as_array().map(Vec::as_slice).unwrap_or_default();
        let row = |entry: &Value| json!({ "kind": entry["kind"], "entry": entry.to_string() });
        let rows: Vec<_> = entries.iter().map(row).collect();
        output.rows(&json!({ "version": self.at, "items": entries }), &rows, &["kind", "entry"]);
        Ok(())
    }
}

/// Compare two versions of the registry.
///
/// Example: snavio audit diff 120 135
#[derive(Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    node: AsOperator,
    /// The earlier version.
    from: i64,
    /// The later version; without it, the registry as it is.
    to: Option<i64>,
}

impl Diff {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let to = self.to.map(|to| format!("&to={to}")).unwrap_or_default();
        let path = format!("/v1/registry/compare?from={}{to}", self.from);
        let answer = self.node.api()?.call(Method::GET, &path, None).await?;
        let changes = answer["changes"].as_array().cloned().unwrap_or_default();
        let rows: Vec<_> = changes.into_iter().map(with_differences).collect();
        output.rows(&answer, &rows, &["step", "kind", "name", "difference"]);
        Ok(())
    }
}

/// Show what people did besides changing the registry: purges, redrives, restores, moves.
///
/// Example: snavio audit deeds
#[derive(Args)]
pub(crate) struct Deeds {
    #[command(flatten)]
    node: AsOperator,
    /// Only those after this number.
    #[arg(long, default_value_t = 0)]
    after: i64,
}

impl Deeds {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let all = pages::after(&self.node.api()?, "audit", &[], self.after).await?;
        output.list(&all, &["number", "at", "who", "action", "object", "outcome", "why"]);
        Ok(())
    }
}
