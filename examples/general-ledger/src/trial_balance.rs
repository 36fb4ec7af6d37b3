//! The trial balance: the sums of each account, and a check of the books.

use std::fmt;
use std::path::Path;

use snavio_sdk::sqlite::rusqlite::{self, Connection, OpenFlags};

use crate::amount::Amount;

/// The state of the books at one moment.
#[derive(Debug)]
pub(crate) struct TrialBalance {
    accounts: Vec<Account>,
    /// The number of entries.
    pub(crate) entries: i64,
    /// The inconsistencies that the checks found.
    pub(crate) problems: Vec<String>,
}

#[derive(Debug)]
struct Account {
    currency: String,
    name: String,
    debit: Amount,
    credit: Amount,
}

/// Reads the books in one transaction, while other processes may write.
pub(crate) fn read(path: &Path) -> rusqlite::Result<TrialBalance> {
    let mut books = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let books = books.transaction()?;
    let accounts = "SELECT currency, account, SUM(debit_cents), SUM(credit_cents)
        FROM line JOIN journal_entry USING (reference) GROUP BY currency, account ORDER BY currency, account";
    let account = |row: &rusqlite::Row<'_>| {
        let (debit, credit) = (Amount { cents: row.get(2)? }, Amount { cents: row.get(3)? });
        Ok(Account { currency: row.get(0)?, name: row.get(1)?, debit, credit })
    };
    let accounts = books.prepare(accounts)?.query_map([], account)?.collect::<Result<_, _>>()?;
    let entries = books.query_row("SELECT COUNT(*) FROM journal_entry", [], |row| row.get(0))?;
    let mut problems = Vec::new();
    for (query, problem) in CHECKS {
        let found =
            books.prepare(query)?.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
        problems.extend(found.into_iter().map(|name| format!("{name} {problem}")));
    }
    Ok(TrialBalance { accounts, entries, problems })
}

/// Each query returns the names of inconsistent records.
const CHECKS: [(&str, &str); 3] = [
    (
        "SELECT reference FROM journal_entry LEFT JOIN line USING (reference) GROUP BY reference
            HAVING COUNT(account) = 0 OR SUM(debit_cents) <> SUM(credit_cents)",
        "does not balance",
    ),
    (
        "SELECT 'year ' || year FROM counter LEFT JOIN journal_entry USING (year) GROUP BY year
            HAVING COUNT(number) <> last OR MIN(number) <> 1 OR MAX(number) <> last",
        "has gaps in its references",
    ),
    (
        "SELECT idempotency_key FROM answered LEFT JOIN journal_entry
            ON journal_entry.tenant = answered.tenant AND message_id = idempotency_key WHERE reference IS NULL",
        "was answered, but has no entry",
    ),
];

impl fmt::Display for TrialBalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24}{:>4}{:>20}{:>20}{:>20}", "account", "", "debit", "credit", "balance")?;
        for Account { currency, name, debit, credit } in &self.accounts {
            let balance = Amount { cents: debit.cents - credit.cents };
            writeln!(f, "{name:<24}{currency:>4}{debit:>20}{credit:>20}{balance:>20}")?;
        }
        writeln!(f, "entries: {}", self.entries)?;
        if self.problems.is_empty() {
            return writeln!(f, "debits equal credits in every entry, and no reference is missing");
        }
        self.problems.iter().try_for_each(|problem| writeln!(f, "PROBLEM: {problem}"))
    }
}
