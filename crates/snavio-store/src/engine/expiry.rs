//! What is over, and which of it may go: not what is held, and not what a conflict still needs (CLM-15, CLM-18).

use std::time::Duration;

use foldhash::{HashMap, HashSet};
use snavio_model::archive::hold::InForce;
use snavio_model::bounds;
use snavio_model::claim::{Claim, ClaimKey, IdKey};
use snavio_model::settle::Known;
use snavio_model::time::Timestamp;

use crate::api::archive::Aside;

/// Of a row of `claim`: what [`Claim::is_audited`] says, for those that are not in memory.
pub(crate) const AUDITED: &str =
    "(claim.hot_until IS NOT NULL OR claim.expires_at - claim.first_seen_at >= 220924800000)";
const _: () = assert!(bounds::LEDGER_KEEP_MIN.as_millis() == 220_924_800_000);

/// Of a row of `claim`: what [`Status::keeps_claim`](snavio_model::claim::Status::keeps_claim) says.
pub(crate) const KEEPS_CLAIM: &str = "(claim.status IN (0, 2, 4))";

/// The opposite, which an index of SQLite can say: with `NOT IN` it would build a temporary tree for each claim that is
/// inserted.
pub(crate) const EXPIRES: &str = "(claim.status IN (1, 3))";

/// Of a row of `claim`, joined with the row of its delivery: the number of what
/// [`StoredClaim::status`](crate::StoredClaim::status) says at a time that is this expression.
pub(crate) fn present_status(now: &str) -> String {
    format!(
        "CASE WHEN claim.status = 2 AND delivery.held = 'leased' AND delivery.fence IS NOT NULL \
         AND delivery.visible_at > {now} THEN 0 ELSE claim.status END"
    )
}

/// Of a row of `dead_letter`: whether a redrive of its queue puts it back. Evidence of a conflict, what was purged and those
/// with a claim in doubt never go back with others (CLM-11).
pub(crate) const REDRIVABLE: &str = "(reason NOT IN ('conflict', 'purged') AND reason NOT LIKE 'in_doubt%' \
     AND NOT EXISTS (SELECT 1 FROM claim WHERE claim.delivery = dead_letter.id AND claim.status = 4))";

/// How many dead letters of a queue, the parameter, stay because their claims are in doubt, by destination (CLM-11).
pub(crate) const DEAD_LETTERS_IN_DOUBT: &str = "SELECT dead_letter.destination, count(*) FROM dead_letter \
     JOIN claim ON claim.delivery = dead_letter.id \
     WHERE dead_letter.dead_letter_queue = $1 AND dead_letter.reason <> 'conflict' AND claim.status = 4 \
     GROUP BY dead_letter.destination";

/// Of a row of `conflict`: whether it needs what was first, at a time that is this parameter of the statement. A conflict
/// is kept for seven years of its own, and with it what it is about.
pub(crate) fn needs_original(now: &str) -> String {
    format!(
        "(conflict.state IN ('OPEN', 'TRIAGED') OR conflict.flagged_at > {now} - {})",
        bounds::LEDGER_KEEP_MIN.as_millis()
    )
}

/// How an engine finds rows by the id of a row of `claim`: what stands before the other conditions.
pub(crate) struct ById {
    /// Of `other`, a row of `claim` too.
    pub(crate) claims: &'static str,
    /// Of a row of `original`.
    pub(crate) originals: &'static str,
}

/// Of a row of `claim` whose time is over: whether it stays all the same, at a time that is this parameter. Without the
/// claim its message would not be found in the archive, and nobody would delete it when all is over. So it stays while a
/// conflict is about its message; while its id still means what that says, and no other claim leads to it; and while a
/// claim of the same message is there that does not point to the archive, such as a short-lived one that is held.
pub(crate) fn needs_claim(now: &str, by_id: &ById) -> String {
    let ById { claims, originals } = by_id;
    let same = format!(
        "{claims} other.id = claim.id AND other.tenant = claim.tenant AND other.message = claim.message"
    );
    format!(
        "({AUDITED} AND ( \
         EXISTS (SELECT 1 FROM conflict WHERE conflict.event_id = claim.id AND conflict.tenant = claim.tenant \
             AND conflict.original = claim.message AND {conflict}) \
         OR EXISTS (SELECT 1 FROM original WHERE {originals} original.id = claim.id \
             AND original.tenant = claim.tenant AND original.message = claim.message \
             AND original.expires_at > {now}) \
             AND NOT EXISTS (SELECT 1 FROM claim AS other WHERE {same} AND other.expires_at > {now} AND {audited}) \
         OR claim.archive IS NOT NULL \
             AND EXISTS (SELECT 1 FROM claim AS other WHERE {same} AND other.archive IS NULL)))",
        conflict = needs_original(now),
        audited = AUDITED.replace("claim.", "other.")
    )
}

/// A claim whose time is over must stay: its id cannot be used again. What it still means elsewhere counts on.
pub(crate) fn keep_back(
    key: &ClaimKey,
    unreadable: &mut HashSet<ClaimKey>,
    originals: &mut HashMap<IdKey, Option<Known>>,
    now: Timestamp,
) {
    let id = IdKey { id: key.id.clone(), tenant: key.tenant.clone() };
    let is_live = |known: &Option<Known>| known.as_ref().is_some_and(|it| it.original.is_live(now));
    if !originals.get(&id).is_some_and(is_live) {
        originals.insert(id, None);
    }
    unreadable.insert(key.clone());
}

/// Of a row of `claim`: whether what its id meant is kept with it, at a time that is this parameter. It is while the claim
/// holds, and for as long as somebody may put its work back: or it would answer for what the id means by then.
pub(crate) fn keeps_meaning(now: &str) -> String {
    format!("({AUDITED} OR claim.status <> 1 OR claim.expires_at > {now})")
}

/// Whether a hold is on a claim. Where that cannot be known, one is.
pub(crate) fn is_held(holds: Option<&InForce>, key: &ClaimKey) -> bool {
    holds.is_none_or(|holds| holds.on_claim(key).is_some())
}

/// What becomes of an id whose meaning is over at the destinations of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It may mean something else.
    Free,
    /// It means what it did: work under it goes on elsewhere, or has just ended there.
    Counts,
    /// Nobody can say: a claim under it is over, and must not go yet.
    Kept,
}

impl Meaning {
    /// By the claims under the id, those that the batch names aside.
    pub(crate) fn by_others(
        claims: &[(Claim, Aside)],
        named: &HashSet<ClaimKey>,
        holds: Option<&InForce>,
        now: Timestamp,
    ) -> Self {
        let others = || claims.iter().filter(|(_, aside)| !named.contains(&aside.key));
        // One that is prolonged was made under what the id meant, and answers for it.
        let goes_on = |claim: &Claim| {
            let is_kept = claim.is_audited() || claim.is_prolonged();
            claim.status().keeps_claim() || is_kept && claim.is_live(now)
        };
        if others().any(|(claim, _)| goes_on(claim)) {
            Self::Counts
        } else if others().any(|(claim, aside)| claim.is_audited() || is_held(holds, &aside.key)) {
            Self::Kept
        } else {
            Self::Free
        }
    }
}

/// How far rows whose time is over were looked through. Those that stay are not looked at again every second: only once a
/// hold was lifted, and an hour after the walk began, because a conflict may have been resolved. It always goes on to the
/// end first: whoever sets and lifts holds keeps it from nobody's rows (CLM-19).
#[derive(Debug, Clone, Default)]
pub(crate) struct Walk {
    /// When the time of the last one was over,
    up_to: Option<i64>,
    /// and how many whose time was over at that very moment stay.
    stayed: usize,
    holds: InForce,
    /// Whether rows that it has passed may go since.
    is_outdated: bool,
    began_at: Option<Timestamp>,
    is_at_end: bool,
}

/// How long what was looked through is left alone.
const LEFT_ALONE: Duration = Duration::from_secs(3600);

impl Walk {
    /// From when on, and behind how many of that moment, to go on.
    pub(crate) fn from(&mut self, holds: &InForce, now: Timestamp) -> (i64, i64) {
        if self.holds != *holds {
            // Where nothing is held, others delete the short-lived ones, and the walk leaves them aside.
            self.is_outdated |= !self.holds.is_within(holds) || self.holds.is_empty();
            self.holds = holds.clone();
        }
        let is_due = |at| now.since(at) >= LEFT_ALONE || self.is_outdated;
        if self.began_at.is_none_or(|at| self.is_at_end && is_due(at)) {
            *self = Self { holds: holds.clone(), began_at: Some(now), ..Self::default() };
        }
        (self.up_to.unwrap_or(i64::MIN), self.stayed as i64)
    }

    /// What was looked at since: of each when its time was over, and whether it stays.
    pub(crate) fn passed(&mut self, rows: impl IntoIterator<Item = (i64, bool)>, limit: usize) {
        let mut count = 0;
        for (expires_at, stays) in rows {
            if self.up_to != Some(expires_at) {
                (self.up_to, self.stayed) = (Some(expires_at), 0);
            }
            self.stayed += usize::from(stays);
            count += 1;
        }
        self.is_at_end = count < limit;
    }
}

/// The walks of a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Walks {
    pub(crate) claims: Walk,
    pub(crate) originals: Walk,
}

impl Walks {
    /// Whether there is nothing more to look at for now.
    pub(crate) fn are_at_end(&self) -> bool {
        self.claims.is_at_end && self.originals.is_at_end
    }
}

/// What a look at what is over came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Looked {
    /// How much was deleted, of whatever there was most of.
    pub(crate) deleted: usize,
    /// Whether there is more to look at.
    pub(crate) is_behind: bool,
}

#[cfg(test)]
mod tests {
    use snavio_model::archive::hold::{Held, Hold};
    use snavio_model::claim::Status;
    use snavio_model::id::Serial;

    use super::*;

    fn holds(id: i64) -> InForce {
        let tenant = "acme".parse().expect("a tenant");
        let (who, why, at) = (String::new(), String::new(), Timestamp(0));
        InForce::of([Hold { id: Serial(id), tenant, held: Held::Tenant, who, why, at, lifted: None }])
    }

    /// CLM-7, CLM-19: no sweep takes what the model calls live.
    #[test]
    fn what_keeps_its_claim_is_the_same_in_sql() {
        let numbers_of = |keeps: bool| {
            let statuses = (0..).map_while(Status::stored).filter(|status| status.keeps_claim() == keeps);
            statuses.map(|status| status.number().to_string()).collect::<Vec<_>>().join(", ")
        };
        let (kept, expiring) = (numbers_of(true), numbers_of(false));
        assert_eq!(KEEPS_CLAIM, format!("(claim.status IN ({kept}))"));
        assert_eq!(EXPIRES, format!("(claim.status IN ({expiring}))"));
        let index = "CREATE INDEX claim_by_expiry ON claim (expires_at) WHERE status";
        for (layout, condition) in [
            (include_str!("sqlite/migrations/V1__schema.sql"), format!("IN ({expiring});")),
            (include_str!("postgres/migrations/V1__schema.sql"), format!("NOT IN ({kept});")),
        ] {
            assert!(
                layout.contains(&format!("{index} {condition}")),
                "the sweep has no index without kept claims"
            );
        }
    }

    /// CLM-2
    #[test]
    fn views_show_the_status_of_lists() {
        let (waiting, taken_up) = (Status::Failed { is_final: false }, Status::Processing);
        assert_eq!((waiting.while_leased(), waiting.number(), taken_up.number()), (taken_up, 2, 0));
        for (view, clock) in [
            (include_str!("sqlite/migrations/V1__schema.sql"), "(julianday('now') - 2440587.5) * 86400000"),
            (
                include_str!("postgres/migrations/V1__schema.sql"),
                "extract(epoch FROM clock_timestamp()) * 1000",
            ),
        ] {
            let view = view.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                view.contains(&format!("CASE {} WHEN 0 THEN 'PROCESSING'", present_status(clock))),
                "{view}"
            );
        }
    }

    /// CLM-18, CLM-19: what stays is passed once, however much ends at the same moment.
    #[test]
    fn a_walk_goes_on_where_it_was_until_there_is_a_reason_to_look_again() {
        let (mut walk, one) = (Walk::default(), holds(1));
        assert_eq!(walk.from(&one, Timestamp(0)), (i64::MIN, 0));
        walk.passed([(5, false), (7, true), (7, false), (7, true)], 4);
        assert_eq!(walk.from(&one, Timestamp(9)), (7, 2), "behind those that stay");
        walk.passed([(7, true), (7, true), (7, true), (7, true)], 4);
        assert_eq!(walk.from(&one, Timestamp(9_000_000)), (7, 6), "it was not through yet");
        walk.passed([(8, true)], 4);
        assert_eq!(walk.from(&one, Timestamp(9)), (8, 1));
        walk.passed([], 4);
        assert_eq!(walk.from(&one, Timestamp(3_599_999)), (8, 1));
        assert_eq!(walk.from(&one, Timestamp(3_600_000)), (i64::MIN, 0), "an hour later");
        walk.passed([(5, true)], 4);
        assert_eq!(walk.from(&one, Timestamp(3_600_001)), (5, 1));
        assert_eq!(walk.from(&InForce::default(), Timestamp(3_600_001)), (i64::MIN, 0), "a hold was lifted");
    }

    /// CLM-19: one tenant's holds keep no other's rows from being reached.
    #[test]
    fn a_walk_goes_on_to_the_end_whoever_sets_and_lifts_holds() {
        let (mut walk, none, one) = (Walk::default(), InForce::default(), holds(1));
        walk.from(&one, Timestamp(0));
        for (up_to, holds) in [(1, &none), (2, &one), (3, &none), (4, &one)] {
            walk.passed([(up_to, true)], 1);
            assert_eq!(walk.from(holds, Timestamp(0)), (up_to, 1));
        }
        walk.passed([], 1);
        assert_eq!(walk.from(&one, Timestamp(0)), (i64::MIN, 0), "once it is through");
        walk.passed([(1, true)], 2);
        assert_eq!(walk.from(&one, Timestamp(0)), (1, 1), "and once only");
    }

    /// CLM-19: what is held in addition gives no reason to look again at what was passed.
    #[test]
    fn a_walk_does_not_begin_again_because_of_another_hold() {
        let of = |ids: &[&str]| {
            InForce::of(ids.iter().zip(1..).map(|(id, number)| {
                let held = Held::Id(snavio_model::id::MessageId::stored(id));
                let (tenant, at) = ("acme".parse().expect("a tenant"), Timestamp(0));
                Hold {
                    id: Serial(number),
                    tenant,
                    held,
                    who: String::new(),
                    why: String::new(),
                    at,
                    lifted: None,
                }
            }))
        };
        let mut walk = Walk::default();
        walk.from(&of(&["a"]), Timestamp(0));
        walk.passed([(5, true)], 2);
        assert_eq!(walk.from(&of(&["a", "b"]), Timestamp(0)), (5, 1));
        assert_eq!(walk.from(&of(&["b"]), Timestamp(0)), (i64::MIN, 0), "one was lifted");
    }
}
