//! Failed authentications, counted by the address they come from, so that guessing is slow (PIP-1).

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Extensions;
use snavio_model::limit::throttle::Throttle;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::Timestamp;

use crate::door::Remote;

/// The failures of each address. Credentials are verified first, which costs a keyed hash: a right one is taken however
/// often others from its address were wrong. Secrets are too long to be guessed, so that answer helps nobody to guess.
#[derive(Default)]
pub(crate) struct Failures(Mutex<Throttle<IpAddr>>);

impl Failures {
    /// Counts the failure and refuses it: the credential is wrong, or there were too many wrong ones.
    pub(crate) fn refuse(&self, extensions: &Extensions, now: Timestamp, detail: &'static str) -> Refusal {
        metrics::counter!("snavio_auth_failures_total").increment(1);
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).fail(caller(extensions), now) {
            Ok(()) => Refusal::new(Reason::Unauthenticated, detail),
            Err(wait) => throttled(wait),
        }
    }
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
