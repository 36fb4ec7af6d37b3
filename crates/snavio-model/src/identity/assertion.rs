//! The rules for a workload's token that is exchanged for a token of Snavio (REG-7). Another module verifies
//! its signature; this one judges a token that is known to be the issuer's.

use serde::{Deserialize, Deserializer};

use crate::bounds;
use crate::registry::Issuer;
use crate::time::Timestamp;

/// The claims of a workload's token that the exchange uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Assertion {
    /// The issuer.
    pub iss: String,
    /// The workload.
    pub sub: String,
    pub aud: Audience,
    /// The end of validity, in seconds since 1970.
    #[serde(deserialize_with = "seconds")]
    pub exp: i64,
    /// The time of issue, in seconds since 1970.
    #[serde(default, deserialize_with = "some_seconds")]
    pub iat: Option<i64>,
    /// The start of validity, in seconds since 1970.
    #[serde(default, deserialize_with = "some_seconds")]
    pub nbf: Option<i64>,
}

/// One audience, or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn contains(&self, audience: &str) -> bool {
        match self {
            Self::One(one) => one == audience,
            Self::Many(many) => many.iter().any(|one| one == audience),
        }
    }
}

/// Why an assertion is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssertionFault {
    #[error("the assertion is from another issuer: check its iss claim")]
    Issuer,
    #[error("the assertion is for another audience: check its aud claim")]
    Audience,
    #[error("the assertion has no subject: its sub claim is empty")]
    Subject,
    #[error("the assertion has expired: request a new one")]
    Ended,
    #[error("the assertion is not valid yet: check the clocks")]
    Early,
    /// A token that lives long can be stolen before it expires.
    #[error("the assertion is valid for too long: one hour is the maximum")]
    TooLong,
}

/// Checks that an issuer's assertion is valid now. It tolerates a difference of the clocks of up to
/// [`bounds::ASSERTION_LEEWAY`].
pub fn check(assertion: &Assertion, issuer: &Issuer, now: Timestamp) -> Result<(), AssertionFault> {
    if assertion.iss != issuer.issuer {
        return Err(AssertionFault::Issuer);
    }
    if !assertion.aud.contains(&issuer.audience) {
        return Err(AssertionFault::Audience);
    }
    if assertion.sub.is_empty() {
        return Err(AssertionFault::Subject);
    }
    let leeway = bounds::ASSERTION_LEEWAY.as_secs().cast_signed();
    let now = now.0 / 1000;
    if now >= assertion.exp.saturating_add(leeway) {
        return Err(AssertionFault::Ended);
    }
    let begins = assertion.iat.into_iter().chain(assertion.nbf).max();
    if begins.is_some_and(|at| at > now.saturating_add(leeway)) {
        return Err(AssertionFault::Early);
    }
    let since = assertion.iat.unwrap_or(now);
    let longest = bounds::ASSERTION_LIFETIME_MAX.as_secs().cast_signed() + leeway;
    if assertion.exp.saturating_sub(since) > longest {
        return Err(AssertionFault::TooLong);
    }
    Ok(())
}

/// Reads seconds. RFC 7519 allows fractions.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let whole = number.as_i64();
    // Larger numbers are not times, and a double does not hold them exactly.
    let rounded = || number.as_f64().filter(|seconds| seconds.abs() < 9e15).map(|seconds| seconds as i64);
    whole.or_else(rounded).ok_or_else(|| serde::de::Error::custom("not a time"))
}

fn some_seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    seconds(from).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::registry::KeySet;

    fn judge(claims: &Value) -> Result<(), Option<AssertionFault>> {
        let issuer = Issuer {
            issuer: "https://ci.example".into(),
            audience: "snavio".into(),
            keys: KeySet::File("/keys".into()),
        };
        let assertion: Assertion = serde_json::from_value(claims.clone()).map_err(|_| None)?;
        check(&assertion, &issuer, Timestamp(1_000_000_000)).map_err(Some)
    }

    /// REG-7
    #[test]
    fn assertion_needs_every_claim_to_be_valid() {
        use AssertionFault::{Audience, Early, Ended, Issuer, Subject, TooLong};
        let right = json!({ "iss": "https://ci.example", "sub": "job", "aud": "snavio", "exp": 1_000_300, "iat": 1_000_000 });
        assert_eq!(judge(&right), Ok(()));
        let some = |fault| Err(Some(fault));
        for (member, value, expected) in [
            ("iss", json!("https://ci.example/"), some(Issuer)),
            ("iss", Value::Null, Err(None)),
            ("sub", json!(""), some(Subject)),
            ("sub", json!(7), Err(None)),
            ("aud", json!("other"), some(Audience)),
            ("aud", json!([]), some(Audience)),
            ("aud", json!(["other", "snavio"]), Ok(())),
            ("aud", Value::Null, Err(None)),
            ("exp", Value::Null, Err(None)),
            ("exp", json!("1000300"), Err(None)),
            ("exp", json!(999_971), Ok(())),
            ("exp", json!(999_970), some(Ended)),
            ("exp", json!(1_000_300.5), Ok(())),
            ("exp", json!(1_003_630), Ok(())),
            ("exp", json!(1_003_631), some(TooLong)),
            ("exp", json!(1e300), Err(None)),
            ("exp", json!(i64::MAX), some(TooLong)),
            ("iat", json!(1_000_030), Ok(())),
            ("iat", json!(1_000_031), some(Early)),
            ("iat", json!("1000000"), Err(None)),
            ("iat", json!(996_000), some(TooLong)),
            ("nbf", json!(1_000_030), Ok(())),
            ("nbf", json!(1_000_031), some(Early)),
            ("nbf", json!("0"), Err(None)),
        ] {
            let mut claims = right.clone();
            claims[member] = value.clone();
            assert_eq!(judge(&claims), expected, "{member}: {value}");
        }
        let mut without = right;
        without.as_object_mut().unwrap().remove("iat");
        assert_eq!(judge(&without), Ok(()));
        without["exp"] = 1_003_631.into();
        assert_eq!(judge(&without), some(TooLong), "counted from now");
        without.as_object_mut().unwrap().remove("exp");
        assert_eq!(judge(&without), Err(None));
    }
}
