//! Printing: tables for people, JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use comfy_table::Table;
use comfy_table::presets::{NOTHING, UTF8_HORIZONTAL_ONLY};
use serde_json::Value;
use serde_json::value::RawValue;

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
        table.set_header(columns.iter().map(|column| column.replace('_', " ")));
        for item in items {
            table.add_row(columns.iter().map(|column| cell(&item[*column])));
        }
        print_line(&rendered(table));
    }

    /// Prints an answer's warnings, a line for each; the document has them in any case.
    pub(crate) fn warnings(self, document: &Value) {
        let warnings = document["warnings"].as_array().into_iter().flatten().filter(|_| self == Self::Table);
        warnings.for_each(|warning| print_line(&format!("warning: {}", cell(warning))));
    }

    /// Prints a list: its items as rows, or the whole document.
    pub(crate) fn list(self, document: &Value, columns: &[&str]) {
        let items = document["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        self.rows(document, items, columns);
    }

    /// Prints one object: a line per member, or the document. A text of several lines is below its name, further in.
    pub(crate) fn object(self, document: &Value) {
        match (self, document.as_object()) {
            (Self::Table, Some(members)) => {
                for (name, value) in members {
                    match value.as_str().filter(|it| it.contains('\n')) {
                        Some(lines) => {
                            print_line(&format!("{name}:"));
                            print_lines(lines);
                        }
                        None => print_line(&format!("{name}: {}", cell(value))),
                    }
                }
            }
            _ => print_line(&document.to_string()),
        }
    }
}

impl Output {
    /// Prints one object whose numbers may be somebody else's, with all their digits: a line per member, or the document.
    pub(crate) fn object_as_it_came(self, text: &str) {
        match (self, serde_json::from_str::<BTreeMap<String, &RawValue>>(text)) {
            (Self::Table, Ok(members)) => {
                for (name, value) in members {
                    match serde_json::from_str::<String>(value.get()) {
                        Ok(text) => self.object(&Value::from_iter([(name, text)])),
                        Err(_) if value.get() == "null" => print_line(&format!("{name}: ")),
                        Err(_) => print_line(&format!("{name}: {}", on_a_line(&compact(value.get())))),
                    }
                }
            }
            _ => match serde_json::from_str::<&RawValue>(text) {
                Ok(document) => print_line(&compact(document.get())),
                Err(_) => print_line(&Value::from(text).to_string()),
            },
        }
    }
}

/// A member of an object with all its digits, if it is there.
pub(crate) fn member_as_it_came(text: &str, name: &str) -> Option<String> {
    let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok()?;
    members.get(name).map(|it| it.get()).filter(|it| *it != "null").map(|it| on_a_line(&compact(it)))
}

/// JSON without white space between its parts, and otherwise as it came.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let is_part = |c: &char| {
        if in_string {
            (in_string, escaped) = (escaped || *c != '"', !escaped && *c == '\\');
            return true;
        }
        in_string = *c == '"';
        !c.is_ascii_whitespace()
    };
    json.trim().chars().filter(is_part).collect()
}

impl Output {
    /// Says why a command failed, beside its results.
    pub(crate) fn failure(self, failure: &Failure) {
        match self {
            Self::Table => print_error(format_args!("snavio: {failure}")),
            Self::Json => print_error(failure.document()),
        }
    }
}

/// Prints a line.
pub(crate) fn print_line(line: &str) {
    print_text(&format!("{line}\n"));
}

/// Prints the lines of a text, further in than what they belong to.
pub(crate) fn print_lines(text: &str) {
    text.lines().for_each(|line| print_line(&format!("  {}", on_a_line(line))));
}

/// Prints a text.
pub(crate) fn print_text(text: &str) {
    print_bytes(text.as_bytes());
}

/// Prints bytes as they are. Whoever reads may have seen enough (`| head`) and left; that nothing can be written for another
/// reason must not go unnoticed.
pub(crate) fn print_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            print_error(format_args!("snavio: cannot write the result: {error}"));
            std::process::exit(1);
        }
        Err(_) => READER_GONE.store(true, Ordering::Relaxed),
        Ok(()) => {}
    }
}

/// Whether the reader closed the output before everything was printed.
static READER_GONE: AtomicBool = AtomicBool::new(false);

/// Whether the reader of standard output left before everything was printed. A command must then not act as if the
/// reader had it.
pub(crate) fn is_reader_gone() -> bool {
    READER_GONE.load(Ordering::Relaxed)
}

/// Prints a line to standard error, if somebody reads it: `eprintln!` panics if nobody does.
pub(crate) fn print_error(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// JSON on as many lines as it has values, and otherwise as it came: numbers keep their digits.
pub(crate) fn indented(json: &str) -> String {
    const STEP: &str = "  ";
    let (mut text, mut depth, mut in_string, mut escaped) = (String::new(), 0, false, false);
    let mut rest = json.chars().peekable();
    while let Some(c) = rest.next() {
        if in_string {
            text.push(c);
            (in_string, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        match c {
            ' ' | '\t' | '\r' | '\n' => {}
            '{' | '[' => {
                text.push(c);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                match rest.next_if(|it| matches!(it, '}' | ']')) {
                    Some(end) => text.push(end),
                    None => {
                        depth += 1;
                        text.push_str(&format!("\n{}", STEP.repeat(depth)));
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                text.push_str(&format!("\n{}{c}", STEP.repeat(depth)));
            }
            ',' => text.push_str(&format!(",\n{}", STEP.repeat(depth))),
            ':' => text.push_str(": "),
            _ => {
                in_string = c == '"';
                text.push(c);
            }
        }
    }
    text
}

/// A value as text.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => on_a_line(text),
        other => on_a_line(&other.to_string()),
    }
}

/// A table with borders on a terminal, and without them where a program reads it.
pub(crate) fn rendered(mut table: Table) -> String {
    if std::io::stdout().is_terminal() {
        table.load_style(UTF8_HORIZONTAL_ONLY);
        return table.to_string();
    }
    table.load_style(NOTHING);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// Whatever was sent stays on its line and cannot steer the terminal.
pub(crate) fn on_a_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-5
    #[test]
    fn what_a_processor_answered_keeps_its_digits() {
        let text = r#" { "response" : {"ref": 2026.10, "n":[ 123456789012345678901234567890 ], "t": "a \" b"},"e":null } "#;
        assert_eq!(
            compact(text),
            r#"{"response":{"ref":2026.10,"n":[123456789012345678901234567890],"t":"a \" b"},"e":null}"#
        );
        let response = r#"{"ref":2026.10,"n":[123456789012345678901234567890],"t":"a \" b"}"#;
        assert_eq!(member_as_it_came(text, "response").as_deref(), Some(response));
        assert_eq!(member_as_it_came(text, "e"), None);
        assert_eq!(member_as_it_came("<html>", "e"), None);
    }

    /// CLM-14
    #[test]
    fn json_is_set_out_in_lines_and_keeps_its_digits() {
        let text = r#"{"a": 1.00000000000000000000000000000001,"b":[ ],"c":{},"d":["x, \"y\\",{"e":null}]}"#;
        let lines = [
            "{",
            "  \"a\": 1.00000000000000000000000000000001,",
            "  \"b\": [],",
            "  \"c\": {},",
            "  \"d\": [",
            "    \"x, \\\"y\\\\\",",
            "    {",
            "      \"e\": null",
            "    }",
            "  ]",
            "}",
        ];
        assert_eq!(indented(text).lines().collect::<Vec<_>>(), lines);
    }
}
