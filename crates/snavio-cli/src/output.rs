//! Printing: tables for people, JSON for programs.

use clap::ValueEnum;
use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use serde_json::Value;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

impl Output {
    /// Prints rows of objects: chosen members as columns, or the whole document.
    pub(crate) fn rows(self, document: &Value, items: &[Value], columns: &[&str]) {
        if self == Self::Json {
            return println!("{document}");
        }
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(columns.iter().map(|column| column.replace('_', " ")));
        for item in items {
            table.add_row(columns.iter().map(|column| cell(&item[*column])));
        }
        println!("{table}");
    }

    /// Prints one object: a line per member, or the document.
    pub(crate) fn object(self, document: &Value) {
        match (self, document.as_object()) {
            (Self::Table, Some(members)) => {
                for (name, value) in members {
                    println!("{name}: {}", cell(value));
                }
            }
            _ => println!("{document}"),
        }
    }
}

/// A value as text: whatever was sent stays on its line and cannot steer the terminal.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
