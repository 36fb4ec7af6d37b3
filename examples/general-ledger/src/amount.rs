//! Amounts of money in whole hundredths. They are never floats, neither in memory nor in JSON, which has them
//! as strings.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// The most digits before the decimal point. The sum of many entries still fits into an `i64`.
const WHOLE_DIGITS_MAX: usize = 13;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Amount {
    pub(crate) cents: i64,
}

/// The error for a text that is not an amount.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an amount is a string of at most 13 digits, with two decimals or none: \"1250.00\"")]
pub(crate) struct AmountError;

impl FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "00"));
        fn is_number(digits: &str) -> bool {
            digits.bytes().all(|byte| byte.is_ascii_digit())
        }
        let fits = (1..=WHOLE_DIGITS_MAX).contains(&whole.len()) && decimals.len() == 2;
        if !fits || !is_number(whole) || !is_number(decimals) {
            return Err(AmountError);
        }
        let cents = format!("{whole}{decimals}").parse().map_err(|_| AmountError)?;
        Ok(Self { cents })
    }
}

impl TryFrom<String> for Amount {
    type Error = AmountError;

    fn try_from(text: String) -> Result<Self, AmountError> {
        text.parse()
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.cents < 0 { "-" } else { "" };
        let cents = self.cents.unsigned_abs();
        f.pad(&format!("{sign}{}.{:02}", cents / 100, cents % 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_parsed_exactly_or_refused() {
        for (text, cents, shown) in [
            ("0.00", 0, "0.00"),
            ("0.01", 1, "0.01"),
            ("10", 1000, "10.00"),
            ("007.50", 750, "7.50"),
            ("9999999999999.99", 999_999_999_999_999, "9999999999999.99"),
        ] {
            let amount: Amount = text.parse().unwrap();
            assert_eq!((amount.cents, amount.to_string().as_str()), (cents, shown), "{text}");
        }
        for text in [
            "",
            ".",
            ".50",
            "1.",
            "1.5",
            "1.500",
            "-1.00",
            "+1.00",
            "1,00",
            "1e2",
            " 1.00",
            "1.00 ",
            "1_0",
            "NaN",
            "١٫٠٠",
            "12345678901234.00",
        ] {
            assert_eq!(text.parse::<Amount>(), Err(AmountError), "{text}");
        }
        assert!(
            serde_json::from_str::<Amount>("10.00").is_err(),
            "a JSON number may have been a float on the way"
        );
    }
}
