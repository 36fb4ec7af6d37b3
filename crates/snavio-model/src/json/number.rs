//! Numbers by their exact decimal value, in the layout of RFC 8785 (MSG-8).
//!
//! With doubles, two long integers would become one number, and two postings of a ledger one. The digits are
//! therefore never converted, only laid out anew.

use super::{Fault, FaultKind};
use crate::bounds::{NUMBER_DIGITS_MAX, NUMBER_EXPONENT_MAX};

/// RFC 8785 writes a number without an exponent up to this many digits before the point.
const PLAIN_DIGITS_MAX: usize = 21;
/// And up to this many zeros between the point and the first digit.
const PLAIN_ZEROS_MAX: usize = 5;

/// Checks the number that begins at `start`, appends its canonical form and returns its end.
pub(super) fn canonical(bytes: &[u8], start: usize, out: &mut Vec<u8>) -> Result<usize, Fault> {
    let (spelling, end) = Spelling::read(bytes, start)?;
    if spelling.is_canonical() {
        out.extend_from_slice(&bytes[start..end]);
    } else if let Some(decimal) = spelling.decimal().map_err(|kind| kind.at(start))? {
        decimal.write(out);
    } else {
        out.push(b'0');
    }
    Ok(end)
}

/// A number as it was written.
struct Spelling<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: Option<i64>,
}

impl<'a> Spelling<'a> {
    fn read(bytes: &'a [u8], start: usize) -> Result<(Self, usize), Fault> {
        let negative = bytes.get(start) == Some(&b'-');
        let whole = digits(bytes, start + usize::from(negative))?;
        let mut at = start + usize::from(negative) + whole.len();
        if whole.len() > 1 && whole[0] == b'0' {
            return Err(FaultKind::MalformedNumber.at(start));
        }
        let mut fraction: &[u8] = &[];
        if bytes.get(at) == Some(&b'.') {
            fraction = digits(bytes, at + 1)?;
            at += 1 + fraction.len();
        }
        let mut exponent = None;
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let sign = bytes.get(at + 1).copied().filter(|byte| matches!(byte, b'+' | b'-'));
            let power = digits(bytes, at + 1 + usize::from(sign.is_some()))?;
            at += 1 + usize::from(sign.is_some()) + power.len();
            exponent = Some(if sign == Some(b'-') { -saturated(power) } else { saturated(power) });
        }
        Ok((Self { negative, whole, fraction, exponent }, at))
    }

    /// Whether the spelling is its own canonical form. A `true` is certain, and is the case for most numbers
    /// of most messages.
    fn is_canonical(&self) -> bool {
        if self.exponent.is_some() || self.whole.len() > PLAIN_DIGITS_MAX {
            return false;
        }
        let zero = self.whole == b"0";
        match self.fraction {
            [] => !(zero && self.negative),
            [.., b'0'] => false,
            fraction if zero => {
                fraction.len() <= NUMBER_DIGITS_MAX
                    && fraction.iter().take(PLAIN_ZEROS_MAX + 1).any(|&digit| digit != b'0')
            }
            fraction => self.whole.len() + fraction.len() <= NUMBER_DIGITS_MAX,
        }
    }

    /// The value, or `None` for zero in any spelling.
    fn decimal(&self) -> Result<Option<Decimal>, FaultKind> {
        let all = || self.whole.iter().chain(self.fraction).copied();
        let Some(first) = all().position(|digit| digit != b'0') else {
            return Ok(None);
        };
        let end = all().enumerate().fold(first, |end, (at, digit)| if digit == b'0' { end } else { at + 1 });
        // The limit of the body bounds both lengths, far below the limits of the type.
        let lead = self.whole.len() as i64 - 1 - first as i64;
        let exponent = lead.saturating_add(self.exponent.unwrap_or(0));
        if end - first > NUMBER_DIGITS_MAX || exponent.abs() > NUMBER_EXPONENT_MAX {
            return Err(FaultKind::NumberRange);
        }
        let mut digits = [b'0'; NUMBER_DIGITS_MAX];
        digits.iter_mut().zip(all().skip(first)).for_each(|(digit, written)| *digit = written);
        Ok(Some(Decimal { negative: self.negative, digits, count: end - first, exponent }))
    }
}

/// The digits at `at`, at least one.
fn digits(bytes: &[u8], at: usize) -> Result<&[u8], Fault> {
    let rest = bytes.get(at..).unwrap_or_default();
    let count = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    match (count, rest) {
        (0, []) => Err(FaultKind::UnexpectedEnd.at(at)),
        (0, _) => Err(FaultKind::MalformedNumber.at(at)),
        _ => Ok(&rest[..count]),
    }
}

/// The value of an exponent, or one above every limit for any digits of the number.
fn saturated(power: &[u8]) -> i64 {
    const FAR: i64 = i64::MAX / 100;
    power.iter().fold(0, |value: i64, digit| (value * 10 + i64::from(digit - b'0')).min(FAR))
}

/// A number other than zero: `d.ddd` times ten to the exponent, without zeros at either end of the digits.
struct Decimal {
    negative: bool,
    digits: [u8; NUMBER_DIGITS_MAX],
    /// The number of significant digits.
    count: usize,
    exponent: i64,
}

impl Decimal {
    fn digits(&self) -> &[u8] {
        &self.digits[..self.count]
    }

    fn write(&self, out: &mut Vec<u8>) {
        if self.negative {
            out.push(b'-');
        }
        match usize::try_from(self.exponent) {
            Ok(exponent) if exponent < PLAIN_DIGITS_MAX => self.write_from_one(exponent + 1, out),
            Err(_) if self.exponent.unsigned_abs() <= PLAIN_ZEROS_MAX as u64 + 1 => self.write_below_one(out),
            _ => self.write_with_exponent(out),
        }
    }

    fn write_from_one(&self, before_point: usize, out: &mut Vec<u8>) {
        if let Some((whole, fraction)) = self.digits().split_at_checked(before_point) {
            out.extend_from_slice(whole);
            write_fraction(fraction, out);
        } else {
            out.extend_from_slice(self.digits());
            out.extend(std::iter::repeat_n(b'0', before_point - self.count));
        }
    }

    fn write_below_one(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"0.");
        out.extend((1..self.exponent.unsigned_abs()).map(|_| b'0'));
        out.extend_from_slice(self.digits());
    }

    fn write_with_exponent(&self, out: &mut Vec<u8>) {
        let (first, others) = self.digits().split_at(1);
        out.extend_from_slice(first);
        write_fraction(others, out);
        out.extend_from_slice(format!("e{:+}", self.exponent).as_bytes());
    }
}

fn write_fraction(fraction: &[u8], out: &mut Vec<u8>) {
    if !fraction.is_empty() {
        out.push(b'.');
        out.extend_from_slice(fraction);
    }
}
