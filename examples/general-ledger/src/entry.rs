//! Journal entries. An `Entry` always balances.

use jiff::civil::Date;
use serde::Deserialize;

use crate::amount::Amount;

/// An entry with more lines must be split.
const LINES_MAX: usize = 1000;
const ACCOUNT_BYTES_MAX: usize = 64;

/// An entry with equal debits and credits. Only [`Entry::read`] makes one.
#[derive(Debug)]
pub(crate) struct Entry {
    posting_date: Date,
    currency: String,
    lines: Vec<Line>,
    total: Amount,
}

/// A line with either a debit or a credit.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) account: String,
    pub(crate) debit: Amount,
    pub(crate) credit: Amount,
}

/// Why a payload is not a valid entry. A retry with the same payload fails in the same way.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidEntry {
    #[error("the payload is not a journal entry: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("postingDate must be a date: 2026-11-15")]
    Date,
    #[error("currency must be three capital letters")]
    Currency,
    #[error("an entry has 2 to 1000 lines")]
    Lines,
    #[error("an account has 1 to 64 bytes")]
    Account,
    #[error("each line has a debit or a credit, above zero")]
    Sides,
    #[error("debits are {debits} and credits {credits}")]
    Unbalanced { debits: Amount, credits: Amount },
}

impl Entry {
    /// Parses and checks a payload.
    pub(crate) fn read(payload: &str) -> Result<Self, InvalidEntry> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Raw {
            posting_date: String,
            currency: String,
            lines: Vec<RawLine>,
        }
        let Raw { posting_date, currency, lines } = serde_json::from_str(payload)?;
        let is_date = posting_date.len() == "2026-11-15".len();
        let posting_date = posting_date.parse().ok().filter(|_| is_date).ok_or(InvalidEntry::Date)?;
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(InvalidEntry::Currency);
        }
        if !(2..=LINES_MAX).contains(&lines.len()) {
            return Err(InvalidEntry::Lines);
        }
        let lines = lines.into_iter().map(Line::read).collect::<Result<Vec<_>, _>>()?;
        let total = balance(&lines)?;
        Ok(Self { posting_date, currency, lines, total })
    }

    pub(crate) fn posting_date(&self) -> Date {
        self.posting_date
    }

    pub(crate) fn currency(&self) -> &str {
        &self.currency
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The sum of the debits, which equals the sum of the credits.
    pub(crate) fn total(&self) -> Amount {
        self.total
    }
}

#[derive(Deserialize)]
struct RawLine {
    account: String,
    debit: Option<Amount>,
    credit: Option<Amount>,
}

impl Line {
    fn read(raw: RawLine) -> Result<Self, InvalidEntry> {
        let RawLine { account, debit, credit } = raw;
        if !(1..=ACCOUNT_BYTES_MAX).contains(&account.len()) {
            return Err(InvalidEntry::Account);
        }
        let (debit, credit) = match (debit, credit) {
            (Some(debit), None) => (debit, Amount::default()),
            (None, Some(credit)) => (Amount::default(), credit),
            _ => return Err(InvalidEntry::Sides),
        };
        if debit == credit {
            return Err(InvalidEntry::Sides);
        }
        Ok(Self { account, debit, credit })
    }
}

/// The sum of either side, if both are equal. A thousand lines of thirteen digits cannot overflow.
fn balance(lines: &[Line]) -> Result<Amount, InvalidEntry> {
    let debits = Amount { cents: lines.iter().map(|line| line.debit.cents).sum() };
    let credits = Amount { cents: lines.iter().map(|line| line.credit.cents).sum() };
    if debits == credits { Ok(debits) } else { Err(InvalidEntry::Unbalanced { debits, credits }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(payload: &str) -> String {
        match Entry::read(payload) {
            Ok(entry) => format!("{} {} {}", entry.posting_date, entry.currency, entry.total),
            Err(unfit) => unfit.to_string(),
        }
    }

    fn with_lines(lines: &str) -> String {
        format!(r#"{{"postingDate":"2026-11-15","currency":"EUR","lines":[{lines}],"memo":"any"}}"#)
    }

    #[test]
    fn entry_balances_to_the_cent() {
        let bank = r#"{"account":"1200","debit":"119.00"}"#;
        let sales = r#"{"account":"8400","credit":"100.00"}"#;
        for (lines, expected) in [
            (format!(r#"{bank},{sales},{{"account":"1776","credit":"19.00"}}"#), "2026-11-15 EUR 119.00"),
            (
                format!(r#"{bank},{sales},{{"account":"1776","credit":"18.99"}}"#),
                "debits are 119.00 and credits 118.99",
            ),
            (bank.to_owned(), "an entry has 2 to 1000 lines"),
            (
                format!(r#"{bank},{{"account":"8400","debit":"1.00","credit":"1.00"}}"#),
                "each line has a debit or a credit, above zero",
            ),
            (format!(r#"{bank},{{"account":"8400"}}"#), "each line has a debit or a credit, above zero"),
            (
                format!(r#"{bank},{{"account":"8400","credit":"0.00"}}"#),
                "each line has a debit or a credit, above zero",
            ),
            (format!(r#"{bank},{{"account":"","credit":"1.00"}}"#), "an account has 1 to 64 bytes"),
        ] {
            assert_eq!(outcome(&with_lines(&lines)), expected);
        }
        let number = with_lines(&format!(r#"{bank},{{"account":"8400","credit":119.00}}"#));
        assert!(
            outcome(&number).starts_with("the payload is not a journal entry: invalid type: floating point")
        );
        let most = vec![
            r#"{"account":"a","debit":"9999999999999.99"},{"account":"b","credit":"9999999999999.99"}"#;
            500
        ];
        assert_eq!(outcome(&with_lines(&most.join(","))), "2026-11-15 EUR 4999999999999995.00");
    }

    #[test]
    fn invalid_dates_and_currencies_are_refused() {
        for (date, currency, expected) in [
            ("2026-02-29", "EUR", "postingDate must be a date: 2026-11-15"),
            ("2026-11-15T00:00:00", "EUR", "postingDate must be a date: 2026-11-15"),
            ("20261115", "EUR", "postingDate must be a date: 2026-11-15"),
            ("2026-11-15", "eur", "currency must be three capital letters"),
            ("2026-11-15", "EURO", "currency must be three capital letters"),
        ] {
            let payload = format!(r#"{{"postingDate":"{date}","currency":"{currency}","lines":[]}}"#);
            assert_eq!(outcome(&payload), expected);
        }
    }
}
