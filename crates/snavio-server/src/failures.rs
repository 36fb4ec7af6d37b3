//! Failed authentications, counted by the address they come from, so that guessing is slow (PIP-1).

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Extensions;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::throttle::Throttle;
use snavio_model::time::Timestamp;

use crate::door::Remote;

/// Who failed how often. What is right is taken however often others at its address were wrong, but for a client's
/// secret that was guessed at from there: such a guess is not told that it was right.
#[derive(Default)]
pub(crate) struct Failures {
    by_address: Mutex<Throttle<IpAddr>>,
    /// Of registered clients only: names that anybody can make up must not fill it.
    by_client: Mutex<Throttle<(IpAddr, String)>>,
}

impl Failures {
    /// Whether a client's secret from this address is verified at all: not after too many that were wrong.
    pub(crate) fn check(&self, extensions: &Extensions, client: &str, now: Timestamp) -> Result<(), Refusal> {
        lock(&self.by_client).check(&(caller(extensions), client.to_owned()), now).map_err(throttled)
    }

    /// Counts a wrong secret of a registered client.
    pub(crate) fn count(&self, extensions: &Extensions, client: &str, now: Timestamp) {
        // What it says about waiting is asked for before the next one is verified.
        let _ = lock(&self.by_client).fail((caller(extensions), client.to_owned()), now);
    }

    /// Counts the failure and says no: that the credential is wrong, or that there were too many such.
    pub(crate) fn refuse(&self, extensions: &Extensions, now: Timestamp, detail: &'static str) -> Refusal {
        metrics::counter!("snavio_auth_failures_total").increment(1);
        match lock(&self.by_address).fail(caller(extensions), now) {
            Ok(()) => Refusal::new(Reason::Unauthenticated, detail),
            Err(wait) => throttled(wait),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn throttled(wait: Duration) -> Refusal {
    Refusal::retry(Reason::AuthThrottled, wait, "too many credentials from this address were wrong")
}

fn caller(extensions: &Extensions) -> IpAddr {
    extensions.get::<Remote>().map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |it| network(it.0))
}

/// A host has one IPv4 address, but a whole network of IPv6 addresses.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}
