//! Moves cooled records to the archive, for all nodes of a store, in bounded steps: copy, verify, then point
//! to the copy and delete the original (CLM-18). The task takes no input, may run at any time, twice, and on
//! any node. A segment without pointers is written again as the same object, or ends after an hour. A segment
//! with only some of its records pointed to is rewritten without the others.

use std::sync::Arc;
use std::time::Duration;

use snavio_model::archive::{Record, segment};
use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;
use snavio_store::NewSegment;
use tokio::time::MissedTickBehavior;

use super::{Archive, Trouble, are_unreadable};
use crate::Gate;

/// The interval of rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);
/// The term for which a node leads the task without renewal.
const TERM: Duration = Duration::from_secs(60);
/// Objects that are deleted in one step.
const DELETED_AT_ONCE: usize = 100;
const UNUSABLE: &str = "the archive cannot be used";

/// The name of the task that one node leads.
const TASK: &str = "archiver";

/// Runs the archiver until the gate stops.
pub(crate) async fn archive(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(ROUND_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_confirmed = false;
    loop {
        tick.tick().await;
        let mut round = None;
        // With a clock that cannot be trusted, hot records would be moved and retained records deleted.
        while !gate.holds_sweeps() && gate.leads(TASK, TERM).await {
            let done = gate.archive_once().await;
            round = Some(done);
            if !done.is_partial {
                break;
            }
        }
        // A node that does not lead may lead next, and may erase at any time. So a wrong archive is reported
        // at the start on every node.
        is_confirmed = is_confirmed
            || match round {
                Some(Round { failures, .. }) => failures == 0,
                None => gate.confirm_archive().await,
            };
        if let Ok(archive) = gate.archive() {
            archive.reader.evict_old();
        }
    }
}

/// The result of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// Records that were moved.
    pub moved: usize,
    /// Segments that were rewritten without records that no claim points to.
    pub rewritten: usize,
    pub deleted: usize,
    /// Steps that failed.
    pub failures: usize,
    /// Whether another round can continue at once.
    pub is_partial: bool,
}

impl Gate {
    /// Moves cooled records, and deletes objects without pointers, in a bounded number of steps. Failures are
    /// counted and logged, and the next round tries again (CLM-17).
    pub async fn archive_once(&self) -> Round {
        let mut round = Round::default();
        match self.confirmed_archive().await {
            Ok(archive) => {
                let moved = self.move_cooled(archive, &mut round).await;
                count_failure(moved, &mut round, "cooled records could not be moved to the archive");
                if round.moved == 0 && round.failures == 0 {
                    count_failure(archive.prove().await, &mut round, UNUSABLE);
                }
                let rewritten = self.rewrite_loose(archive, &mut round).await;
                count_failure(
                    rewritten,
                    &mut round,
                    "unreferenced records could not be removed from segments",
                );
                let deleted = self.delete_spent(archive, &mut round).await;
                count_failure(
                    deleted,
                    &mut round,
                    "unreferenced objects could not be deleted from the archive",
                );
            }
            Err(trouble) => count_failure(Err(trouble), &mut round, UNUSABLE),
        }
        match self.store().archive_backlog(self.clock().now()).await {
            Ok(backlog) => metrics::gauge!("events_archive_backlog").set(backlog as f64),
            Err(error) => count_failure(Err(error.into()), &mut round, "cooled records could not be counted"),
        }
        round.is_partial &= round.failures == 0;
        round
    }

    /// The archive, if it is this store's.
    async fn confirmed_archive(&self) -> Result<&Arc<Archive>, Trouble> {
        let archive = self.archive()?;
        archive.identify(&**self.store()).await?;
        Ok(archive)
    }

    async fn confirm_archive(&self) -> bool {
        let mut round = Round::default();
        count_failure(self.confirmed_archive().await.map(|_| ()), &mut round, UNUSABLE);
        round.failures == 0
    }

    async fn move_cooled(&self, archive: &Archive, round: &mut Round) -> Result<(), Trouble> {
        let now = self.clock().now();
        for _ in 0..bounds::ARCHIVE_SEGMENTS_PER_ROUND {
            let after = archive.progress().cooled;
            let cooled = self.store().cooled(after, now).await?;
            let mut left = vec![cooled.records];
            while let Some(records) = left.pop().filter(|records| !records.is_empty()) {
                match self.move_some(archive, records, now).await {
                    Ok(MoveResult::All(moved)) => round.moved += moved,
                    Ok(MoveResult::Split(first, second)) => left.extend([second, first]),
                    // A record that is too large or does not read back must not block the others.
                    Err(one @ (Trouble::TooLarge { .. } | Trouble::Unkept { .. } | Trouble::Fault(_))) => {
                        count_failure(Err(one), round, "a message could not be moved to the archive");
                    }
                    Err(trouble) => return Err(trouble),
                }
            }
            archive.progress().cooled = cooled.next;
            if cooled.next.is_none() {
                return Ok(());
            }
        }
        round.is_partial = round.moved > 0;
        Ok(())
    }

    /// Copies records into one segment, verifies it, points to it and deletes the originals.
    async fn move_some(
        &self,
        archive: &Archive,
        records: Vec<Record>,
        now: Timestamp,
    ) -> Result<MoveResult, Trouble> {
        let unkept = |number| Trouble::Unkept { number };
        let Some(segment) = segment::write(&records) else { return split(records, unkept) };
        if segment.text.len() > bounds::ARCHIVE_SEGMENT_BYTES_MAX {
            return split(records, |number| Trouble::TooLarge { number });
        }
        let last = records.iter().flat_map(|record| &record.claims).map(|claim| claim.expires_at).max();
        let expires_at = last.unwrap_or(now);
        let new = NewSegment { object: segment.key.clone(), records: records.len(), expires_at };
        if !self.store().begin_segment(new, now).await? {
            // The same segment is being deleted; a later round moves these records.
            return Ok(MoveResult::All(0));
        }
        match archive.put(&segment, &records).await {
            Err(Trouble::Fault(_)) if are_unreadable(&segment, &records) => return split(records, unkept),
            put => put?,
        }
        let pointed = records.into_iter().zip(segment.pointers).collect();
        Ok(MoveResult::All(self.store().moved(pointed, now).await?))
    }

    async fn delete_spent(&self, archive: &Archive, round: &mut Round) -> Result<(), Trouble> {
        let after = archive.progress().spent.clone();
        let spent = self.store().spent_segments(&after, DELETED_AT_ONCE, self.clock().now()).await?;
        let last = spent.last().filter(|_| spent.len() == DELETED_AT_ONCE);
        archive.progress().spent = last.cloned().unwrap_or_default();
        if !spent.is_empty() {
            archive.identify(&**self.store()).await?;
        }
        for object in &spent {
            // Another node may lead now.
            if !self.leads(TASK, TERM).await {
                return Ok(());
            }
            match self.delete_ended(archive, object).await {
                Ok(deleted) => round.deleted += usize::from(deleted),
                // An object that cannot be deleted must not block the others.
                Err(trouble) => {
                    count_failure(
                        Err(trouble),
                        round,
                        "unreferenced objects could not be deleted from the archive",
                    );
                }
            }
        }
        round.is_partial |= last.is_some();
        Ok(())
    }
}

/// The result of a move.
enum MoveResult {
    /// This number of records moved; the others changed meanwhile.
    All(usize),
    /// The records do not fit into one segment.
    Split(Vec<Record>, Vec<Record>),
}

fn split(mut records: Vec<Record>, alone: impl FnOnce(Serial) -> Trouble) -> Result<MoveResult, Trouble> {
    if let [one] = records.as_slice() {
        return Err(alone(one.number));
    }
    let second = records.split_off(records.len() / 2);
    Ok(MoveResult::Split(records, second))
}

pub(super) fn count_failure(done: Result<(), Trouble>, round: &mut Round, problem: &'static str) {
    if let Err(trouble) = done {
        round.failures += 1;
        metrics::counter!("events_archive_failures_total").increment(1);
        tracing::warn!(error = &trouble as &dyn std::error::Error, "{problem}");
    }
}
