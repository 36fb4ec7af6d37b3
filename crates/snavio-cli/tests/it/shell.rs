//! Runs the binary as a command: arguments in, exit code and output out.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::node::{Node, binary};

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// The output as one JSON document. Panics if there is anything else.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A folder in which commands run, without the `SNAVIO_` variables of the test's own environment.
pub(crate) struct Shell {
    pub(crate) folder: tempfile::TempDir,
    settings: Vec<(String, String)>,
}

impl Shell {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder can be made"), settings: Vec::new() }
    }

    /// A shell whose commands call the node with the operator's token.
    pub(crate) fn at(node: &Node) -> Self {
        let token = node.operator_token();
        Self::new().with("SNAVIO_URL", node.url()).with("SNAVIO_TOKEN", &token)
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> String {
        std::fs::write(self.folder.path().join(name), content).expect("a file can be written");
        self.path(name)
    }

    /// Runs `snavio` with the words of a line while its standard output is a pipe without a
    /// reader.
    pub(crate) fn run_closed(&self, line: &str) -> Ended {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let mut command = self.command(&line.split_whitespace().collect::<Vec<_>>());
        let ended = command.stdout(writer).output().expect("the binary can be run");
        let err = String::from_utf8(ended.stderr).expect("the output is UTF-8");
        Ended { code: ended.status.code(), out: String::new(), err }
    }

    /// Runs `snavio` with the words of a line while its standard output and standard error are pipes
    /// without a reader. Returns the exit code.
    pub(crate) fn run_unheard(&self, line: &str) -> Option<i32> {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let mut command = self.command(&line.split_whitespace().collect::<Vec<_>>());
        let errors = writer.try_clone().expect("a pipe can be shared");
        command.stdout(writer).stderr(errors).status().expect("the binary can be run").code()
    }

    /// Runs `snavio` with the words of a line.
    pub(crate) fn run(&self, line: &str) -> Ended {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(Path::new(binary()));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SNAVIO_")) {
            command.env_remove(name);
        }
        command.args(words).current_dir(self.folder.path()).envs(self.settings.iter().cloned());
        command
    }

    pub(crate) fn run_words(&self, words: &[&str]) -> Ended {
        let ended = self.command(words).output().expect("the binary can be run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
        Ended { code: ended.status.code(), out: text(ended.stdout), err: text(ended.stderr) }
    }
}
