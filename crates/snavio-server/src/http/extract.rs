//! Path segments, query parameters and JSON bodies, whose faults are answered as problems like any other, and
//! never with a value that was sent.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http::request::Parts;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use snavio_model::limits;
use snavio_model::name::is_short_identifier;
use snavio_model::refusal::{Reason, Refusal};

use super::body::{Media, media, read};
use super::{Problem, Shared};

/// The parts of the path that stand for something.
pub(super) struct Segments<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let unfit = |_| Refusal::new(Reason::InvalidRequest, "the path holds a part that cannot be read");
        let Path(segments) = Path::from_request_parts(parts, state).await.map_err(unfit)?;
        Ok(Self(segments))
    }
}

/// The query parameters.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Query(params) = Query::try_from_uri(&parts.uri).map_err(|rejection| {
            let cause = std::error::Error::source(&rejection).map(ToString::to_string).unwrap_or_default();
            Refusal::new(
                Reason::InvalidRequest,
                format!("the query does not fit: {}", without_values(&cause)),
            )
        })?;
        Ok(Self(params))
    }
}

/// A JSON body of a management call; an empty one stands for `{}`.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Shared> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = read(app, &parts, body, limits::BATCH_BYTES_MAX).await?;
        if bytes.is_empty() {
            return parse(b"{}");
        }
        if media(&parts.headers)? != Media::Json {
            return Err(Refusal::new(
                Reason::UnsupportedMediaType,
                "the content type must be application/json",
            )
            .into());
        }
        parse(&bytes)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<JsonBody<T>, Problem> {
    Ok(JsonBody(serde_json::from_slice(bytes).map_err(|error| unfit(&error))?))
}

/// A document that is not what it should be.
pub(super) fn unfit(error: &serde_json::Error) -> Refusal {
    let detail = format!("the body does not fit: {}", without_values(&error.to_string()));
    Refusal::new(Reason::InvalidRequest, detail)
}

/// serde repeats what it did not expect; a refusal must not, for it may have been a secret. The name of an unknown
/// member is repeated only if it looks like one.
fn without_values(message: &str) -> String {
    if let Some((before, rest)) = message.split_once("unknown field `") {
        // From behind: the name may hold the same words.
        let end = rest.rfind("`, expected ").or_else(|| rest.rfind("`, there are no fields"));
        let (name, after) = end.map_or(("", ""), |end| (&rest[..end], &rest[end + 1..]));
        return match is_short_identifier(name) {
            true => format!("{before}unknown field `{name}`{after}"),
            false => format!("{before}a field is unknown{after}"),
        };
    }
    let repeats = ["invalid type: ", "invalid value: ", "unknown variant "];
    let cut = repeats.iter().find_map(|opening| message.find(opening));
    let expected = message.rfind("expected ");
    match (cut, expected) {
        (Some(start), Some(expected)) => format!("{}{}", &message[..start], &message[expected..]),
        (Some(start), None) => format!("{}a value does not fit", &message[..start]),
        (None, _) => message.to_owned(),
    }
}

/// A JSON object whose members are still to be read; a name that comes twice is refused, not overwritten.
pub(super) struct Members(pub(super) Map<String, Value>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;

        impl<'de> Visitor<'de> for Once {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Members, A::Error> {
                let mut members = Map::new();
                while let Some((name, value)) = access.next_entry::<String, Value>()? {
                    if members.insert(name, value).is_some() {
                        return Err(serde::de::Error::custom("a member is repeated"));
                    }
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-12
    #[test]
    fn what_was_sent_is_not_repeated() {
        for (message, told) in [
            (
                r#"invalid type: string "s3cret", expected u64 at line 1 column 9"#,
                "expected u64 at line 1 column 9",
            ),
            (r#"max: invalid value: string ", expected s3cret", expected u64"#, "max: expected u64"),
            ("unknown variant `s3cret`, expected `none` or `strict`", "expected `none` or `strict`"),
            ("unknown variant `s3cret`, there are no variants", "a value does not fit"),
            ("unknown field `nmae`, expected `name`", "unknown field `nmae`, expected `name`"),
            (
                "unknown field `s3 cret`, expected `name` or `why`",
                "a field is unknown, expected `name` or `why`",
            ),
            (
                "unknown field `s`, expected `3cret`, expected `a` at line 1",
                "a field is unknown, expected `a` at line 1",
            ),
            ("missing field `receipts` at line 1 column 2", "missing field `receipts` at line 1 column 2"),
        ] {
            assert_eq!(without_values(message), told);
        }
    }
}
