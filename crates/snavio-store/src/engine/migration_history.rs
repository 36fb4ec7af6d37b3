//! Checks the history of migrations before refinery reads it: refinery panics on a row that it cannot have written.

use refinery::Migration;
use snavio_model::time::Timestamp;

/// The name of refinery's table.
pub(crate) const TABLE: &str = "refinery_schema_history";

/// What is wrong with a row of the history, if anything.
pub(crate) fn problem(version: i32, applied_on: &str, checksum: &str) -> Option<String> {
    if !is_time(applied_on) {
        return Some(format!(
            "migration {version} has the time {applied_on:?}, which is not RFC 3339 in UTC"
        ));
    }
    let is_checksum = checksum.parse::<u64>().is_ok();
    (!is_checksum)
        .then(|| format!("migration {version} has the checksum {checksum:?}, which is not a number"))
}

/// Why this program cannot work with a layout that another version made, if so: `version` and `checksum` are those of
/// an applied migration, `known` are this program's migrations.
pub(crate) fn mismatch(known: &[Migration], version: i32, checksum: &str) -> Option<String> {
    let newest = known.iter().map(Migration::version).max().unwrap_or_default();
    match known.iter().find(|migration| migration.version() == version) {
        None => Some(format!(
            "the store has layout {version}, made by a newer version of Snavio; this version knows layout {newest}: \
             upgrade Snavio"
        )),
        Some(migration) if migration.checksum().to_string() != checksum => Some(format!(
            "layout {version} of the store was made by an unreleased build of Snavio, and this build's layout {version} \
             is another: start with an empty store, or use the build that made it"
        )),
        Some(_) => None,
    }
}

/// Whether a text is a time as refinery writes it: RFC 3339 in UTC.
fn is_time(text: &str) -> bool {
    text.ends_with('Z') && Timestamp::parse(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENG-3
    #[test]
    fn history_rows_are_checked() {
        for (applied_on, checksum, is_sound) in [
            ("2026-11-19T20:26:56.238304123Z", "10733441923546134551", true),
            ("2026-11-19T20:26:56Z", "0", true),
            ("2026-11-19T20:26:56Z", "-1", false),
            ("2026-11-19T20:26:56Z", "1.5", false),
            ("2026-11-19T20:26:56Z", "", false),
            ("2026-11-19T20:26:56Z", "18446744073709551616", false),
            ("", "1", false),
            ("yesterday", "1", false),
            ("2026-11-19", "1", false),
            ("2026-11-19 20:26:56Z", "1", false),
            ("2026-11-19T20:26:56", "1", false),
            ("2026-11-19T20:26:56.Z", "1", false),
            ("2026-11-19T20:26:56+01:00", "1", false),
            ("2026-02-30T20:26:56Z", "1", false),
            ("2026-11-19T24:26:56Z", "1", false),
            ("2026-11-19T20:26:60Z", "1", false),
            ("2026-11-19T20:26:5é", "1", false),
        ] {
            assert_eq!(problem(3, applied_on, checksum).is_none(), is_sound, "{applied_on} {checksum}");
        }
    }

    /// ENG-2, ENG-3
    #[test]
    fn layouts_of_other_versions_are_named() {
        let known = [Migration::unapplied("V1__schema", "CREATE TABLE a (b)").expect("the name is right")];
        let checksum = known[0].checksum().to_string();
        assert_eq!(mismatch(&known, 1, &checksum), None);
        assert!(mismatch(&known, 2, "7").is_some_and(|reason| reason.contains("knows layout 1: upgrade")));
        assert!(mismatch(&known, 1, "7").is_some_and(|reason| reason.contains("unreleased build")));
    }
}
