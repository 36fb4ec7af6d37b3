//! The table of refusals in the documentation equals the one in the code (docs/reference/refusals.md).

use std::collections::HashSet;
use std::fmt::Write;

use snavio_model::refusal::{Reason, Report};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/refusals.md");

const HEAD: &str = "\
# Refusals

Every \"no\" is `application/problem+json` (RFC 9457) with a stable `reason`. A refusal that left no trace says
`\"accepted\": false`. *Report* is the telemetry record that the sender's tenant gets: `invalid` when the message itself
is at fault, `failed` when its sender or the state of things is; of events they are `snavio.event.invalid` and
`snavio.event.failed`.

This table is written from the code: `TEST_BLESS=1 cargo test -p snavio-model --test refusals` writes it anew.

| reason | status | title | report | what to do |
| --- | --- | --- | --- | --- |
";

fn page() -> String {
    Reason::ALL.iter().fold(HEAD.to_owned(), |mut page, reason| {
        let contract = reason.contract();
        let report = match contract.report {
            Report::Invalid => "`snavio.command.invalid`",
            Report::Failed => "`snavio.command.failed`",
            Report::Nothing => "",
        };
        let (code, status, title, advice) = (contract.code, contract.status, contract.title, contract.advice);
        writeln!(page, "| `{code}` | {status} | {title} | {report} | {advice} |")
            .expect("a string takes text");
        page
    })
}

/// MSG-12
#[test]
fn docs_name_every_reason_like_the_code() {
    if std::env::var_os("TEST_BLESS").is_some() {
        std::fs::write(PAGE, page()).expect("the page can be written");
    }
    let written = std::fs::read_to_string(PAGE).expect("the page is there");
    assert_eq!(written, page(), "write it anew: TEST_BLESS=1 cargo test -p snavio-model --test refusals");
}

/// MSG-12
#[test]
fn reason_has_a_unique_code_and_refusing_status() {
    let codes: HashSet<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
    assert_eq!(codes.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        let contract = reason.contract();
        assert!(matches!(contract.status, 400..=499 | 503), "{}", contract.code);
        assert!(!contract.title.is_empty() && !contract.advice.is_empty(), "{}", contract.code);
    }
}
