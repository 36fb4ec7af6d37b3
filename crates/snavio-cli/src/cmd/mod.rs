//! The commands: one module each, with its arguments and its code.

pub(crate) mod ack;
pub(crate) mod adapters;
pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod bans;
pub(crate) mod bench;
pub(crate) mod claims;
mod configuration;
pub(crate) mod conflicts;
pub(crate) mod dead_letters;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod dry_run;
pub(crate) mod emit;
pub(crate) mod entities;
pub(crate) mod erase;
pub(crate) mod erasures;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod grants;
pub(crate) mod holds;
pub(crate) mod keys;
pub(crate) mod move_store;
mod pages;
pub(crate) mod platform_key;
pub(crate) mod push;
pub(crate) mod receive;
pub(crate) mod recover;
pub(crate) mod register_target;
pub(crate) mod restore;
pub(crate) mod serve;
pub(crate) mod sign;
pub(crate) mod status;
pub(crate) mod tokens;
mod unknown;

use std::fmt;
use std::path::Path;

use serde_json::{Value, json};
use snavio_sdk::ApiError;

/// The reason that a command failed, in one line with its causes.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    /// The problem document that the node returned.
    problem: Option<Value>,
    is_misuse: bool,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), problem: None, is_misuse: false }
    }

    /// The arguments of the command are wrong: the exit code is 2.
    pub(crate) fn misuse(text: impl Into<String>) -> Self {
        Self { is_misuse: true, ..Self::new(text) }
    }

    /// Appends a remedy to the text.
    pub(crate) fn with_advice(self, advice: &str) -> Self {
        Self { text: format!("{}; {advice}", self.text), ..self }
    }

    /// 1, or 2 for misuse: clap also exits with 2 if it cannot parse the arguments.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.is_misuse { 2 } else { 1 }
    }

    /// The failure as JSON: its text in `error`, and the node's problem document in `problem`.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({ "error": self.text });
        if let Some(problem) = &self.problem {
            document["problem"] = problem.clone();
        }
        document
    }

    /// A failure whose text ends with an error and all its sources.
    pub(crate) fn caused_by(text: impl Into<String>, cause: &dyn std::error::Error) -> Self {
        let mut text = text.into();
        let mut next = Some(cause);
        while let Some(error) = next {
            text = format!("{text}: {error}");
            next = error.source();
        }
        Self::new(text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        let problem = match (&error as &dyn std::error::Error).downcast_ref() {
            Some(ApiError::Refused { document, .. }) => Some(document.clone()),
            _ => None,
        };
        Self { problem, ..Self::new(text) }
    }
}

fn read_text(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::caused_by(format!("cannot read {}", file.display()), &error))
}
