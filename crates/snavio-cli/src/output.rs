//! Prints results: tables for people, JSON for programs.

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

/// The form of a command's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table or lines of text, for people.
    Table,
    /// One JSON document, for programs.
    Json,
}

impl Output {
    /// Prints items as table rows with the named members as columns, or the whole document as JSON.
    pub(crate) fn print_rows(self, document: &Value, items: &[Value], columns: &[&str]) {
        if self == Self::Json {
            return print_line(&document.to_string());
        }
        let mut table = Table::new();
        table.set_header(columns.iter().map(|column| column.replace('_', " ")));
        for item in items {
            table.add_row(columns.iter().map(|column| cell_text(&item[*column])));
        }
        print_line(&render_table(table));
    }

    /// Prints a line for each warning of a response. JSON needs no such lines: the document contains the
    /// warnings.
    pub(crate) fn print_warnings(self, document: &Value) {
        let warnings = document["warnings"].as_array().into_iter().flatten().filter(|_| self == Self::Table);
        warnings.for_each(|warning| print_line(&format!("warning: {}", cell_text(warning))));
    }

    /// Prints a list: its items as table rows, or the whole document as JSON.
    pub(crate) fn print_list(self, document: &Value, columns: &[&str]) {
        let items = document["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        self.print_rows(document, items, columns);
    }

    /// Prints one object: a line for each member, or the document as JSON. A text of several lines is
    /// indented below the name of its member.
    pub(crate) fn print_object(self, document: &Value) {
        match (self, document.as_object()) {
            (Self::Table, Some(members)) => {
                for (name, value) in members {
                    match value.as_str().filter(|text| text.contains('\n')) {
                        Some(lines) => {
                            print_line(&format!("{name}:"));
                            print_lines(lines);
                        }
                        None => print_line(&format!("{name}: {}", cell_text(value))),
                    }
                }
            }
            _ => print_line(&document.to_string()),
        }
    }
}

impl Output {
    /// Prints one JSON object without rounding its numbers, since other parties may have written them: a line
    /// for each member, or the document.
    pub(crate) fn print_object_verbatim(self, text: &str) {
        match (self, serde_json::from_str::<BTreeMap<String, &RawValue>>(text)) {
            (Self::Table, Ok(members)) => {
                for (name, value) in members {
                    match serde_json::from_str::<String>(value.get()) {
                        Ok(text) => self.print_object(&Value::from_iter([(name, text)])),
                        Err(_) if value.get() == "null" => print_line(&format!("{name}: ")),
                        Err(_) => print_line(&format!("{name}: {}", single_line(&compact_json(value.get())))),
                    }
                }
            }
            _ => match serde_json::from_str::<&RawValue>(text) {
                Ok(document) => print_line(&compact_json(document.get())),
                Err(_) => print_line(&Value::from(text).to_string()),
            },
        }
    }
}

/// The text of a member of a JSON object, if the member is present and not null. Numbers keep all digits.
pub(crate) fn raw_member(text: &str, name: &str) -> Option<String> {
    let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok()?;
    let member = members.get(name).map(|value| value.get()).filter(|text| *text != "null");
    member.map(|text| single_line(&compact_json(text)))
}

/// Removes the white space between the tokens of a JSON text. Strings and numbers stay byte for byte.
fn compact_json(json: &str) -> String {
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
    /// Prints a failure to standard error, apart from the results.
    pub(crate) fn print_failure(self, failure: &Failure) {
        match self {
            Self::Table => print_error(format_args!("snavio: {failure}")),
            Self::Json => print_error(failure.document()),
        }
    }
}

pub(crate) fn print_line(line: &str) {
    print_text(&format!("{line}\n"));
}

/// Prints the lines of a text, indented.
pub(crate) fn print_lines(text: &str) {
    text.lines().for_each(|line| print_line(&format!("  {}", single_line(line))));
}

pub(crate) fn print_text(text: &str) {
    print_bytes(text.as_bytes());
}

/// Prints bytes unchanged. A reader that closed the output early (`| head`) is no failure; any other write
/// error ends the process with exit code 1.
pub(crate) fn print_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            print_error(format_args!("snavio: cannot write the result: {error}"));
            std::process::exit(1);
        }
        Err(_) => IS_READER_GONE.store(true, Ordering::Relaxed),
        Ok(()) => {}
    }
}

static IS_READER_GONE: AtomicBool = AtomicBool::new(false);

/// Whether the reader closed standard output before everything was printed. A command must then not act as if
/// the reader had received the results.
pub(crate) fn is_reader_gone() -> bool {
    IS_READER_GONE.load(Ordering::Relaxed)
}

/// Prints a line to standard error. It ignores a closed output, on which `eprintln!` panics.
pub(crate) fn print_error(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Formats a JSON text with one value on each line. Strings and numbers stay byte for byte.
pub(crate) fn indent_json(json: &str) -> String {
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
                match rest.next_if(|next| matches!(next, '}' | ']')) {
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

/// The text of a JSON value for one cell of a table.
pub(crate) fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => single_line(text),
        other => single_line(&other.to_string()),
    }
}

/// Renders a table: with borders on a terminal, without borders for a file or a program.
pub(crate) fn render_table(mut table: Table) -> String {
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

/// Replaces control characters: a text from another party must not break the line or control the terminal.
pub(crate) fn single_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-5
    #[test]
    fn processor_responses_keep_their_digits() {
        let text = r#" { "response" : {"ref": 2026.10, "n":[ 123456789012345678901234567890 ], "t": "a \" b"},"e":null } "#;
        assert_eq!(
            compact_json(text),
            r#"{"response":{"ref":2026.10,"n":[123456789012345678901234567890],"t":"a \" b"},"e":null}"#
        );
        let response = r#"{"ref":2026.10,"n":[123456789012345678901234567890],"t":"a \" b"}"#;
        assert_eq!(raw_member(text, "response").as_deref(), Some(response));
        assert_eq!(raw_member(text, "e"), None);
        assert_eq!(raw_member("<html>", "e"), None);
    }

    /// CLM-14
    #[test]
    fn indented_json_keeps_its_digits() {
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
        assert_eq!(indent_json(text).lines().collect::<Vec<_>>(), lines);
    }
}
