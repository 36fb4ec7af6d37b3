//! Access tokens: JWTs under the platform key (REG-7). Algorithm, issuer and audience are fixed: a valid
//! token begins with the one header that this platform writes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::name::ServiceName;
use crate::time::Timestamp;

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const ISSUER: &str = "snavio";
const AUDIENCE: &str = "snavio";

/// A key for tokens and keyed hashes.
#[derive(Clone)]
pub struct TokenKey(Hmac<Sha256>);

impl TokenKey {
    /// A key from secret bytes.
    pub fn new(secret: &[u8]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC takes keys of any length"))
    }

    /// The keyed hash of several parts. Length prefixes keep the boundaries of the parts distinct.
    pub fn digest(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenClaims {
    /// The id of the client. For a workload: its issuer and its subject, separated by a space.
    pub sub: String,
    /// The service that the client or workload acts for.
    pub service: ServiceName,
    /// Time of issue, in seconds since 1970.
    pub iat: i64,
    /// Time of expiry, in seconds since 1970.
    pub exp: i64,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    iss: String,
    aud: String,
    #[serde(flatten)]
    claims: TokenClaims,
}

/// Issues a token with these claims, signed with `key`.
pub fn issue(key: &TokenKey, claims: &TokenClaims) -> String {
    let payload = Payload { iss: ISSUER.into(), aud: AUDIENCE.into(), claims: claims.clone() };
    let payload = serde_json::to_vec(&payload).unwrap_or_default();
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(payload));
    let mut mac = key.0.clone();
    mac.update(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// The reason that a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// This platform did not issue it.
    #[error("token is not one of ours")]
    Forged,
    /// It was valid and has expired.
    #[error("token has ended")]
    Ended,
}

/// Returns the claims of a token that is authentic and has not expired. Compares in constant time.
pub fn verify(key: &TokenKey, token: &str, now: Timestamp) -> Result<TokenClaims, TokenFault> {
    let claims = read_authentic(key, token).ok_or(TokenFault::Forged)?;
    if now.0 >= claims.exp.saturating_mul(1000) {
        return Err(TokenFault::Ended);
    }
    Ok(claims)
}

fn read_authentic(key: &TokenKey, token: &str) -> Option<TokenClaims> {
    let (text, signature) = token.rsplit_once('.')?;
    let (header, payload) = text.split_once('.')?;
    if header != URL_SAFE_NO_PAD.encode(HEADER) {
        return None;
    }
    let mut mac = key.0.clone();
    mac.update(text.as_bytes());
    mac.verify_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    let payload: Payload = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    let right = payload.iss == ISSUER && payload.aud == AUDIENCE;
    right.then_some(payload.claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> TokenClaims {
        TokenClaims { sub: "c".into(), service: "acme/bot".parse().unwrap(), iat: 1_000, exp: 1_600 }
    }

    /// REG-7
    #[test]
    fn token_is_valid_until_expiry_under_its_own_key() {
        let key = TokenKey::new(b"one");
        let token = issue(&key, &claims());
        assert_eq!(verify(&key, &token, Timestamp(1_599_999)), Ok(claims()));
        assert_eq!(verify(&key, &token, Timestamp(1_600_000)), Err(TokenFault::Ended));
        assert_eq!(verify(&TokenKey::new(b"two"), &token, Timestamp(1_000_000)), Err(TokenFault::Forged));
    }

    /// REG-7
    #[test]
    fn changed_token_or_other_algorithm_is_refused() {
        let key = TokenKey::new(b"one");
        let token = issue(&key, &claims());
        let parts: Vec<_> = token.split('.').collect();
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let other = URL_SAFE_NO_PAD
            .encode(r#"{"iss":"snavio","aud":"snavio","sub":"x","service":"a/b","iat":1,"exp":9999}"#);
        for wrong in [
            format!("{none}.{}.", parts[1]),
            format!("{none}.{}.{}", parts[1], parts[2]),
            format!("{}.{other}.{}", parts[0], parts[2]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            String::new(),
            "..".into(),
        ] {
            assert_eq!(verify(&key, &wrong, Timestamp(1_000_000)), Err(TokenFault::Forged), "{wrong}");
        }
    }

    #[test]
    fn digest_parts_keep_their_boundaries() {
        let key = TokenKey::new(b"one");
        assert_ne!(key.digest(&[b"ab", b"c"]), key.digest(&[b"a", b"bc"]));
    }
}
