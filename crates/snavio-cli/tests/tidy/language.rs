//! Plain language (CONTRIBUTING.md): comments, texts, names and documents stay below limits that can be counted.
//!
//! A file that is above a limit is listed in `language.tsv` with its counts and may not get worse.
//! `TEST_GOLDEN=write` lists the files anew.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::{File, files, pages};

/// Riddle words for each 1,000 words of a file, from 100 words on.
const RIDDLES_PER_1000: usize = 18;
/// Sentences with a riddle start, of 100 sentences of a file.
const STARTS_PER_100: usize = 10;
/// Closures of a file that are bound to a name.
const NAMED_CLOSURES: usize = 2;
/// Words of the name of a test.
const TEST_WORDS: usize = 10;
/// Columns of a comment or of a line of prose.
const COLUMNS: usize = 110;
/// Names of types that name no thing.
const VAGUE: [&str; 40] = [
    "Known", "Told", "Came", "Held", "Found", "Over", "Aside", "Place", "Which", "Trouble", "Gone", "Taken",
    "Left", "Kept", "Seen", "Met", "Asked", "Given", "Heard", "Said", "Begun", "Ended", "Done", "Moved",
    "Reached", "Ready", "Whose", "Use", "Way", "Case", "Thing", "Part", "Hand", "Door", "Turn", "Lane",
    "Word", "Sight", "Back", "Behind",
];

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is right")
}

static RIDDLE: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?i)\b(what|whoever|whatever|whose|whom|somebody|nobody|anybody|everybody)\b",
        r"|\b(of which|by which|those that|that which|one that|what became|what comes|what came)\b",
        r"|\b(until when|from when on|all the same|is over|at it|of late)\b",
    ))
});
static START: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        "^(What|Who|Whoever|Whose|Of|That|Those|Where|How|Nobody|Nothing|Until when|To whom|Under which)\\b",
    )
});
static TEST_START: LazyLock<Regex> =
    LazyLock::new(|| regex("^(what|who|whose|of|nobody|nothing|those|that|where|how|none|one|another)_"));
static WORD: LazyLock<Regex> = LazyLock::new(|| regex("[A-Za-z'`_]+"));
static SENTENCE: LazyLock<Regex> = LazyLock::new(|| regex("[.!?:;]\\s+"));
static COMMENT: LazyLock<Regex> = LazyLock::new(|| regex(r"^\s*//[/!]?\s?(.*)"));
static LITERAL: LazyLock<Regex> = LazyLock::new(|| regex(r#""((?:[^"\\]|\\.)*)""#));
static CLOSURE_IT: LazyLock<Regex> = LazyLock::new(|| regex(r"\|\s*(?:mut )?it\s*[|,:]"));
static NAMED_CLOSURE: LazyLock<Regex> = LazyLock::new(|| regex(r"\blet \w+ = (?:async )?(?:move )?\|"));
static TEST: LazyLock<Regex> =
    LazyLock::new(|| regex(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)"));
static TYPE: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(?:struct|enum|trait|type) ([A-Z][a-z]+)\b[^A-Z]"));
static FENCE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?s)```.*?```"));
static CODE: LazyLock<Regex> = LazyLock::new(|| regex("`[^`]*`"));

/// The counts of one file.
#[derive(Default, Clone, PartialEq)]
struct Counts {
    words: usize,
    riddles: usize,
    sentences: usize,
    starts: usize,
    closures_it: usize,
    named_closures: usize,
    test_names: usize,
    vague_types: usize,
    wide_lines: usize,
}

impl Counts {
    fn add_text(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            // A sentence ends before a capital letter or a name in backticks.
            let ends = SENTENCE.find_iter(rest).map(|end| end.end());
            let starts_sentence =
                |end: &usize| rest[*end..].starts_with(|c: char| c.is_ascii_uppercase() || c == '`');
            let end = ends.into_iter().find(starts_sentence).unwrap_or(rest.len());
            let (sentence, after) = rest.split_at(end);
            self.add_sentence(sentence.trim_start_matches(|c: char| "-*#0123456789. ".contains(c)));
            rest = after;
        }
    }

    fn add_sentence(&mut self, sentence: &str) {
        let words = WORD.find_iter(sentence).count();
        if words < 4 {
            return;
        }
        self.sentences += 1;
        self.words += words;
        self.riddles += RIDDLE.find_iter(sentence).count();
        self.starts += usize::from(START.is_match(sentence));
    }

    fn of_code(file: &File) -> Self {
        let mut counts = Self::default();
        let mut block = String::new();
        for line in file.text.lines().chain([""]) {
            if let Some(comment) = COMMENT.captures(line) {
                counts.wide_lines +=
                    usize::from(line.chars().count() > COLUMNS && !comment[1].starts_with('|'));
                block = format!("{block} {}", &comment[1]);
            } else if !block.is_empty() {
                counts.add_text(block.trim());
                block.clear();
            }
        }
        let code = file.code();
        if !file.is_test() {
            LITERAL.captures_iter(&code).for_each(|literal| counts.add_text(&literal[1]));
        }
        let all: String = file
            .text
            .lines()
            .filter(|line| !COMMENT.is_match(line))
            .map(|line| format!("{line}\n"))
            .collect();
        counts.closures_it = CLOSURE_IT.find_iter(&all).count();
        counts.named_closures = NAMED_CLOSURE.find_iter(&all).count();
        let names = TEST.captures_iter(&all).map(|test| test[1].to_owned());
        let is_riddle = |name: &String| name.split('_').count() > TEST_WORDS || TEST_START.is_match(name);
        counts.test_names = names.filter(is_riddle).count();
        counts.vague_types = TYPE.captures_iter(&all).filter(|name| VAGUE.contains(&&name[1])).count();
        counts
    }

    fn of_page(file: &File) -> Self {
        let mut counts = Self::default();
        let text = FENCE.replace_all(&file.text, "");
        let prose = |line: &&str| !line.starts_with('|') && !line.starts_with('[') && !line.contains("](");
        counts.wide_lines = text.lines().filter(prose).filter(|line| line.chars().count() > COLUMNS).count();
        let text = CODE.replace_all(&text, "x");
        let mut block = String::new();
        for line in text.lines().chain([""]) {
            if line.starts_with('|') {
                line.split('|').for_each(|cell| counts.add_text(cell.trim()));
                continue;
            }
            let begins =
                line.trim().is_empty() || line.starts_with(|c: char| "-*#".contains(c) || c.is_ascii_digit());
            if begins {
                counts.add_text(block.trim());
                block.clear();
            }
            block = format!("{block} {}", line.trim());
        }
        counts.add_text(block.trim());
        counts
    }

    /// The counts that have a limit of their own for each file.
    fn limited(&self) -> [(&'static str, usize, usize); 7] {
        let long = self.words >= 100;
        [
            (
                "riddle words",
                self.riddles,
                if long { self.words * RIDDLES_PER_1000 / 1000 } else { usize::MAX },
            ),
            (
                "riddle starts",
                self.starts,
                if long { self.sentences * STARTS_PER_100 / 100 } else { usize::MAX },
            ),
            ("closure parameters named `it`", self.closures_it, 0),
            ("closures bound to a name", self.named_closures, NAMED_CLOSURES),
            ("test names that are long or start with a riddle", self.test_names, 0),
            ("types of one vague word", self.vague_types, 0),
            ("comments or prose beyond 110 columns", self.wide_lines, 0),
        ]
    }
}

fn list() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tidy/language.tsv")
}

/// The counts that files above a limit may have, by file and count.
fn excused() -> BTreeMap<(String, String), usize> {
    let text = std::fs::read_to_string(list()).unwrap_or_default();
    let entry = |line: &str| {
        let mut cells = line.split('\t');
        let (file, count, number) = (cells.next()?, cells.next()?, cells.next()?);
        Some(((file.to_owned(), count.to_owned()), number.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

#[test]
fn language_gets_no_worse() {
    let code = files("crates", ".rs").into_iter().chain(files("examples", ".rs"));
    let code = code.filter(|file| !file.path.ends_with("tidy/language.rs"));
    let counted: Vec<_> = code
        .map(|file| (file.path.clone(), Counts::of_code(&file)))
        .chain(pages().iter().map(|page| (page.path.clone(), Counts::of_page(page))))
        .collect();
    let excused = excused();
    let (mut listed, mut worse) = (String::new(), Vec::new());
    for (path, counts) in &counted {
        for (name, count, limit) in counts.limited().into_iter().filter(|(_, count, limit)| count > limit) {
            writeln!(listed, "{path}\t{name}\t{count}").expect("a text takes more text");
            let allowed = excused.get(&(path.clone(), name.to_owned())).copied().unwrap_or(limit);
            if count > allowed {
                worse.push(format!("{path}: {count} {name}, at most {allowed}"));
            }
        }
    }
    if std::env::var("TEST_GOLDEN").is_ok_and(|mode| mode == "write") {
        std::fs::write(list(), listed).expect("the list can be written");
        return;
    }
    assert!(worse.is_empty(), "plain language (CONTRIBUTING.md):\n{}", worse.join("\n"));
}

/// Groups that are still above the limits of a crate: their texts are still to be rewritten.
const UNFINISHED: [&str; 2] = ["snavio-server", "snavio-store"];
/// Riddle words for each 1,000 words of a crate, and of the documents.
const CRATE_RIDDLES_PER_1000: usize = 3;
const DOCUMENT_RIDDLES_PER_1000: usize = 5;

/// `cargo test -p snavio-cli --test tidy language -- --nocapture` prints the sums.
#[test]
fn crates_and_documents_speak_plainly() {
    let mut sums: BTreeMap<String, Counts> = BTreeMap::new();
    let mut add = |group: String, counts: Counts| {
        let sum = sums.entry(group).or_default();
        sum.words += counts.words;
        sum.riddles += counts.riddles;
        sum.sentences += counts.sentences;
        sum.starts += counts.starts;
    };
    for file in files("crates", ".rs").into_iter().filter(|file| !file.path.ends_with("tidy/language.rs")) {
        add(file.path.split('/').nth(1).unwrap_or_default().to_owned(), Counts::of_code(&file));
    }
    pages().iter().for_each(|page| add("documents".to_owned(), Counts::of_page(page)));
    for (group, sum) in &sums {
        let riddles = 1000 * sum.riddles / sum.words.max(1);
        println!("{group}: {riddles} riddle words per 1,000, {} starts of {}", sum.starts, sum.sentences);
        let limit = if group == "documents" { DOCUMENT_RIDDLES_PER_1000 } else { CRATE_RIDDLES_PER_1000 };
        let is_plain = riddles <= limit && sum.starts * 100 <= sum.sentences;
        assert!(
            is_plain || UNFINISHED.contains(&group.as_str()),
            "{group}: {riddles} per 1,000, {} starts",
            sum.starts
        );
    }
}
