//! Verifies that the changelog is as it was sealed (REG-5), and finds the first fault otherwise.

use std::collections::VecDeque;

use super::chain::{Digest, PublicKey, Seal, Skipped};
use super::evidence::Evidence;

/// A fault of a changelog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A version has no change.
    #[error("change {version} is missing: it was removed from the changelog")]
    ChangeMissing { version: i64 },
    /// The digest of a change differs from the one in its seal.
    #[error("change {version} is not as it was sealed: it was altered")]
    ChangeAltered { version: i64 },
    /// A change is at the position of another one.
    #[error("the change that was sealed as {version} now stands at {found_at}: their order was changed")]
    ChangeMoved {
        /// The version with which it was sealed.
        version: i64,
        /// The version that it has now.
        found_at: i64,
    },
    /// A change exists although its version is noted as skipped.
    #[error("change {version} is among versions that are said to have been skipped by a restore")]
    ChangeSkipped { version: i64 },
    /// The noted skipped versions go beyond the registry.
    #[error(
        "the versions up to {last} are said to have been skipped by a restore, and the registry is at {version}"
    )]
    SkippedTooFar {
        /// The last version that is noted as skipped.
        last: i64,
        /// The version of the registry.
        version: i64,
    },
    /// A number has no seal.
    #[error("seal {number} is missing: it was removed from the chain")]
    SealMissing { number: i64 },
    /// The content of a seal differs from the signed one, or does not follow the previous seal.
    #[error("seal {number} is not as it was signed: it was altered")]
    SealAltered { number: i64 },
    /// The seal fits its changes, but was not signed with the named key.
    #[error(
        "seal {number} fits its changes but its signature does not hold: the chain was rewritten without the key"
    )]
    SignatureWrong { number: i64 },
    /// The seal was signed with a key that is not trusted.
    #[error(
        "seal {number} is signed with the key {key}, which is not trusted: the chain was rewritten with another key, or the platform key was changed and the older public key was not named"
    )]
    KeyUnknown { number: i64, key: PublicKey },
    /// The chain does not contain a head that was noted earlier.
    #[error("no seal has the head {head} that was noted before: the chain was cut off or rewritten since")]
    HeadMissing {
        /// The noted head.
        head: Digest,
    },
}

impl Fault {
    /// The code of the fault in reports.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ChangeMissing { .. } => "change_missing",
            Self::ChangeAltered { .. } => "change_altered",
            Self::ChangeMoved { .. } => "change_moved",
            Self::ChangeSkipped { .. } => "change_skipped",
            Self::SkippedTooFar { .. } => "skipped_too_far",
            Self::SealMissing { .. } => "seal_missing",
            Self::SealAltered { .. } => "seal_altered",
            Self::SignatureWrong { .. } => "signature_wrong",
            Self::KeyUnknown { .. } => "key_unknown",
            Self::HeadMissing { .. } => "head_missing",
        }
    }
}

/// The result for a sound changelog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Number of seals in the chain.
    pub seals: i64,
    /// The head of the last seal. Note it elsewhere, and compare the chain with it later.
    pub head: Option<Digest>,
    /// The last version that a seal covers.
    pub sealed_version: i64,
    /// The last version with a change. Versions after the last sealed one are not sealed yet.
    pub version: i64,
    /// Versions that restores of the store skipped.
    pub skipped: Vec<Skipped>,
}

impl Verified {
    /// The first and the last version without a seal; `None` if all are sealed.
    pub fn unsealed(&self) -> Option<(i64, i64)> {
        (self.version > self.sealed_version).then_some((self.sealed_version + 1, self.version))
    }
}

/// Verifies a chain and its changes side by side, seal by seal. It holds at most one of them in memory.
#[derive(Debug)]
pub struct Verifier {
    keys: Vec<PublicKey>,
    /// A head that was noted earlier and has not occurred yet.
    noted: Option<Digest>,
    /// Digests of changes that the last seal covers and that have not been added yet.
    sealed: VecDeque<Digest>,
    /// Versions noted as skipped, which may not be sealed yet.
    skips: Vec<Skipped>,
    result: Verified,
}

impl Verifier {
    /// Trusts these keys, and expects the noted head somewhere in the chain. For versions skipped after the
    /// last seal it relies on the notes of the store.
    pub fn new(keys: Vec<PublicKey>, noted: Option<Digest>, skips: Vec<Skipped>) -> Self {
        Self { keys, noted, sealed: VecDeque::new(), skips, result: Verified::default() }
    }

    /// Whether the next input must be a change.
    pub fn wants_changes(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// The version of the last change.
    pub fn version(&self) -> i64 {
        self.result.version
    }

    /// Adds the next seal, after all changes of the previous one.
    pub fn seal(&mut self, seal: &Seal) -> Result<(), Fault> {
        if self.wants_changes() {
            return Err(Fault::ChangeMissing { version: self.result.version + 1 });
        }
        let number = self.result.seals + 1;
        if seal.number != number {
            return Err(Fault::SealMissing { number });
        }
        let altered = Fault::SealAltered { number };
        let signed = seal.signed().ok_or_else(|| altered.clone())?;
        let head = seal.head_digest().ok_or_else(|| altered.clone())?;
        if !self.keys.contains(&signed.key) {
            return Err(Fault::KeyUnknown { number, key: signed.key });
        }
        let fits = head == seal.head_over(self.result.head, &signed.digests);
        match (fits, signed.holds(head)) {
            (true, true) if seal.first_version == self.result.sealed_version + 1 => {}
            (true, false) => return Err(Fault::SignatureWrong { number }),
            _ => return Err(altered),
        }
        self.noted = self.noted.filter(|noted| *noted != head);
        if signed.digests.is_empty() {
            self.add_skipped(Skipped { first: seal.first_version, last: seal.last_version });
        }
        self.sealed = signed.digests.into();
        self.result.seals = number;
        self.result.head = Some(head);
        self.result.sealed_version = seal.last_version;
        Ok(())
    }

    /// Adds the next change: one that the last seal covers, or, after the last seal, an unsealed one.
    pub fn change(&mut self, change: &Evidence) -> Result<(), Fault> {
        self.add_noted_skips();
        let version = self.result.version + 1;
        if change.version < version {
            return Err(Fault::ChangeSkipped { version: change.version });
        }
        if change.version != version {
            return Err(Fault::ChangeMissing { version });
        }
        if self.sealed.front().is_some_and(|digest| *digest != change.digest()) {
            let mut sealed = (version..).zip(&self.sealed);
            let own = sealed.find(|(as_version, digest)| change.digest_as(*as_version) == **digest);
            return Err(match own {
                Some((own, _)) => Fault::ChangeMoved { version: own, found_at: version },
                None => Fault::ChangeAltered { version },
            });
        }
        self.sealed.pop_front();
        self.result.version = version;
        Ok(())
    }

    /// Ends the verification of a registry at this version.
    pub fn end(mut self, version: i64) -> Result<Verified, Fault> {
        self.add_noted_skips();
        // Only the last skip can go too far, because no change happens during a restore.
        if let Some(Skipped { last, .. }) = self.result.skipped.last().filter(|skip| skip.last > version) {
            return Err(Fault::SkippedTooFar { last: *last, version });
        }
        if self.wants_changes() || self.result.version < version {
            return Err(Fault::ChangeMissing { version: self.result.version + 1 });
        }
        match self.noted {
            Some(head) => Err(Fault::HeadMissing { head }),
            None => Ok(self.result),
        }
    }
}

impl Verifier {
    fn add_skipped(&mut self, skipped: Skipped) {
        self.result.version = skipped.last;
        self.result.skipped.push(skipped);
    }

    /// Adds the noted skips that follow the last version, outside of sealed changes.
    fn add_noted_skips(&mut self) {
        let is_next = |skipped: &&Skipped, version| skipped.first == version + 1;
        while !self.wants_changes()
            && let Some(next) = self.skips.iter().find(|skip| is_next(skip, self.result.version))
        {
            self.add_skipped(*next);
        }
    }
}

/// Verifies a whole chain and its changes, of a registry at this version.
pub fn verify(
    seals: &[Seal],
    changes: &[Evidence],
    version: i64,
    keys: &[PublicKey],
    noted: Option<Digest>,
) -> Result<Verified, Fault> {
    let mut verifier = Verifier::new(keys.to_vec(), noted, Vec::new());
    let mut changes = changes.iter();
    for seal in seals {
        verifier.seal(seal)?;
        while verifier.wants_changes()
            && let Some(change) = changes.next()
        {
            verifier.change(change)?;
        }
    }
    for change in changes {
        verifier.change(change)?;
    }
    verifier.end(version)
}

#[cfg(test)]
mod tests;
