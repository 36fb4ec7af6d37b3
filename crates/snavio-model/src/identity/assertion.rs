//! What a workload's token must say to be exchanged (REG-7). Its signature is verified elsewhere; here is what is left
//! to decide once it is known to be the issuer's.

use serde::{Deserialize, Deserializer};

use crate::bounds;
use crate::registry::Issuer;
use crate::time::Timestamp;

/// The claims of a workload's token that matter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Assertion {
    /// Who says so.
    pub iss: String,
    /// About which workload.
    pub sub: String,
    /// To whom.
    pub aud: Audience,
    /// When it ends, in seconds since 1970.
    #[serde(deserialize_with = "seconds")]
    pub exp: i64,
    /// When it was issued.
    #[serde(default, deserialize_with = "some_seconds")]
    pub iat: Option<i64>,
    /// When it begins.
    #[serde(default, deserialize_with = "some_seconds")]
    pub nbf: Option<i64>,
}

/// One audience, or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Audience {
    fn holds(&self, audience: &str) -> bool {
        match self {
            Self::One(one) => one == audience,
            Self::Many(many) => many.iter().any(|it| it == audience),
        }
    }
}

/// Why an assertion is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssertionFault {
    /// Another issuer's name.
    #[error("the assertion is not of this issuer")]
    Issuer,
    /// It was made for somebody else.
    #[error("the assertion is not meant for this platform: check its audience")]
    Audience,
    /// It names nobody.
    #[error("the assertion names no subject")]
    Subject,
    /// It was right once.
    #[error("the assertion has ended")]
    Ended,
    /// It will be right later.
    #[error("the assertion is not valid yet: check the clocks")]
    Early,
    /// What lives that long is stolen before it ends.
    #[error("the assertion is valid for too long: at most an hour")]
    TooLong,
}

/// Whether an issuer's assertion holds now. Clocks may differ a little.
pub fn check(assertion: &Assertion, issuer: &Issuer, now: Timestamp) -> Result<(), AssertionFault> {
    if assertion.iss != issuer.issuer {
        return Err(AssertionFault::Issuer);
    }
    if !assertion.aud.holds(&issuer.audience) {
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

/// Seconds, of which RFC 7519 allows fractions.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let whole = number.as_i64();
    // Larger ones are no times, and not exact.
    let rounded = || number.as_f64().filter(|it| it.abs() < 9e15).map(|it| it as i64);
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

    fn judged(claims: &Value) -> Result<(), Option<AssertionFault>> {
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
    fn an_assertion_is_taken_only_as_a_whole() {
        use AssertionFault::{Audience, Early, Ended, Issuer, Subject, TooLong};
        let right = json!({ "iss": "https://ci.example", "sub": "job", "aud": "snavio", "exp": 1_000_300, "iat": 1_000_000 });
        assert_eq!(judged(&right), Ok(()));
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
            assert_eq!(judged(&claims), expected, "{member}: {value}");
        }
        let mut without = right;
        without.as_object_mut().unwrap().remove("iat");
        assert_eq!(judged(&without), Ok(()));
        without["exp"] = 1_003_631.into();
        assert_eq!(judged(&without), some(TooLong), "counted from now");
        without.as_object_mut().unwrap().remove("exp");
        assert_eq!(judged(&without), Err(None));
    }
}
