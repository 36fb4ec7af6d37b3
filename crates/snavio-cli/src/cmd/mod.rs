//! The commands: each parses its own arguments and runs.

pub(crate) mod ack;
pub(crate) mod apply;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod dead_letters;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod emit;
pub(crate) mod get;
pub(crate) mod receive;
pub(crate) mod restore;
pub(crate) mod serve;
pub(crate) mod sign;

use std::fmt;

/// Why a command failed, in one line with its causes.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// A failure in words.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// A failure and what caused it.
    pub(crate) fn of(what: impl Into<String>, cause: &dyn std::error::Error) -> Self {
        let mut text = what.into();
        let mut next = Some(cause);
        while let Some(error) = next {
            text = format!("{text}: {error}");
            next = error.source();
        }
        Self(text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        Self(text)
    }
}
