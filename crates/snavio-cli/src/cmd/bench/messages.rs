//! Makes and signs messages before a measurement: signing is the work of the producer, not of the gateway.

use snavio_model::id::MessageId;
use snavio_model::message::command::NewCommand;
use snavio_model::name::{CommandName, TargetText};
use snavio_model::signature::signing::Secret;
use snavio_model::time::Timestamp;
use snavio_sdk::Credentials;

use super::clock;
use crate::cmd::Failure;

/// The fewest messages for one signing thread: fewer do not pay for a thread.
const CHUNK_MESSAGES_MIN: usize = 2_000;

/// The kind of message ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    /// UUIDv7: milliseconds, then random bits, like the ids of producers on many machines.
    Ordered,
    /// UUIDv4.
    Random,
}

impl Ids {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ordered => "time-ordered",
            Self::Random => "random",
        }
    }
}

/// A generator of random bits that need not be secret (SplitMix64). A system call for each id would cost more
/// than the id itself.
#[derive(Debug, Clone)]
pub(super) struct RandomBits(u64);

impl RandomBits {
    pub(super) fn new() -> Self {
        Self(u64::from_le_bytes(snavio_server::random()))
    }

    /// A generator that returns the same bits for the same seed.
    fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_le_bytes());
        bytes[8..].copy_from_slice(&self.next().to_le_bytes());
        bytes
    }
}

impl Ids {
    /// Makes the id of a message that is sent at `millis`.
    pub(super) fn make(self, millis: u64, bits: &mut RandomBits) -> uuid::Uuid {
        let random = bits.bytes();
        match self {
            Self::Random => uuid::Builder::from_random_bytes(random).into_uuid(),
            Self::Ordered => {
                let mut tail = [0; 10];
                tail.copy_from_slice(&random[..10]);
                uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid()
            }
        }
    }
}

/// Makes and signs messages of one service for one route.
#[derive(Clone)]
pub(super) struct Signer {
    credentials: Credentials,
    secret: Secret,
    target: TargetText,
    name: CommandName,
    payload: Vec<u8>,
}

impl Signer {
    pub(super) fn new(
        credentials: &Credentials,
        target: &str,
        name: &str,
        payload_bytes: usize,
    ) -> Result<Self, Failure> {
        Ok(Self {
            secret: credentials.secret()?,
            credentials: credentials.clone(),
            target: TargetText::new(target)?,
            name: CommandName::new(name)?,
            payload: payload(payload_bytes),
        })
    }

    /// Signs messages with the current time. `per_second` is the expected rate of sending: time-ordered ids
    /// get the milliseconds at which they would be sent at that rate.
    pub(super) fn prepare(&self, count: usize, ids: Ids, per_second: f64) -> Result<MessageStock, Failure> {
        self.prepare_seeded(count, ids, per_second, clock::wall(), RandomBits::new().next())
    }

    /// Like [`Self::prepare`], with the ids that follow from this seed and time.
    pub(super) fn prepare_seeded(
        &self,
        count: usize,
        ids: Ids,
        per_second: f64,
        ids_from: Timestamp,
        seed: u64,
    ) -> Result<MessageStock, Failure> {
        let now = clock::wall();
        let length = self.sign(&ids.make(0, &mut RandomBits::new()), &now.to_string())?.len();
        let mut bytes = vec![0; length * count];
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let chunk = count.div_ceil(threads).max(CHUNK_MESSAGES_MIN);
        std::thread::scope(|scope| {
            let parts = bytes.chunks_mut(chunk * length).enumerate().map(|(part, bytes)| {
                let seed = seed.wrapping_add((part as u64) << 40);
                let job = SigningJob { ids, ids_from, now, first: part * chunk, per_second, seed };
                scope.spawn(move || self.sign_all(bytes, length, &job))
            });
            let parts: Vec<_> = parts.collect();
            let results = parts
                .into_iter()
                .map(|part| part.join().map_err(|_| Failure::new("a signing thread panicked"))?);
            results.collect::<Result<(), Failure>>()
        })?;
        Ok(MessageStock { bytes, length, taken: 0 })
    }

    fn sign_all(&self, bytes: &mut [u8], length: usize, job: &SigningJob) -> Result<(), Failure> {
        let mut bits = RandomBits::seeded(job.seed);
        let timestamp = job.now.to_string();
        let start = u64::try_from(job.ids_from.0).unwrap_or(0);
        for (index, slot) in bytes.chunks_exact_mut(length).enumerate() {
            let after = (job.first + index) as f64 * 1000.0 / job.per_second;
            let id = job.ids.make(start + after as u64, &mut bits);
            slot.copy_from_slice(&self.sign(&id, &timestamp)?);
        }
        Ok(())
    }

    fn sign(&self, id: &uuid::Uuid, timestamp: &str) -> Result<Vec<u8>, Failure> {
        let mut buffer = uuid::Uuid::encode_buffer();
        let id = MessageId::stored(id.hyphenated().encode_lower(&mut buffer));
        let command = NewCommand {
            id: &id,
            timestamp,
            version_id: &self.credentials.hmac_version,
            source: &self.credentials.source,
            target: &self.target,
            name: &self.name,
            payload: &self.payload,
            correlation_id: None,
        };
        Ok(command.sign(&self.secret)?)
    }
}

/// The messages that one thread signs.
struct SigningJob {
    ids: Ids,
    /// The time in the first id of all jobs.
    ids_from: Timestamp,
    now: Timestamp,
    /// The index of the job's first message among the messages of all jobs.
    first: usize,
    per_second: f64,
    seed: u64,
}

/// Signed messages of one length, each to send once.
pub(super) struct MessageStock {
    bytes: Vec<u8>,
    length: usize,
    taken: usize,
}

impl MessageStock {
    pub(super) fn message_bytes(&self) -> usize {
        self.length
    }

    /// Takes the next messages; none if fewer than `count` are left.
    pub(super) fn take(&mut self, count: usize) -> Option<std::slice::ChunksExact<'_, u8>> {
        let (from, to) = (self.taken * self.length, (self.taken + count) * self.length);
        let messages = self.bytes.get(from..to)?;
        self.taken += count;
        Some(messages.chunks_exact(self.length))
    }
}

impl Signer {
    /// A signer for the same route with a different payload of the same length.
    pub(super) fn with_other_content(&self) -> Self {
        let mut other = self.clone();
        if let Some(last) = other.payload.iter_mut().rev().nth(2) {
            *last = b'x';
        }
        other
    }
}

/// A JSON object of twelve members and of `bytes` bytes, or its least size if that is larger.
pub(super) fn payload(bytes: usize) -> Vec<u8> {
    let least = payload_text("").len();
    payload_text(&"n".repeat(bytes.saturating_sub(least))).into_bytes()
}

fn payload_text(note: &str) -> String {
    format!(
        r#"{{"order":"o-20481","customer":"c-7719","amount":1299,"currency":"EUR","items":[{{"sku":"a-1","count":2}},{{"sku":"b-7","count":1}}],"paid":true,"channel":"web","country":"DE","discount":0.15,"express":false,"tags":["new","gift"],"note":"{note}"}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_has_the_requested_size() {
        assert_eq!(payload(400).len(), 400);
        assert!(serde_json::from_slice::<serde_json::Value>(&payload(1)).is_ok());
    }

    #[test]
    fn ordered_ids_rise_and_random_ids_are_version_4() {
        let mut bits = RandomBits::new();
        let (early, late) = (Ids::Ordered.make(1000, &mut bits), Ids::Ordered.make(1001, &mut bits));
        assert!(early < late);
        assert_eq!((early.get_version_num(), Ids::Random.make(0, &mut bits).get_version_num()), (7, 4));
    }

    #[test]
    fn stock_yields_each_message_once() {
        let mut stock = MessageStock { bytes: b"aabbcc".to_vec(), length: 2, taken: 0 };
        assert_eq!(stock.take(2).unwrap().collect::<Vec<_>>(), [b"aa", b"bb"]);
        assert!(stock.take(2).is_none());
        assert_eq!(stock.take(1).unwrap().collect::<Vec<_>>(), [b"cc"]);
    }
}
