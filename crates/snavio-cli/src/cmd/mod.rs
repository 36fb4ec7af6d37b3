//! The commands: each parses its own arguments and runs.

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

/// Why a command failed, in one line with its causes.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    /// What the node said about it.
    problem: Option<Value>,
    is_misuse: bool,
}

impl Failure {
    /// A failure in words.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { text: what.into(), problem: None, is_misuse: false }
    }

    /// The command was not given as it must be.
    pub(crate) fn misuse(what: impl Into<String>) -> Self {
        Self { is_misuse: true, ..Self::new(what) }
    }

    /// The same failure, with something to do about it.
    pub(crate) fn with_advice(self, advice: &str) -> Self {
        Self { text: format!("{}; {advice}", self.text), ..self }
    }

    /// 1, or 2 like a command line that cannot be read.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.is_misuse { 2 } else { 1 }
    }

    /// The failure for programs: in words, and what the node said.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({ "error": self.text });
        if let Some(problem) = &self.problem {
            document["problem"] = problem.clone();
        }
        document
    }

    /// A failure and what caused it.
    pub(crate) fn of(what: impl Into<String>, cause: &dyn std::error::Error) -> Self {
        let mut text = what.into();
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

/// What a file that somebody named holds.
fn read_text(file: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::of(format!("cannot read {}", file.display()), &error);
    std::fs::read_to_string(file).map_err(failed)
}
