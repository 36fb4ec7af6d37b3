//! Signatures of tokens that others issued: compact JWS (RFC 7515) under public keys from a JWK set (RFC 7517).
//!
//! Three algorithms are known, each with the one kind of key that it goes with: RS256, ES256 and EdDSA (Ed25519).
//! Whatever else a header says, `none` and the symmetric ones above all, is no signature.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// Keys of one set that are looked at.
const KEYS_MAX: usize = 100;

/// How something is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Algorithm {
    /// RSA, PKCS #1 1.5, SHA-256; at least 2048 bits.
    #[serde(rename = "RS256")]
    Rsa,
    /// ECDSA over P-256 with SHA-256.
    #[serde(rename = "ES256")]
    P256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    Ed25519,
}

/// A token, taken apart and not yet verified.
pub(crate) struct Parts<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    /// Before its signature is verified this is anybody's word.
    pub(crate) payload: Vec<u8>,
    signed: &'a str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: Algorithm,
    kid: Option<String>,
    /// Extensions that must be understood: none is.
    crit: Option<serde_json::Value>,
    /// An unencoded payload would be another text than the one signed.
    b64: Option<serde_json::Value>,
}

impl<'a> Parts<'a> {
    /// Takes a token apart, if it is signed in a way that is known.
    pub(crate) fn of(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
        if header.crit.is_some() || header.b64.is_some() {
            return None;
        }
        let (payload, signature) = (decode(payload)?, decode(signature)?);
        Some(Self { algorithm: header.alg, key_id: header.kid, payload, signed, signature })
    }

    /// Whether the key made the signature.
    pub(crate) fn is_signed_by(&self, key: &PublicKey) -> bool {
        let (signed, signature) = (self.signed.as_bytes(), &self.signature);
        let verified = match &key.material {
            _ if key.material.algorithm() != self.algorithm => return false,
            Material::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                signed,
                signature,
            ),
            Material::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            Material::Ed25519(point) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(signed, signature)
            }
        };
        verified.is_ok()
    }
}

/// A key that signatures are verified with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicKey {
    id: Option<String>,
    material: Material,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Material {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa { .. } => Algorithm::Rsa,
            Self::P256(_) => Algorithm::P256,
            Self::Ed25519(_) => Algorithm::Ed25519,
        }
    }
}

/// The keys of an issuer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyRing(Vec<PublicKey>);

impl KeyRing {
    /// Reads a JWK set. Keys of other kinds or for other uses are left out: a set may hold them for others.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<serde_json::Value>,
        }
        let set: Set = serde_json::from_slice(bytes).ok()?;
        let keys = set.keys.into_iter().take(KEYS_MAX);
        Some(Self(keys.filter_map(|key| serde_json::from_value::<Jwk>(key).ok()?.usable()).collect()))
    }

    /// The key that a token names; a token that names none is taken where only one key can be meant.
    pub(crate) fn find(&self, parts: &Parts<'_>) -> Option<&PublicKey> {
        let mut fitting = self.0.iter().filter(|key| key.material.algorithm() == parts.algorithm);
        match &parts.key_id {
            Some(id) => fitting.find(|key| key.id.as_ref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    fn usable(self) -> Option<PublicKey> {
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_ref()?).ok();
        let (material, name) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => (Material::Rsa { n: bytes(&self.n)?, e: bytes(&self.e)? }, "RS256"),
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(&self.x)?, bytes(&self.y)?);
                let is_whole = x.len() == 32 && y.len() == 32;
                (Material::P256(is_whole.then(|| [&[4], &x[..], &y[..]].concat())?), "ES256")
            }
            ("OKP", Some("Ed25519")) => (Material::Ed25519(bytes(&self.x)?), "EdDSA"),
            _ => return None,
        };
        let is_for_it = self.alg.is_none_or(|alg| alg == name) && self.r#use.is_none_or(|it| it == "sig");
        is_for_it.then_some(PublicKey { id: self.kid, material })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const RSA_N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    const BY_RSA: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    const BY_P256: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    const BY_ED25519: &str = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";

    /// The keys of RFC 7515 A.2 and A.3, and of RFC 8037 A.
    fn set() -> Value {
        json!({ "keys": [
            { "kty": "RSA", "n": RSA_N, "e": "AQAB" },
            { "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
              "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0" },
            { "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" },
            { "kty": "oct", "k": "c2VjcmV0" },
            "nonsense",
        ] })
    }

    fn is_right(token: &str, set: &Value) -> bool {
        let ring = KeyRing::read(set.to_string().as_bytes()).unwrap();
        let Some(parts) = Parts::of(token) else { return false };
        ring.find(&parts).is_some_and(|key| parts.is_signed_by(key))
    }

    fn with_header(token: &str, header: &Value) -> String {
        let rest = token.split_once('.').unwrap().1;
        format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header.to_string()))
    }

    /// REG-7
    #[test]
    fn the_examples_of_the_standards_are_right_and_what_is_changed_is_not() {
        for token in [BY_RSA, BY_P256, BY_ED25519] {
            assert!(is_right(token, &set()), "{token}");
            let (signed, signature) = token.rsplit_once('.').unwrap();
            assert!(!is_right(&format!("{signed}x.{signature}"), &set()));
            assert!(!is_right(&format!("{signed}."), &set()));
            assert!(!is_right(signed, &set()));
        }
    }

    /// REG-7
    #[test]
    fn a_token_is_verified_by_the_algorithm_of_its_key_alone() {
        let (_, signature) = BY_RSA.rsplit_once('.').unwrap();
        for header in [
            json!({ "alg": "none" }),
            json!({ "alg": "None" }),
            json!({ "alg": "HS256" }),
            json!({ "alg": "RS512" }),
            json!({ "alg": "ES256" }),
            json!({ "alg": "EdDSA" }),
            json!({}),
            json!({ "alg": "RS256", "crit": ["exp"] }),
            json!({ "alg": "RS256", "b64": false }),
        ] {
            let token = with_header(BY_RSA, &header);
            assert!(!is_right(&token, &set()), "{header}");
            assert!(!is_right(token.trim_end_matches(signature), &set()), "{header}");
        }
    }

    /// REG-7
    #[test]
    fn keys_are_found_by_id_or_where_only_one_can_be_meant() {
        let find = |keys: Value, header: &Value| {
            let ring = KeyRing::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap();
            let token = with_header(BY_ED25519, header);
            ring.find(&Parts::of(&token).unwrap()).is_some()
        };
        let key = |kid: Value| json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA", "kid": kid });
        let named = json!({ "alg": "EdDSA", "kid": "a" });
        let unnamed = json!({ "alg": "EdDSA" });
        assert!(find(json!([key(json!("b")), key(json!("a"))]), &named));
        assert!(!find(json!([key(json!("b")), key(Value::Null)]), &named));
        assert!(find(json!([key(json!("b"))]), &unnamed));
        assert!(!find(json!([key(json!("b")), key(json!("a"))]), &unnamed));
        let mut other = key(json!("a"));
        other["use"] = "enc".into();
        assert!(!find(json!([other]), &named));
        let mut other = key(json!("a"));
        other["alg"] = "RS256".into();
        assert!(!find(json!([other]), &named));
        assert_eq!(KeyRing::read(b"{}"), None);
        assert_eq!(KeyRing::read(b"not json"), None);
    }
}
