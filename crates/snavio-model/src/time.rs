//! Points in time, and the one trait that supplies the current time.

use std::fmt;
use std::time::Duration;

use jiff::civil;
use serde::{Deserialize, Serialize};

/// Milliseconds since 1970 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Timestamp(pub i64);

/// Serializes an optional time as RFC 3339 text, for documents that people write and read.
pub mod text {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Timestamp;

    /// Writes the time as text.
    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => to.collect_str(at),
            None => to.serialize_none(),
        }
    }

    /// Reads the time from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let unfit =
            || serde::de::Error::custom("a time must be RFC 3339 with T and an offset, without leap seconds");
        Timestamp::parse(&text).map(Some).ok_or_else(unfit)
    }
}

/// Supplies the current time. Only the server's machine module implements it with a real clock; tests use a
/// fixed time.
pub trait Clock: Send + Sync {
    /// The current time, never earlier than a previous answer.
    fn now(&self) -> Timestamp;
}

/// A clock that stands still, for tests.
impl Clock for Timestamp {
    fn now(&self) -> Timestamp {
        *self
    }
}

impl Timestamp {
    /// Reads RFC 3339 in the form of MSG-1: with `T`, an offset and at most nine fractional digits, without
    /// leap seconds.
    pub fn parse(text: &str) -> Option<Self> {
        let (date_time, offset) = split_offset(text)?;
        let bytes = date_time.as_bytes();
        let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        if bytes.len() < 19 || separators.iter().any(|&(at, byte)| bytes[at] != byte) {
            return None;
        }
        let millis = match date_time.get(19..)? {
            "" => 0,
            fraction => milliseconds(fraction.strip_prefix('.')?)?,
        };
        let seconds = digits(&date_time[17..19])?;
        if seconds > 59 {
            return None;
        }
        let civil = civil::DateTime::new(
            i16::try_from(digits(&date_time[..4])?).ok()?,
            i8::try_from(digits(&date_time[5..7])?).ok()?,
            i8::try_from(digits(&date_time[8..10])?).ok()?,
            i8::try_from(digits(&date_time[11..13])?).ok()?,
            i8::try_from(digits(&date_time[14..16])?).ok()?,
            i8::try_from(seconds).ok()?,
            0,
        )
        .ok()?;
        let days = civil.date().since(EPOCH).ok()?.get_days();
        let of_day =
            i64::from(civil.hour()) * 3600 + i64::from(civil.minute()) * 60 + i64::from(civil.second());
        Some(Self((i64::from(days) * 86_400 + of_day - offset) * 1000 + millis))
    }

    /// The time `later` after this one.
    pub fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(later.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The time `earlier` before this one.
    pub fn minus(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(earlier.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The duration since `earlier`; zero if `earlier` is not before this time.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The absolute difference of the two times.
    pub fn skew(self, other: Self) -> Duration {
        Duration::from_millis(self.0.abs_diff(other.0))
    }
}

const EPOCH: civil::Date = civil::date(1970, 1, 1);

/// Splits a date-time from its offset, in seconds east of UTC.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(date_time) = text.strip_suffix('Z') {
        return Some((date_time, 0));
    }
    let at = text.len().checked_sub(6)?;
    if !text.is_char_boundary(at) {
        return None;
    }
    let (date_time, offset) = text.split_at(at);
    let sign = match offset.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = offset[1..].split_once(':').filter(|(hours, _)| hours.len() == 2)?;
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours <= 23 && minutes <= 59).then_some((date_time, sign * (hours * 3600 + minutes * 60)))
}

fn digits(text: &str) -> Option<i64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn milliseconds(fraction: &str) -> Option<i64> {
    if fraction.len() > 9 {
        return None;
    }
    digits(fraction)?;
    let mut padded = fraction.get(..3).unwrap_or(fraction).to_owned();
    while padded.len() < 3 {
        padded.push('0');
    }
    digits(&padded)
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-1
    #[test]
    fn timestamps_are_rfc_3339_with_t_and_offset() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-15T08:30:00Z", Some(1_794_731_400_000)),
            ("2026-11-15T09:30:00.5+01:00", Some(1_794_731_400_500)),
            ("2026-11-15T08:30:00.123456789Z", Some(1_794_731_400_123)),
            ("1969-12-31T23:59:59.999Z", Some(-1)),
            ("2024-02-29T00:00:00-00:00", Some(1_709_164_800_000)),
            ("2023-02-29T00:00:00Z", None),
            ("2026-11-15T23:59:60Z", None),
            ("2026-11-15T24:00:00Z", None),
            ("2026-11-15 08:30:00Z", None),
            ("2026-11-15t08:30:00Z", None),
            ("2026-11-15T08:30:00z", None),
            ("2026-11-15T08:30:00", None),
            ("2026-11-15T08:30Z", None),
            ("2026-11-15T08:30:00.Z", None),
            ("2026-11-15T08:30:00.1234567890Z", None),
            ("2026-11-15T08:30:00+0100", None),
            ("2026-11-15T08:30:00+24:00", None),
            ("2026-11-15T08:30:00+001:1", None),
            ("2026-11-15T08:30:00+1:001", None),
            ("1794731400", None),
            ("+026-11-15T08:30:00Z", None),
            ("2026-11-15T08:30:00é01:00", None),
            ("", None),
        ] {
            assert_eq!(Timestamp::parse(text).map(|t| t.0), millis, "{text:?}");
        }
    }

    #[test]
    fn printed_timestamp_parses_to_itself() {
        let at = Timestamp(1_794_731_400_120);
        assert_eq!(at.to_string(), "2026-11-15T08:30:00.120Z");
        assert_eq!(Timestamp::parse(&at.to_string()), Some(at));
    }
}
