//! The source of a CloudEvent: a URI, or the plain name of the service.

use crate::name::{ServiceName, TargetText};

/// A source as sent. [`Source::names`] checks whether it names the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source(String);

/// The rule for sources, as refusals state it.
pub(super) const SOURCE_RULE: &str = "must be a URI reference (RFC 3986) that is not empty";

impl Source {
    /// Takes a URI reference that is not empty.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty() && is_uri_text(text)).then(|| Self(text.to_owned()))
    }

    /// The source as sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the source is a name in the form of native events, and no URI. Deliveries then carry the full
    /// name instead, because a service's name alone means another service in every tenant.
    pub fn is_plain(&self) -> bool {
        TargetText::new(&self.0).is_ok()
    }

    /// Whether the source names this service (MSG-5): as `tenant/service`, as `service` alone, or as a URI
    /// with a path that begins with tenant and service, such as `https://ci.example/acme/shop/builds/7` or
    /// `urn:acme:shop`. A path that begins with another service's name does not count, because some readers
    /// only look at the beginning.
    pub fn names(&self, service: &ServiceName) -> bool {
        if self.is_plain() {
            return self.0 == service.as_str() || self.0 == service.service();
        }
        let path = path(&self.0);
        let parts: Vec<_> = path.strip_prefix('/').unwrap_or(path).split(['/', ':']).collect();
        // A reader that resolves dots would read another name.
        let is_dotted =
            |part: &&str| matches!(*part, "." | "..") || part.to_ascii_lowercase().contains("%2e");
        let own = [service.tenant(), service.service()];
        !parts.iter().any(is_dotted) && parts.starts_with(&own)
    }
}

/// The rule for absolute URIs, as refusals state it.
pub(super) const URI_RULE: &str =
    "must be an absolute URI (RFC 3986), such as https://schemas.example/order/1";

/// Whether a text is a URI with a scheme.
pub(super) fn is_absolute_uri(text: &str) -> bool {
    is_uri_text(text) && scheme(text).is_some_and(|(_, rest)| !rest.is_empty())
}

/// Whether all characters may occur in a URI, and every percent sign has its two digits.
fn is_uri_text(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte);
    let is_encoded =
        |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    text.bytes().all(is_plain) && text.split('%').skip(1).all(is_encoded)
}

fn scheme(text: &str) -> Option<(&str, &str)> {
    let is_scheme = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    text.split_once(':').filter(|(scheme, _)| is_scheme(scheme))
}

/// The path, without the scheme, the host, the query and the fragment.
fn path(text: &str) -> &str {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let rest = scheme(text).map_or(text, |(_, rest)| rest);
    match rest.strip_prefix("//") {
        Some(host_and_path) => host_and_path.find('/').map_or("", |at| &host_and_path[at..]),
        None => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-5, MSG-6
    #[test]
    fn source_names_the_service_by_name_or_path() {
        let own = ServiceName::new("acme/shop").unwrap();
        for (text, names, is_plain) in [
            ("acme/shop", true, true),
            ("shop", true, true),
            ("acme/billing", false, true),
            ("billing", false, true),
            ("/acme/shop", true, false),
            ("https://ci.example/acme/shop", true, false),
            ("https://ci.example:8443/acme/shop/builds/7?x=1#y", true, false),
            ("https://ci.example:8443/base/acme/shop/builds/7", false, false),
            ("urn:acme:shop", true, false),
            ("urn:acme:shop:builds:7", true, false),
            ("urn:snavio:acme/shop", false, false),
            ("/acme/ledger/acme/shop", false, false),
            ("https://ci.example/acme/ledger/acme/shop", false, false),
            ("//ci.example/acme/shop", true, false),
            ("https://ci.example//acme/shop", false, false),
            ("snavio://acme/shop", false, false),
            ("https://acme/shop", false, false),
            ("https://ci.example/shop", false, false),
            ("https://ci.example/acme/shopping", false, false),
            ("https://ci.example/acme/billing?from=/acme/shop", false, false),
            ("https://ci.example/acme/billing#/acme/shop", false, false),
            ("/acme/shop/../billing", false, false),
            ("/acme/shop/%2E%2e/billing", false, false),
            ("/sensors/tn-1234", false, false),
            ("mailto:shop@acme.example", false, false),
        ] {
            let source = Source::new(text).unwrap();
            assert_eq!((source.names(&own), source.is_plain()), (names, is_plain), "{text}");
        }
        for text in ["", "a b", "é", "a%", "a%2", "a%zz", "a\"b", "<a>", "a\nb"] {
            assert_eq!(Source::new(text), None, "{text:?}");
        }
    }

    /// MSG-6
    #[test]
    fn schema_must_be_an_absolute_uri() {
        for (text, is_absolute) in [
            ("https://schemas.example/order/1", true),
            ("urn:schema:order", true),
            ("/order/1", false),
            ("order", false),
            ("https:", false),
            ("1a:b", false),
            ("https://a b", false),
            ("", false),
        ] {
            assert_eq!(is_absolute_uri(text), is_absolute, "{text:?}");
        }
    }
}
