//! Golden files: what programs and people rely on (API description, help texts, metrics, permissions), as it was last
//! agreed. `TEST_GOLDEN=write` writes them anew; a change of one belongs into the changelog.

use std::path::Path;

use serde_json::Value;

use crate::engine::Engine;
use crate::node::{Draft, Node, new_id, post};
use crate::shell::Shell;
use crate::wire::{http, metrics_text};

/// Compares a text with the golden file of that name, or writes it.
pub(crate) fn check(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var("TEST_GOLDEN").is_ok_and(|mode| mode == "write") {
        std::fs::write(&file, text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = |(line, (now, before)): (usize, (&str, &str))| {
        (now != before).then(|| format!("line {}: `{before}` is now `{now}`", line + 1))
    };
    let padded = |text: &'static str| std::iter::repeat(text);
    let lines = text.lines().chain(padded("")).zip(golden.lines().chain(padded("")));
    let count = text.lines().count().max(golden.lines().count());
    let first = lines.take(count).enumerate().find_map(differs);
    assert!(
        text == golden,
        "{name} differs from tests/golden/{name}: {}; if that is intended, run with TEST_GOLDEN=write",
        first.unwrap_or_default()
    );
}

/// INT-1
#[tokio::test]
async fn api_description_is_as_agreed() {
    let node = Node::start();
    let answer = http(&node).get(format!("{}/openapi.json", node.url())).send().await.unwrap();
    let document: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    check("openapi.json", &format!("{document:#}\n"));
}

/// The help of a command and of all its commands.
fn help(shell: &Shell, command: &str, all: &mut String) {
    let text = shell.run(format!("{command} --help").trim()).out;
    all.push_str(&format!("$ snavio {command} --help\n\n{text}\n"));
    let commands = text.split("Commands:").nth(1).unwrap_or_default();
    let commands = commands.split("Options:").next().unwrap_or_default();
    let names = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        help(shell, format!("{command} {name}").trim(), all);
    }
}

/// Command line (10-interfaces)
#[test]
fn help_texts_are_as_agreed() {
    let mut all = String::new();
    help(&Shell::new(), "", &mut all);
    check("help.txt", &all);
}

/// A series of the Prometheus text: its name and the names of its labels.
fn shape(line: &str) -> String {
    let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
    let Some((name, labels)) = series.split_once('{') else { return series.to_owned() };
    let names: Vec<_> =
        labels.split("\",").filter_map(|label| label.split_once('=')).map(|it| it.0).collect();
    format!("{name}{{{}}}", names.join(","))
}

/// TEL-8
#[tokio::test]
async fn metrics_are_as_agreed() {
    let node = Node::start();
    let cast = node.cast().await;
    post(&node.client(&cast.billing), Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    let text = metrics_text(&node).await;
    let described = text.lines().filter(|line| line.starts_with('#')).map(str::to_owned);
    let series = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(shape);
    let mut lines: Vec<_> = described.chain(series).collect();
    lines.sort();
    lines.dedup();
    let engine = if matches!(Engine::chosen(), Engine::Embedded) { "embedded" } else { "postgres" };
    check(&format!("metrics-{engine}.txt"), &(lines.join("\n") + "\n"));
}
