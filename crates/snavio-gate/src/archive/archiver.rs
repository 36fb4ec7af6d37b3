//! Moves what has cooled, for all nodes of a store: copy, verify, then point to it and delete, in bounded steps (CLM-18).
//! It takes no input and may run at any time, twice, anywhere: what was written and not pointed to is written again as
//! the same object, or ends after an hour; what was written and is pointed to only in part is written again without the rest.

use std::sync::Arc;
use std::time::Duration;

use snavio_model::archive::{Record, segment};
use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_model::time::Timestamp;
use snavio_store::NewSegment;
use tokio::time::MissedTickBehavior;

use super::{Archive, Trouble, are_unkept};
use crate::Gate;

/// How often it is looked for what has cooled.
const LOOKING: Duration = Duration::from_secs(30);
/// How long a node moves for all before it is asked again whether it lives.
const TERM: Duration = Duration::from_secs(60);
/// Objects that are deleted in one step.
const DELETED_AT_ONCE: usize = 100;
const UNUSABLE: &str = "the archive cannot be used";

/// The task of one node that moves for all.
const TASK: &str = "archiver";

/// Moves what has cooled, for as long as the gate lives.
pub(crate) async fn archive(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(LOOKING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_known = false;
    loop {
        tick.tick().await;
        let mut round = None;
        // By a time that is not to be trusted, what is hot would be moved and what is kept deleted.
        while !gate.holds_sweeps() && gate.leads(TASK, TERM).await {
            let done = gate.archive_once().await;
            round = Some(done);
            if !done.is_partial {
                break;
            }
        }
        // Who does not lead may do so next, and erase at any time: a wrong archive is told of at the start.
        is_known = is_known
            || match round {
                Some(Round { failures, .. }) => failures == 0,
                None => gate.knows_archive().await,
            };
        if let Ok(archive) = gate.archive() {
            archive.reading.forget_old();
        }
    }
}

/// What one round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// Records that moved.
    pub moved: usize,
    /// Segments that were written again without what nothing points to.
    pub rewritten: usize,
    /// Objects that were deleted.
    pub deleted: usize,
    /// Things that went wrong.
    pub failures: usize,
    /// Whether there is more to do at once.
    pub is_partial: bool,
}

impl Gate {
    /// Moves what has cooled and deletes what nothing points to any more, in a bounded number of steps. What goes wrong is
    /// counted and told, and tried again the next time (CLM-17).
    pub async fn archive_once(&self) -> Round {
        let mut round = Round::default();
        match self.own_archive().await {
            Ok(archive) => {
                let moved = self.move_cooled(archive, &mut round).await;
                failed(moved, &mut round, "what has cooled was not moved to the archive");
                if round.moved == 0 && round.failures == 0 {
                    failed(archive.prove().await, &mut round, UNUSABLE);
                }
                let rewritten = self.tighten(archive, &mut round).await;
                failed(rewritten, &mut round, "what nothing points to was not taken out of segments");
                let deleted = self.delete_spent(archive, &mut round).await;
                failed(deleted, &mut round, "what nothing points to was not deleted from the archive");
            }
            Err(trouble) => failed(Err(trouble), &mut round, UNUSABLE),
        }
        match self.store().archive_backlog(self.clock().now()).await {
            Ok(backlog) => metrics::gauge!("events_archive_backlog").set(backlog as f64),
            Err(error) => failed(Err(error.into()), &mut round, "what has cooled was not counted"),
        }
        round.is_partial &= round.failures == 0;
        round
    }

    /// The archive, if it is the one of this store.
    async fn own_archive(&self) -> Result<&Arc<Archive>, Trouble> {
        let archive = self.archive()?;
        archive.identify(&**self.store()).await?;
        Ok(archive)
    }

    async fn knows_archive(&self) -> bool {
        let mut round = Round::default();
        failed(self.own_archive().await.map(|_| ()), &mut round, UNUSABLE);
        round.failures == 0
    }

    async fn move_cooled(&self, archive: &Archive, round: &mut Round) -> Result<(), Trouble> {
        let now = self.clock().now();
        for _ in 0..bounds::ARCHIVE_SEGMENTS_PER_ROUND {
            let after = archive.progress().cooled;
            let cooled = self.store().cooled(after, now).await?;
            let mut left = vec![cooled.records];
            while let Some(records) = left.pop().filter(|it| !it.is_empty()) {
                match self.move_some(archive, records, now).await {
                    Ok(Moved::All(moved)) => round.moved += moved,
                    Ok(Moved::Halved(first, second)) => left.extend([second, first]),
                    // One that is too large, or is not read back as it is, does not keep the others.
                    Err(one @ (Trouble::TooLarge { .. } | Trouble::Unkept { .. } | Trouble::Fault(_))) => {
                        failed(Err(one), round, "a message was not moved to the archive");
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

    /// Copies records into one segment, verifies it, points to it and deletes what moved.
    async fn move_some(
        &self,
        archive: &Archive,
        records: Vec<Record>,
        now: Timestamp,
    ) -> Result<Moved, Trouble> {
        let unkept = |number| Trouble::Unkept { number };
        let Some(segment) = segment::write(&records) else { return halved(records, unkept) };
        if segment.text.len() > bounds::ARCHIVE_SEGMENT_BYTES_MAX {
            return halved(records, |number| Trouble::TooLarge { number });
        }
        let last = records.iter().flat_map(|it| &it.claims).map(|it| it.expires_at).max();
        let expires_at = last.unwrap_or(now);
        let new = NewSegment { object: segment.key.clone(), records: records.len(), expires_at };
        if !self.store().begin_segment(new, now).await? {
            // It is being deleted: what belongs in it goes the next time.
            return Ok(Moved::All(0));
        }
        match archive.put(&segment, &records).await {
            Err(Trouble::Fault(_)) if are_unkept(&segment, &records) => return halved(records, unkept),
            put => put?,
        }
        let pointed = records.into_iter().zip(segment.pointers).collect();
        Ok(Moved::All(self.store().moved(pointed, now).await?))
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
            // Another node may have taken over meanwhile.
            if !self.leads(TASK, TERM).await {
                return Ok(());
            }
            match self.delete_ended(archive, object).await {
                Ok(deleted) => round.deleted += usize::from(deleted),
                // One that cannot be deleted does not keep the others.
                Err(trouble) => {
                    failed(Err(trouble), round, "what nothing points to was not deleted from the archive");
                }
            }
        }
        round.is_partial |= last.is_some();
        Ok(())
    }
}

/// What became of records that were to be moved.
enum Moved {
    /// So many moved; the others changed meanwhile.
    All(usize),
    /// They do not go into one segment.
    Halved(Vec<Record>, Vec<Record>),
}

fn halved(mut records: Vec<Record>, alone: impl FnOnce(Serial) -> Trouble) -> Result<Moved, Trouble> {
    if let [one] = records.as_slice() {
        return Err(alone(one.number));
    }
    let second = records.split_off(records.len() / 2);
    Ok(Moved::Halved(records, second))
}

pub(super) fn failed(done: Result<(), Trouble>, round: &mut Round, what: &'static str) {
    if let Err(trouble) = done {
        round.failures += 1;
        metrics::counter!("events_archive_failures_total").increment(1);
        tracing::warn!(error = &trouble as &dyn std::error::Error, "{what}");
    }
}
