//! Path segments, query parameters and JSON bodies, whose faults are answered as problems like any other, and
//! never with a value that was sent.

use std::marker::PhantomData;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http::request::Parts;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use snavio_model::bounds;
use snavio_model::name::is_short_identifier;
use snavio_model::refusal::{Reason, Refusal};

use super::body::{Media, media, read};
use super::{Problem, Shared};

/// How serde begins to say what it would have taken.
const EXPECTED: &str = "expected ";

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
        let bytes = read(app, &parts, body, bounds::BATCH_BYTES_MAX).await?;
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
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read: Object<T> = serde_path_to_error::deserialize(&mut reader).map_err(|error| unfit(&error))?;
    // What comes after the document is no part of it.
    reader.end().map_err(|error| unfit_at("", &error))?;
    Ok(JsonBody(read.0))
}

/// Reads a document whose members were looked at already.
pub(super) fn from_members<T: DeserializeOwned>(members: Map<String, Value>) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(Value::Object(members)).map_err(|error| unfit(&error))
}

/// A document that is not what it should be, and where.
fn unfit(error: &serde_path_to_error::Error<serde_json::Error>) -> Refusal {
    unfit_at(&error.path().to_string(), error.inner())
}

fn unfit_at(path: &str, error: &serde_json::Error) -> Refusal {
    let told = without_values(&error.to_string());
    // A path may hold names that were sent: it is told only if it looks like one of ours.
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.[]".contains(c);
    let is_told = path.len() <= bounds::NAMED_MEMBER_BYTES_MAX && path != "." && path.chars().all(is_plain);
    let place = if is_told && !path.is_empty() { format!("{path}: ") } else { String::new() };
    Refusal::new(Reason::InvalidRequest, format!("the body does not fit: {place}{told}"))
}

/// serde repeats what it did not expect; a refusal must not, for it may have been a secret. The name of an unknown
/// member is repeated only if it looks like one.
fn without_values(message: &str) -> String {
    if let Some((_, rest)) = message.split_once("unknown field `") {
        // From behind: the name may hold the same words.
        let end = rest.rfind("`, expected ").or_else(|| rest.rfind("`, there are no fields"));
        let (name, after) = end.map_or(("", ""), |end| (&rest[..end], &rest[end + 1..]));
        return match is_short_identifier(name) {
            true => format!("unknown field `{name}`{after}"),
            false => format!("a field is unknown{after}"),
        };
    }
    let repeats = ["invalid type: ", "invalid value: ", "unknown variant "];
    let cut = repeats.iter().find_map(|opening| message.find(opening));
    let expected = message.rfind(EXPECTED);
    match (cut, expected) {
        (Some(start), Some(expected)) => {
            format!("{}{}", &message[..start], in_words(&message[expected..]))
        }
        (Some(start), None) => format!("{}a value does not fit", &message[..start]),
        (None, _) => message.to_owned(),
    }
}

/// What a program calls its numbers means nothing to whoever sends one.
fn in_words(expected: &str) -> String {
    let numbers = ["usize", "u64", "u32", "i64"];
    let number = numbers.iter().find(|it| expected[EXPECTED.len()..].starts_with(**it));
    match number {
        Some(number) => format!("{EXPECTED}a whole number{}", &expected[EXPECTED.len() + number.len()..]),
        None => expected.to_owned(),
    }
}

/// A number of a request, if it may be that large.
pub(super) fn within(name: &str, value: usize, least: usize, most: usize) -> Result<usize, Refusal> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(Refusal::new(Reason::InvalidRequest, format!("{name} must be {least} to {most}")))
}

/// A time that a request asks for.
pub(super) fn seconds(
    name: &str,
    value: Option<u64>,
    default: Duration,
    most: Duration,
) -> Result<Duration, Refusal> {
    let value = value.map_or(default, Duration::from_secs);
    if value <= most {
        return Ok(value);
    }
    Err(Refusal::new(Reason::InvalidRequest, format!("{name} must be 0 to {}", most.as_secs())))
}

/// How many entries a page holds.
pub(super) fn page_limit(asked: Option<usize>) -> Result<usize, Refusal> {
    within("limit", asked.unwrap_or(bounds::PAGE_DEFAULT), 1, bounds::PAGE_MAX)
}

/// A value that is written as an object: serde would also take a list of its members in their order, which is
/// another language than the one described.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(access)).map(Object)
            }
        }

        deserializer.deserialize_map(Only(PhantomData))
    }
}

/// Reads a list of which each is written as an object.
pub(super) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Vec::<Object<T>>::deserialize(from)?.into_iter().map(|it| it.0).collect())
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
                "expected a whole number at line 1 column 9",
            ),
            (
                r#"max: invalid value: string ", expected s3cret", expected u64"#,
                "max: expected a whole number",
            ),
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
