//! Statements about the code base that stay true (ARCHITECTURE.md lists them), as far as text can tell.

mod language;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Longer files hold two ideas.
const LINES_MAX: usize = 650;

struct File {
    path: String,
    text: String,
}

impl File {
    /// The text without comments and without the tests at its end, where other rules hold.
    fn code(&self) -> String {
        let before_tests = self.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = before_tests.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("tests.rs") || self.path.contains("/benches/")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    entries.map(|it| it.expect("the entry can be read").path()).collect()
}

fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    if folder.is_file() {
        return found.push(folder.to_owned());
    }
    let mut entries = read_folder(folder);
    entries.sort();
    for path in entries {
        if path.is_dir() {
            walk(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

fn files(folder: &str, ending: &str) -> Vec<File> {
    let root = root();
    let mut paths = Vec::new();
    walk(&root.join(folder), ending, &mut paths);
    let read = |path: PathBuf| File {
        text: std::fs::read_to_string(&path).expect("the file can be read"),
        path: path.strip_prefix(&root).expect("the file is below the root").to_string_lossy().into_owned(),
    };
    let all: Vec<_> = paths.into_iter().map(read).collect();
    assert!(!all.is_empty(), "no files in {folder}");
    all
}

/// Fails with every file of a folder, or the file itself, if its code holds one of the words.
fn nowhere(folder: &str, words: &[&str], why: &str) {
    let mut found = Vec::new();
    for file in files(folder, ".rs").iter().filter(|file| !file.is_test()) {
        let code = file.code();
        found.extend(
            words.iter().filter(|word| code.contains(**word)).map(|word| format!("{}: {word}", file.path)),
        );
    }
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

#[test]
fn the_model_does_nothing_but_compute() {
    let words = [
        "async fn",
        ".await",
        "tokio",
        "std::fs",
        "std::net",
        "std::env",
        "::now()",
        "getrandom",
        "println!",
    ];
    nowhere("crates/snavio-model/src", &words, "the model does no I/O, awaits nothing and asks for no time");
}

#[test]
fn shield_and_fast_never_wait() {
    for stage in ["shield", "fast.rs"] {
        let folder = format!("crates/snavio-gate/src/pipeline/{stage}");
        nowhere(&folder, &["async fn", ".await", "snavio_store"], "shield and fast decide in memory");
    }
}

#[test]
fn only_the_gate_names_two_stages() {
    for (stage, others) in [
        ("shield", ["fast::", "pipeline::settle"]),
        ("fast.rs", ["pipeline::settle", "shield::check"]),
        ("settle.rs", ["fast::", "shield::"]),
    ] {
        nowhere(&format!("crates/snavio-gate/src/pipeline/{stage}"), &others, "a stage never calls another");
    }
}

#[test]
fn only_a_backends_folder_knows_its_database() {
    let postgres = &["tokio_postgres", "deadpool_postgres"];
    let engines = [("sqlite", &["rusqlite"][..]), ("postgres", postgres)];
    for (engine, words) in engines {
        for folder in ["model", "sink", "gate", "server", "cli"] {
            let why = format!("{words:?} belongs to the backend {engine}");
            nowhere(&format!("crates/snavio-{folder}/src"), words, &why);
        }
        // A consumer's database is its own; the SDK has a folder for each kind.
        for owner in ["store", "sdk"] {
            let outside = files(&format!("crates/snavio-{owner}/src"), ".rs");
            let outside = outside.iter().filter(|file| !file.path.contains(&format!("/{engine}/")));
            let knows = |file: &&File| words.iter().any(|word| file.code().contains(word));
            let known: Vec<_> = outside.filter(knows).map(|file| &file.path).collect();
            assert!(known.is_empty(), "the interfaces do not know a database: {known:?}");
        }
    }
}

#[test]
fn only_the_server_knows_axum() {
    for folder in ["model", "store", "sink", "gate", "sdk", "cli"] {
        nowhere(&format!("crates/snavio-{folder}/src"), &["axum"], "HTTP serving belongs to the server");
    }
}

#[test]
fn a_node_calls_others_only_through_the_sinks() {
    for folder in ["model", "store", "gate", "server"] {
        nowhere(&format!("crates/snavio-{folder}/src"), &["reqwest"], "outgoing calls go through the guard");
    }
}

#[test]
fn crates_depend_in_one_direction() {
    let allowed = |name: &str| -> &[&str] {
        match name {
            "snavio-model" => &[],
            "snavio-store" | "snavio-sink" | "snavio-sdk" => &["snavio-model"],
            "snavio-gate" => &["snavio-model", "snavio-store", "snavio-sink"],
            "snavio-server" => &["snavio-model", "snavio-store", "snavio-sink", "snavio-gate"],
            // The bench starts what it compares with.
            _ => &[
                "snavio-model",
                "snavio-store",
                "snavio-gate",
                "snavio-server",
                "snavio-sdk",
                "snavio-testbed",
            ],
        }
    };
    for manifest in files("crates", "Cargo.toml") {
        let name = manifest.path.split('/').nth(1).unwrap();
        let normal = manifest.text.split("[dev-dependencies]").next().unwrap();
        let (_, dependencies) = normal.split_once("[dependencies]").unwrap();
        let own = dependencies.lines().filter(|line| line.starts_with("snavio-"));
        let own: Vec<_> = own.map(|line| line.split(['.', ' ', '=']).next().unwrap()).collect();
        let wrong: Vec<_> = own.iter().filter(|it| !allowed(name).contains(it)).collect();
        assert!(wrong.is_empty(), "{name} must not depend on {wrong:?}");
    }
}

#[test]
fn files_open_by_saying_what_lives_in_them_and_stay_short() {
    let mut problems = Vec::new();
    for file in files("crates", ".rs").into_iter().chain(files("examples", ".rs")) {
        let own_tests = file.path.ends_with("tests.rs");
        if !file.text.starts_with("//!") && !own_tests {
            problems.push(format!("{} does not open with //!", file.path));
        }
        let lines = file.text.lines().count();
        if lines > LINES_MAX && !file.is_test() {
            problems.push(format!("{} has {lines} lines, at most {LINES_MAX}", file.path));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn exceptions_say_why_and_nothing_is_left_undone() {
    let words = ["#[allow(", "#![allow(", "todo!(", "unimplemented!(", "dbg!("];
    let mut found = Vec::new();
    let all = files("crates", ".rs").into_iter().chain(files("examples", ".rs"));
    for file in all.filter(|file| !file.path.contains("/tests/tidy/")) {
        let code = file.code();
        found.extend(
            words.iter().filter(|word| code.contains(**word)).map(|word| format!("{}: {word}", file.path)),
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A trace id, a serial or a time contains such a text now and then.
#[test]
fn tests_search_answers_for_no_short_digits() {
    let mut found = Vec::new();
    let all = ["crates/snavio-cli/tests", "examples"].into_iter().flat_map(|folder| files(folder, ".rs"));
    for file in all.filter(|file| !file.path.contains("/tests/tidy/")) {
        let literals = file.text.split("contains(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let by_chance = literals
            .filter(|text| !text.is_empty() && text.len() < 8 && text.bytes().all(|b| b.is_ascii_hexdigit()));
        found.extend(by_chance.map(|text| format!("{}: contains({text:?})", file.path)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn rules_that_tests_name_are_in_the_contract() {
    let contract: String = files("docs/spec", ".md").iter().map(|file| file.text.as_str()).collect();
    let kinds = [
        "MSG-", "PIP-", "REG-", "SCH-", "CLM-", "ORD-", "LIM-", "DLV-", "TEL-", "INT-", "ENG-", "AWS-",
        "QUA-",
    ];
    let mut unknown = BTreeSet::new();
    for file in files("crates", ".rs") {
        for word in file.text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
            let number = kinds.iter().find_map(|kind| word.strip_prefix(kind));
            let is_rule = number.is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()));
            if is_rule && !contract.contains(&format!("**{word}")) {
                unknown.insert(format!("{}: {word}", file.path));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:?}");
}

fn pages() -> Vec<File> {
    let mut pages = files("docs", ".md");
    pages.extend(files("examples", ".md"));
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        pages.push(File {
            path: name.into(),
            text: std::fs::read_to_string(root().join(name)).expect("the page can be read"),
        });
    }
    pages
}

#[test]
fn no_merge_is_left_half_done() {
    let marks = ["<<<<<<< ", "||||||| ", ">>>>>>> "];
    let mut found = Vec::new();
    for file in pages().into_iter().chain(files("crates", "")).chain(files("examples", "")) {
        let marked = |line: &&str| marks.iter().any(|mark| line.starts_with(mark));
        found.extend(file.text.lines().filter(marked).map(|line| format!("{}: {line}", file.path)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    let root = root();
    let pages = pages();
    let mut broken = Vec::new();
    for page in &pages {
        let folder = root.join(&page.path).parent().unwrap().to_owned();
        for target in page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || target.contains("://") || target.starts_with('<') {
                continue;
            }
            if !folder.join(file).exists() {
                broken.push(format!("{}: {target}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Whether a file declares a function or module with this text in its name.
fn declares(file: &File, text: &str) -> bool {
    file.text.match_indices(text).any(|(at, _)| {
        let before = file.text[..at].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        before.ends_with("fn ") || before.ends_with("mod ")
    })
}

/// Whether a word of a command is the filter of a test, such as `claims::late_report`.
fn is_filter(word: &str) -> bool {
    let is_path = word.contains("::") || word.contains('_');
    is_path && word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b':'))
}

/// A filter that matches no test would run none, and look like a proof.
#[test]
fn tests_that_the_verification_page_names_exist() {
    let page = std::fs::read_to_string(root().join("docs/verification.md")).expect("the page can be read");
    let code: Vec<_> = ["crates", "examples"].into_iter().flat_map(|folder| files(folder, ".rs")).collect();
    let mut unknown = Vec::new();
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let Some(commands) = row.split(" | ").nth(1) else { continue };
        let words = commands.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
        for word in words.filter(|word| is_filter(word)) {
            let name = word.trim_end_matches(':').rsplit("::").next().unwrap_or_default();
            if !code.iter().any(|file| declares(file, name)) {
                unknown.push(format!("{word}: {commands}"));
            }
        }
    }
    assert!(unknown.is_empty(), "no test has these names:\n{}", unknown.join("\n"));
}
