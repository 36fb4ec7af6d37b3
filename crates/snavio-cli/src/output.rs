//! Printing: tables for people, JSON for programs.

use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use serde_json::Value;

use crate::cmd::Failure;

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
            return print_line(&document.to_string());
        }
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(columns.iter().map(|column| column.replace('_', " ")));
        for item in items {
            table.add_row(columns.iter().map(|column| cell(&item[*column])));
        }
        print_line(&table.to_string());
    }

    /// Prints one object: a line per member, or the document.
    pub(crate) fn object(self, document: &Value) {
        match (self, document.as_object()) {
            (Self::Table, Some(members)) => {
                for (name, value) in members {
                    print_line(&format!("{name}: {}", cell(value)));
                }
            }
            _ => print_line(&document.to_string()),
        }
    }
}

impl Output {
    /// Says why a command failed, beside its results.
    pub(crate) fn failure(self, failure: &Failure) {
        match self {
            Self::Table => eprintln!("snavio: {failure}"),
            Self::Json => eprintln!("{}", failure.document()),
        }
    }
}

/// Prints a line.
pub(crate) fn print_line(line: &str) {
    print_text(&format!("{line}\n"));
}

/// Prints a text. Whoever reads may have seen enough (`| head`) and left; that nothing can be written for another
/// reason must not go unnoticed.
pub(crate) fn print_text(text: &str) {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("snavio: cannot write the result: {error}");
            std::process::exit(1);
        }
        _ => {}
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
