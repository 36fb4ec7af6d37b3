//! The age that cached data may have (REG-14, REG-15).

use std::time::Duration;

use crate::registry::Profile;

/// A kind of cached data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cache {
    Routes,
    /// Grants, by the sensitivity profile of the route or of the grant itself.
    Grants(Profile),
    /// A revoked key must not stay valid for long (REG-12).
    Keys,
    Bans,
}

impl Cache {
    /// The name in metrics and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::Grants(_) => "grants",
            Self::Keys => "keys",
            Self::Bans => "bans",
        }
    }
}

/// The ages up to which cached data is usable, since the node last confirmed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeLimits {
    /// Below this age the data is used as is.
    pub fresh: Duration,
    /// Below this age the data is used and refreshed afterwards; from here on it is refreshed before use.
    pub stale: Duration,
    /// From this age on the data is unusable.
    pub dropped: Duration,
}

/// The permitted use of cached data, by its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Used as is.
    Fresh,
    /// Used, then refreshed in the background.
    Stale,
    /// Refreshed before use.
    Expired,
    /// Treated as absent.
    Dropped,
}

impl Phase {
    /// The name in metrics and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Expired => "expired",
            Self::Dropped => "dropped",
        }
    }
}

/// The largest reduction of a limit, in thousandths. Nodes that started together must not refresh together.
pub const JITTER_MAX: u32 = 100;

impl AgeLimits {
    const fn seconds(fresh: u64, stale: u64, dropped: u64) -> Self {
        let (fresh, stale) = (Duration::from_secs(fresh), Duration::from_secs(stale));
        Self { fresh, stale, dropped: Duration::from_secs(dropped) }
    }

    /// The limits for a kind of data. The platform sets those of routes.
    pub const fn of(cache: Cache, routes: Self) -> Self {
        match cache {
            Cache::Routes => routes,
            Cache::Grants(profile) => Self::of_profile(profile),
            Cache::Keys | Cache::Bans => Self::of_profile(Profile::Critical),
        }
    }

    /// The limits for a sensitivity profile.
    pub const fn of_profile(profile: Profile) -> Self {
        match profile {
            Profile::Critical => Self::seconds(2, 4, 5),
            Profile::Moderate => Self::seconds(10, 20, 30),
            Profile::Low => Self::seconds(30, 90, 120),
        }
    }

    /// The default limits for routes.
    pub const fn of_routes() -> Self {
        Self::seconds(60, 180, 600)
    }

    /// The limits, reduced by `thousandths`, at most [`JITTER_MAX`].
    pub fn shortened(self, thousandths: u32) -> Self {
        let less = |limit: Duration| limit * (1000 - thousandths.min(JITTER_MAX)) / 1000;
        Self { fresh: less(self.fresh), stale: less(self.stale), dropped: less(self.dropped) }
    }

    /// The phase of data of this age.
    pub fn phase(&self, age: Duration) -> Phase {
        match age {
            _ if age < self.fresh => Phase::Fresh,
            _ if age < self.stale => Phase::Stale,
            _ if age < self.dropped => Phase::Expired,
            _ => Phase::Dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REG-14, REG-15
    #[test]
    fn age_decides_the_phase() {
        use Phase::{Dropped, Expired, Fresh, Stale};
        let routes = AgeLimits::of_routes();
        let at = |cache, millis| AgeLimits::of(cache, routes).phase(Duration::from_millis(millis));
        for (cache, steps) in [
            (Cache::Grants(Profile::Critical), [2_000, 4_000, 5_000]),
            (Cache::Grants(Profile::Moderate), [10_000, 20_000, 30_000]),
            (Cache::Grants(Profile::Low), [30_000, 90_000, 120_000]),
            (Cache::Keys, [2_000, 4_000, 5_000]),
            (Cache::Bans, [2_000, 4_000, 5_000]),
            (Cache::Routes, [60_000, 180_000, 600_000]),
        ] {
            assert_eq!(at(cache, 0), Fresh, "{cache:?}");
            for (step, (before, after)) in
                steps.into_iter().zip([(Fresh, Stale), (Stale, Expired), (Expired, Dropped)])
            {
                assert_eq!((at(cache, step - 1), at(cache, step)), (before, after), "{cache:?} at {step} ms");
            }
        }
    }

    /// REG-14
    #[test]
    fn jitter_shortens_by_a_tenth_at_most_and_never_lengthens() {
        let limits = AgeLimits::of_profile(Profile::Critical);
        assert_eq!(limits.shortened(0), limits);
        let least = AgeLimits { fresh: ms(1_800), stale: ms(3_600), dropped: ms(4_500) };
        assert_eq!(limits.shortened(JITTER_MAX), least);
        assert_eq!(limits.shortened(u32::MAX), least);
        assert_eq!(limits.shortened(50).fresh, ms(1_900));
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
}
