//! What nodes over one store agree on and know of each other (ENG-7).

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use snavio_model::telemetry::Record;
use snavio_model::time::Timestamp;

use crate::StoreError;

/// The nodes of a store. An embedded store has one.
#[async_trait]
pub trait Fleet: Send + Sync {
    /// Writes a fact if there is none by this name, and says what it is: the first word counts.
    async fn pin(&self, name: &str, value: &str) -> Result<String, StoreError>;

    /// The fact by this name, if somebody wrote it.
    async fn pinned(&self, name: &str) -> Result<Option<String>, StoreError>;

    /// Puts another fact in the place of one, on purpose. False if it is not, or not any more, what it is taken for.
    async fn repin(&self, name: &str, from: &str, to: &str) -> Result<bool, StoreError>;

    /// What was last noted by this name.
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError>;

    /// All notes whose names begin so, by name.
    async fn notes(&self, beginning: &str) -> Result<Vec<(String, String)>, StoreError>;

    /// Notes after this name, by name, so many at most.
    async fn notes_after(&self, after: &str, limit: usize) -> Result<Vec<(String, String)>, StoreError>;

    /// Notes something in the place of what was noted before, together with telemetry, in one commit.
    async fn set_note(&self, name: &str, value: &str, records: Vec<Record>) -> Result<(), StoreError>;

    /// Moves a note on from what it is, or from nothing, together with telemetry, in one commit; false if it is
    /// something else: then nothing is written.
    async fn move_note(
        &self,
        name: &str,
        from: Option<&str>,
        to: &str,
        records: Vec<Record>,
    ) -> Result<bool, StoreError>;

    /// Forgets a note, if it is still what it is taken for; false if it is something else, or not there.
    async fn remove_note(&self, name: &str, value: &str) -> Result<bool, StoreError>;

    /// Says that a node is there and how it does, and hears what the store has to say to it.
    async fn announce(&self, node: &NodeState) -> Result<Heard, StoreError>;

    /// The nodes that are there or went without a word, by when they started.
    async fn nodes(&self) -> Result<Vec<NodeSeen>, StoreError>;

    /// Says that a node is leaving: what it led is free at once.
    async fn leave(&self, node: &str) -> Result<(), StoreError>;

    /// Whether the node does a task for all of them, from now on for `term`. Asked for again before the term is
    /// over, it stays with the node that has it.
    async fn lead(&self, task: &str, node: &str, term: Duration) -> Result<bool, StoreError>;
}

/// How a node does, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Its name, made up at its start.
    pub id: String,
    /// When it started, by its clock.
    pub started_at: Timestamp,
    /// What its clock said when it was last heard of.
    pub now: Timestamp,
    /// Where it listens.
    pub address: String,
    /// The version of its program.
    pub software: String,
    /// The registry version it works by.
    pub registry_version: i64,
    /// Messages that wait for their commit.
    pub waiting: u64,
    /// Whether it is finishing what it has and takes nothing more.
    pub draining: bool,
}

/// A node as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSeen {
    /// What it said last.
    pub state: NodeState,
    /// How long ago it was heard of.
    pub silent_for: Duration,
    /// The tasks that it does for all.
    pub leads: Vec<String>,
}

/// What the store has to say to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heard {
    /// The engine's time, where nodes go by it.
    pub now: Option<Timestamp>,
    /// Why the node cannot go on with this store, if so: another brought it to a layout that it does not know.
    pub outdated: Option<String>,
}
