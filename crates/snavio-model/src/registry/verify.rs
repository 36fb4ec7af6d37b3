//! Whether the changelog is as it was sealed (REG-5), and if not, what is wrong first.

use std::collections::VecDeque;

use super::chain::{Digest, PublicKey, Seal, Skipped};
use super::evidence::Evidence;

/// What is wrong with a changelog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A number is left out.
    #[error("change {version} is missing: it was removed from the changelog")]
    ChangeMissing {
        /// The version it made.
        version: i64,
    },
    /// It does not have the digest it was sealed with.
    #[error("change {version} is not as it was sealed: it was altered")]
    ChangeAltered {
        /// The version it made.
        version: i64,
    },
    /// It stands in another's place.
    #[error("the change that was sealed as {version} now stands at {found_at}: their order was changed")]
    ChangeMoved {
        /// The version it made.
        version: i64,
        /// The one it has now.
        found_at: i64,
    },
    /// It is there all the same.
    #[error("change {version} is among versions that are said to have been skipped by a restore")]
    ChangeSkipped {
        /// The version it made.
        version: i64,
    },
    /// The registry never was there.
    #[error(
        "the versions up to {last} are said to have been skipped by a restore, and the registry is at {version}"
    )]
    SkippedTooFar {
        /// The last that was skipped.
        last: i64,
        /// The registry's version.
        version: i64,
    },
    /// A number is left out.
    #[error("seal {number} is missing: it was removed from the chain")]
    SealMissing {
        /// Its number.
        number: i64,
    },
    /// Something in it is not as it was signed, or it does not follow the one before.
    #[error("seal {number} is not as it was signed: it was altered")]
    SealAltered {
        /// Its number.
        number: i64,
    },
    /// It fits its changes, and nobody with the key made it.
    #[error(
        "seal {number} fits its changes but its signature does not hold: the chain was rewritten without the key"
    )]
    SignatureWrong {
        /// Its number.
        number: i64,
    },
    /// Somebody else made it.
    #[error(
        "seal {number} is signed with the key {key}, which is not trusted: the chain was rewritten with another key, or the platform key was changed and the older public key was not named"
    )]
    KeyUnknown {
        /// Its number.
        number: i64,
        /// Whose it is.
        key: PublicKey,
    },
    /// What was noted before is not in the chain.
    #[error("no seal has the head {head} that was noted before: the chain was cut off or rewritten since")]
    HeadMissing {
        /// The head that was noted.
        head: Digest,
    },
}

impl Fault {
    /// The word for it.
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

/// What a sound changelog comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Seals of the chain.
    pub seals: i64,
    /// The head of the last one: to be noted, and held against the chain later.
    pub head: Option<Digest>,
    /// The last change that is sealed.
    pub sealed_version: i64,
    /// The last change there is: those after the last sealed one are not sealed yet.
    pub version: i64,
    /// Versions that restores of the store skipped.
    pub skipped: Vec<Skipped>,
}

impl Verified {
    /// The first and last change that no seal covers yet.
    pub fn unsealed(&self) -> Option<(i64, i64)> {
        (self.version > self.sealed_version).then_some((self.sealed_version + 1, self.version))
    }
}

/// Goes through a chain and its changes side by side, seal by seal, and holds no more than one of them.
#[derive(Debug)]
pub struct Verifier {
    keys: Vec<PublicKey>,
    /// A head that was noted before and has not come yet.
    noted: Option<Digest>,
    /// The digests of the changes that the last seal covers and that have not come yet.
    sealed: VecDeque<Digest>,
    /// What was noted as skipped, and may not be sealed yet.
    skips: Vec<Skipped>,
    so_far: Verified,
}

impl Verifier {
    /// Trusts these keys, and expects the head that was noted before somewhere in the chain. What was skipped after the
    /// last seal it takes on the store's word.
    pub fn new(keys: Vec<PublicKey>, noted: Option<Digest>, skips: Vec<Skipped>) -> Self {
        Self { keys, noted, sealed: VecDeque::new(), skips, so_far: Verified::default() }
    }

    /// Whether a change must come before the next seal.
    pub fn wants_changes(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// The last change that came.
    pub fn version(&self) -> i64 {
        self.so_far.version
    }

    /// Takes the next seal, once all changes of the one before have come.
    pub fn seal(&mut self, seal: &Seal) -> Result<(), Fault> {
        if self.wants_changes() {
            return Err(Fault::ChangeMissing { version: self.so_far.version + 1 });
        }
        let number = self.so_far.seals + 1;
        if seal.number != number {
            return Err(Fault::SealMissing { number });
        }
        let altered = Fault::SealAltered { number };
        let signed = seal.signed().ok_or_else(|| altered.clone())?;
        let head = seal.head_digest().ok_or_else(|| altered.clone())?;
        if !self.keys.contains(&signed.key) {
            return Err(Fault::KeyUnknown { number, key: signed.key });
        }
        let fits = head == seal.head_over(self.so_far.head, &signed.digests);
        match (fits, signed.holds(head)) {
            (true, true) if seal.first_version == self.so_far.sealed_version + 1 => {}
            (true, false) => return Err(Fault::SignatureWrong { number }),
            _ => return Err(altered),
        }
        self.noted = self.noted.filter(|noted| *noted != head);
        if signed.digests.is_empty() {
            self.pass(Skipped { first: seal.first_version, last: seal.last_version });
        }
        self.sealed = signed.digests.into();
        self.so_far.seals = number;
        self.so_far.head = Some(head);
        self.so_far.sealed_version = seal.last_version;
        Ok(())
    }

    /// Takes the next change: of those that the last seal covers, or, after the last seal, of those that none does.
    pub fn change(&mut self, change: &Evidence) -> Result<(), Fault> {
        self.pass_noted();
        let version = self.so_far.version + 1;
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
        self.so_far.version = version;
        Ok(())
    }

    /// Everything has come, of a registry at this version.
    pub fn end(mut self, version: i64) -> Result<Verified, Fault> {
        self.pass_noted();
        // The last: a store is restored while nobody changes anything.
        if let Some(Skipped { last, .. }) = self.so_far.skipped.last().filter(|it| it.last > version) {
            return Err(Fault::SkippedTooFar { last: *last, version });
        }
        if self.wants_changes() || self.so_far.version < version {
            return Err(Fault::ChangeMissing { version: self.so_far.version + 1 });
        }
        match self.noted {
            Some(head) => Err(Fault::HeadMissing { head }),
            None => Ok(self.so_far),
        }
    }
}

impl Verifier {
    fn pass(&mut self, skipped: Skipped) {
        self.so_far.version = skipped.last;
        self.so_far.skipped.push(skipped);
    }

    /// Goes on behind what is noted as skipped, where nothing is sealed yet.
    fn pass_noted(&mut self) {
        let is_next = |skipped: &&Skipped, version| skipped.first == version + 1;
        while !self.wants_changes()
            && let Some(next) = self.skips.iter().find(|it| is_next(it, self.so_far.version))
        {
            self.pass(*next);
        }
    }
}

/// Verifies a chain and its changes as a whole, of a registry at this version.
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
