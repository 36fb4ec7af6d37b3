//! Outgoing calls to addresses that others named (QUA-6): a name is resolved once, every address it stands for is
//! looked at, and the connection goes to one of those. Whoever can name an address must not reach through this node
//! what they cannot reach themselves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long a call may take as a whole, and its connection of that.
const CALL_TIME_MAX: Duration = Duration::from_secs(10);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);

/// Why a call was not made, or came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuardError {
    /// Not an address that is called.
    #[error("the address is not one that may be called: {0}")]
    Address(&'static str),
    /// The call failed.
    #[error("the call failed")]
    Call(#[from] reqwest::Error),
    /// Another status than 200.
    #[error("the answer's status is {0}, not 200")]
    Status(u16),
    /// More than is read.
    #[error("the answer is longer than 64 KiB")]
    TooLong,
}

/// Addresses that an operator allows though they are not public: `10.1.0.0/16`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: u128,
    bits: u32,
}

impl Network {
    /// Reads `address` or `address/bits`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(longest);
        if bits > longest {
            return None;
        }
        // IPv4 addresses are the last 32 bits of IPv6's.
        Some(Self { first: numbered(address), bits: bits + 128 - longest })
    }

    fn holds(self, address: IpAddr) -> bool {
        let differing = numbered(address) ^ self.first;
        differing.leading_zeros() >= self.bits
    }
}

fn numbered(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Makes outgoing calls.
pub(crate) struct Guarded {
    http: reqwest::Client,
    allowed: Arc<[Network]>,
}

impl Guarded {
    /// Calls public addresses over TLS, and those allowed also without.
    pub(crate) fn new(allowed: &[Network]) -> Result<Self, GuardError> {
        // One provider for the process; a second one asking is told so and goes on with the first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allowed: Arc<[Network]> = allowed.into();
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // A proxy would resolve names itself.
            .no_proxy()
            .dns_resolver(Guard { allowed: Arc::clone(&allowed) })
            // A connection that is kept would outlive what its address was judged by.
            .pool_max_idle_per_host(0)
            .timeout(CALL_TIME_MAX)
            .connect_timeout(CONNECT_TIME_MAX)
            .build()?;
        Ok(Self { http, allowed })
    }

    /// Whether the address may be called, as far as can be told before its name is resolved.
    pub(crate) fn check(&self, address: &str) -> Result<Url, GuardError> {
        check_url(address, &self.allowed)
    }

    /// The answer under an address.
    pub(crate) async fn get(&self, address: &str) -> Result<Vec<u8>, GuardError> {
        let url = self.check(address)?;
        let is_plain = url.scheme() == "http";
        let mut answer = self.http.get(url).send().await?;
        // What came over plain HTTP must have come from where that is allowed, whatever the name stood for.
        let remote = answer.remote_addr().map(|it| it.ip());
        if is_plain && !remote.is_some_and(|it| is_allowed(it, &self.allowed)) {
            return Err(GuardError::Address("plain http is for addresses in outgoing.allowed"));
        }
        if answer.status() != reqwest::StatusCode::OK {
            return Err(GuardError::Status(answer.status().as_u16()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(GuardError::TooLong);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// Resolves names to addresses that may be called; one that may not spoils all others, since only the owner of a name
/// can have put it there.
struct Guard {
    allowed: Arc<[Network]>,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = Arc::clone(&self.allowed);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if let Some(bad) = found.iter().find(|it| !may_be_called(it.ip(), &allowed)) {
                let name = name.as_str();
                return Err(format!("{name} stands for {}, which may not be called", bad.ip()).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn check_url(address: &str, allowed: &[Network]) -> Result<Url, GuardError> {
    // Hosts in decimal or hexadecimal come out as the addresses they are.
    let url = Url::parse(address).map_err(|_| GuardError::Address("it is not a URL"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(GuardError::Address("it holds a user or a password"));
    }
    let host = url.host_str().ok_or(GuardError::Address("it has no host"))?;
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    if literal.is_some_and(|it| !may_be_called(it, allowed)) {
        return Err(GuardError::Address("it is not a public one; see outgoing.allowed"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if literal.map_or(!allowed.is_empty(), |it| is_allowed(it, allowed)) => Ok(url),
        _ => Err(GuardError::Address("use https")),
    }
}

fn may_be_called(address: IpAddr, allowed: &[Network]) -> bool {
    is_public(address) || is_allowed(address, allowed)
}

fn is_allowed(address: IpAddr, allowed: &[Network]) -> bool {
    allowed.iter().any(|network| network.holds(address))
}

/// Whether an address is a host on the public internet and nothing else.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    // What IANA lists as not globally reachable, and the address under which one cloud serves its hosts.
    const OTHERS: [(Ipv4Addr, u32); 17] = [
        (Ipv4Addr::new(0, 0, 0, 0), 8),
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        (Ipv4Addr::new(100, 64, 0, 0), 10),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        (Ipv4Addr::new(168, 63, 129, 16), 32),
        (Ipv4Addr::new(169, 254, 0, 0), 16),
        (Ipv4Addr::new(172, 16, 0, 0), 12),
        (Ipv4Addr::new(192, 0, 0, 0), 24),
        (Ipv4Addr::new(192, 0, 2, 0), 24),
        (Ipv4Addr::new(192, 31, 196, 0), 24),
        (Ipv4Addr::new(192, 88, 99, 0), 24),
        (Ipv4Addr::new(192, 168, 0, 0), 16),
        (Ipv4Addr::new(198, 18, 0, 0), 15),
        (Ipv4Addr::new(198, 51, 100, 0), 24),
        (Ipv4Addr::new(203, 0, 113, 0), 24),
        (Ipv4Addr::new(224, 0, 0, 0), 4),
        (Ipv4Addr::new(240, 0, 0, 0), 4),
    ];
    let within =
        |(first, bits): &(Ipv4Addr, u32)| (address.to_bits() ^ first.to_bits()).leading_zeros() >= *bits;
    !OTHERS.iter().any(within)
}

/// Only what is handed out for hosts (2000::/3), without what stands for an IPv4 address, is for documents, or for
/// protocols of their own. Mapped (::ffff:0:0/96) and translated (64:ff9b::/96, NAT64) addresses are outside of it.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let is_global = a & 0xe000 == 0x2000;
    let is_protocol = a == 0x2001 && b < 0x0200;
    let is_document = (a == 0x2001 && b == 0x0db8) || (a == 0x3fff && b < 0x1000);
    let is_6to4 = a == 0x2002;
    is_global && !is_protocol && !is_document && !is_6to4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QUA-6
    #[test]
    fn only_public_addresses_may_be_called() {
        for public in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "2a00:1450::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for other in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.9.9.9",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::101:101",
            "64:ff9b:1::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "100::1",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
        }
    }

    /// QUA-6
    #[test]
    fn addresses_are_judged_as_they_will_be_called() {
        let loopback = [Network::parse("127.0.0.0/8").unwrap()];
        for (url, by_default, with_loopback) in [
            ("https://keys.example/jwks", true, true),
            ("http://keys.example/jwks", false, true),
            ("https://1.1.1.1/", true, true),
            ("http://1.1.1.1/", false, false),
            ("https://127.0.0.1/", false, true),
            ("http://127.0.0.1:8080/", false, true),
            ("https://2130706433/", false, true),
            ("https://0x7f000001/", false, true),
            ("https://0177.0.0.1/", false, true),
            ("https://127.1/", false, true),
            ("https://[::ffff:127.0.0.1]/", false, true),
            ("https://[::1]/", false, false),
            ("https://[64:ff9b::7f00:1]/", false, false),
            ("https://169.254.169.254/latest/meta-data", false, false),
            ("https://user@keys.example/", false, false),
            ("https://user:pass@keys.example/", false, false),
            ("https://1.1.1.1@127.0.0.1/", false, false),
            ("ftp://keys.example/", false, false),
            ("file:///etc/passwd", false, false),
            ("keys.example", false, false),
            ("", false, false),
        ] {
            assert_eq!(check_url(url, &[]).is_ok(), by_default, "{url}");
            assert_eq!(check_url(url, &loopback).is_ok(), with_loopback, "{url} with loopback");
        }
    }

    /// QUA-6
    #[test]
    fn networks_hold_their_own_addresses() {
        for (network, address, held) in [
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("10.1.0.0/16", "::ffff:10.1.0.1", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe12::1", false),
        ] {
            let held_by = Network::parse(network).unwrap().holds(address.parse().unwrap());
            assert_eq!(held_by, held, "{network} {address}");
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0.0/x", "::/129", "host", "10.0.0.0/"] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }

    /// QUA-6
    #[tokio::test]
    async fn a_name_that_stands_for_this_machine_is_not_called() {
        let refused = Guarded::new(&[]).unwrap().get("https://localhost:1/").await;
        let mut told = String::new();
        let mut next: Option<&dyn std::error::Error> = refused.as_ref().err().map(|it| it as _);
        while let Some(error) = next {
            told.push_str(&format!("{error}: "));
            next = error.source();
        }
        assert!(told.contains("which may not be called"), "{told}");
    }
}
