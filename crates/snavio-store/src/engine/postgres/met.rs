//! What a batch meets: the claims, meanings, conflicts and entities that are there, and what of them is over.

use foldhash::{HashMap, HashMapExt, HashSet};
use futures_util::future::join3;
use snavio_model::claim::{Claim, ClaimKey, IdKey};
use snavio_model::settle::{self, Delta, Intake, Known, Recorded};
use snavio_model::time::Timestamp;

use super::client::GenericClient;
use super::pool::Trouble;
use super::{claim, conflict, entity, hold, message, original, retention};
use crate::StoreError;
use crate::engine::expiry::{Meaning, is_held, keep_back};
use crate::record::check_value::usable;

/// What is there that a batch may meet.
#[derive(Default)]
pub(super) struct Found {
    pub(super) claims: claim::Found,
    pub(super) originals: HashMap<IdKey, Option<Known>>,
    pub(super) claimed: HashSet<IdKey>,
    pub(super) conflicts: HashMap<IdKey, Vec<Recorded>>,
    pub(super) over: Over,
    pub(super) entities: entity::Found,
}

/// What is over, and makes way for what takes its place.
#[derive(Default)]
pub(super) struct Over {
    claims: Vec<(ClaimKey, Claim)>,
    meanings: Vec<IdKey>,
}

impl Over {
    /// Those that a batch replaces, and no others: one that is refused destroys nothing (CLM-18).
    pub(super) fn replaced_by(mut self, delta: &Delta) -> Self {
        if !self.claims.is_empty() {
            let new: HashSet<_> = delta.claims.iter().map(|(key, _)| key).collect();
            self.claims.retain(|(key, _)| new.contains(key));
        }
        if !self.meanings.is_empty() {
            let new: HashSet<_> = delta.originals.iter().map(|(key, _)| key).collect();
            self.meanings.retain(|key| new.contains(key));
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.meanings.is_empty()
    }

    /// Clears them away. Within a transaction. One that is held since it was judged stays in the way, and the batch is
    /// judged again.
    pub(super) async fn make_way(
        mut self,
        client: &impl GenericClient,
        now: Timestamp,
    ) -> Result<(), Trouble> {
        if !self.claims.is_empty() {
            let holds = usable(hold::in_force_to_the_end(client).await).map_err(Trouble::Refused)?;
            self.claims.retain(|(key, _)| !is_held(holds.as_ref(), key));
            claim::make_way(client, &self.claims, now).await?;
        }
        if !self.meanings.is_empty() {
            original::clear(client, &self.meanings, now).await?;
        }
        Ok(())
    }
}

pub(super) async fn found(
    client: &impl GenericClient,
    batch: &[Intake],
    now: Timestamp,
) -> Result<Found, Trouble> {
    look(client, batch, now).await?.met(client, batch, now).await
}

/// The statements of [`look`].
pub(super) fn look_queries() -> [String; 3] {
    [claim::find_query(), original::FIND.to_owned(), entity::FIND.to_owned()]
}

/// Reads what is there under the keys of a batch, in one flight.
pub(super) async fn look(
    client: &impl GenericClient,
    batch: &[Intake],
    now: Timestamp,
) -> Result<Found, Trouble> {
    let flight = client.flight(&look_queries().each_ref().map(String::as_str)).await.map_err(Trouble::of)?;
    let (claims, originals, entities) = join3(
        claim::find(&flight, batch, now),
        original::find(&flight, batch),
        entity::find(&flight, batch.iter().flat_map(Intake::entities)),
    )
    .await;
    let (claims, originals) = (claims?, originals?);
    Ok(Found { claims, originals, entities: entities?, ..Found::default() })
}

impl Found {
    /// With what must be looked at further, which is seldom.
    pub(super) async fn met(
        mut self,
        client: &impl GenericClient,
        batch: &[Intake],
        now: Timestamp,
    ) -> Result<Self, Trouble> {
        self.meet_over(client, batch, now).await?;
        for (key, claim) in settle::unmeant(batch, &self.claims.claims, &self.originals, now) {
            let first = message::find(client, claim.message).await.map_err(Trouble::Refused)?;
            let known = first.map(|it| Known::by_claim(&claim, it.message.domain_hash));
            self.originals.insert(key, known);
        }
        let conflicts = conflict::recorded(client, batch, &self.originals).await;
        self.conflicts = conflicts.map_err(Trouble::Refused)?;
        Ok(self)
    }

    /// Claims whose time is over, and what ids meant: they may make way, unless something keeps them.
    async fn meet_over(
        &mut self,
        client: &impl GenericClient,
        batch: &[Intake],
        now: Timestamp,
    ) -> Result<(), Trouble> {
        let claims = std::mem::take(&mut self.claims.over);
        let over = settle::over(batch, &self.claims.claims, &self.originals, now);
        if over.is_empty() && claims.is_empty() {
            return Ok(());
        }
        let holds = usable(hold::in_force(client).await).map_err(Trouble::Refused)?;
        let mut under: HashMap<IdKey, Vec<_>> = HashMap::new();
        let mut damaged = Vec::new();
        for claim in claim::of_ids(client, &over, "").await.map_err(Trouble::Refused)? {
            if let Err(StoreError::Damaged { key, .. }) = &claim {
                damaged.push(key.clone());
            }
            let Some((claim, aside)) = usable(claim).map_err(Trouble::Refused)? else { continue };
            let id = IdKey { id: aside.key.id.clone(), tenant: aside.key.tenant.clone() };
            under.entry(id).or_default().push((claim, aside));
        }
        let named = batch.iter().flat_map(settle::keys).collect();
        for id in over {
            let claims = under.get(&id).map_or(&[][..], Vec::as_slice);
            let meaning = match damaged.iter().any(|it| it == id.id.as_str()) {
                true => Meaning::Kept,
                false => Meaning::by_others(claims, &named, holds.as_ref(), now),
            };
            match meaning {
                Meaning::Free => self.over.meanings.push(id),
                Meaning::Counts => drop(self.claimed.insert(id)),
                Meaning::Kept => drop(self.originals.insert(id, None)),
            }
        }
        let audited: Vec<_> =
            claims.iter().filter(|(_, claim)| claim.is_audited()).map(|(key, _)| key).collect();
        let needed = retention::needed(client, &audited, now).await?;
        for (key, claim) in claims {
            if is_held(holds.as_ref(), &key) || needed.contains(&key) {
                keep_back(&key, &mut self.claims.unreadable, &mut self.originals, now);
            } else {
                self.over.claims.push((key, claim));
            }
        }
        Ok(())
    }
}
