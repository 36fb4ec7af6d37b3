//! `snavio recover`.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use snavio_model::time::{Clock, Timestamp};
use snavio_server::MachineClock;
use snavio_store::Act;
use snavio_store::engine::sqlite::{Contents, Kept, Recovery};

use super::Failure;
use crate::Ended;
use crate::output::Output;

/// Recover a store whose write-ahead log is damaged.
///
/// Copies the store's files into a folder recovery-<time> beside them, shows which commits can be kept, asks, and changes
/// the store only then. The node must be stopped.
///
/// Example: snavio recover --data ./snavio-data
///
/// Example: snavio recover --data ./snavio-data --keep readable --yes
#[derive(Args)]
pub(crate) struct Recover {
    /// The data folder.
    #[arg(long, default_value = "./snavio-data")]
    data: PathBuf,
    /// Which commits to keep, instead of those that the command proposes.
    #[arg(long, value_enum)]
    keep: Option<Keep>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Keep {
    /// All commits that verify, before and behind the damage.
    All,
    /// The commits before the damage, as SQLite reads them.
    Readable,
}

impl Recover {
    pub(crate) fn run(self, output: Output) -> Ended {
        if !self.yes && !std::io::stdin().is_terminal() {
            return match Recovery::find_damage(&self.data)? {
                None => {
                    self.report_no_damage(output);
                    Ok(())
                }
                Some(damage) => Err(Failure::misuse(format!(
                    "the log is {damage}; nothing was copied or changed: run recover in a terminal, or use --yes to keep what it proposes"
                ))),
            };
        }
        let now = MachineClock::after(Timestamp(0)).now();
        let Some(recovery) = Recovery::prepare(&self.data, now)? else {
            self.report_no_damage(output);
            return Ok(());
        };
        let kept = match self.keep {
            Some(Keep::All) => Kept::All,
            Some(Keep::Readable) => Kept::Readable,
            None => recovery.advice().ok_or_else(|| unusable(&recovery))?,
        };
        let sound = recovery.contents(kept).is_some_and(Contents::is_sound);
        if !sound {
            return Err(unusable(&recovery));
        }
        let proposal = proposal(&recovery, kept);
        match output {
            Output::Table => output.object(&proposal),
            Output::Json if self.yes => {}
            Output::Json => ask(&format!("{proposal:#}\n")),
        }
        if !self.yes && !is_confirmed()? {
            let copies = recovery.copies.display();
            return Err(Failure::new(format!(
                "the store was not changed; copies of its files are in {copies}"
            )));
        }
        let act = Act { who: "operator".to_owned(), why: String::new(), at: now };
        let recovered = recovery.apply(kept, act)?;
        let done = json!({ "recovered": self.data, "kept": name(recovered.kept), "epoch": recovered.epoch });
        match output {
            Output::Table => output.object(&done),
            Output::Json => {
                let mut document = proposal;
                document["recovered"] = done;
                output.object(&document);
            }
        }
        Ok(())
    }

    fn report_no_damage(&self, output: Output) {
        output.object(&json!({ "data": self.data, "damage": Value::Null }));
    }
}

fn name(kept: Kept) -> &'static str {
    match kept {
        Kept::All => "all",
        Kept::Readable => "readable",
    }
}

fn proposal(recovery: &Recovery, kept: Kept) -> Value {
    json!({
        "damage": recovery.damage.to_string(),
        "copies": recovery.copies,
        "readable": contents(&recovery.readable),
        "all": recovery.all.as_ref().map(contents),
        "keep": name(kept),
        "warning": recovery.warning,
    })
}

fn contents(contents: &Contents) -> Value {
    if !contents.is_sound() {
        return json!({ "unusable": contents.findings });
    }
    json!({
        "messages": contents.messages,
        "claims": contents.claims,
        "deliveries": contents.deliveries,
        "dead_letters": contents.dead_letters,
        "registry_version": contents.registry_version,
        "newest_at": contents.newest_at.map(|at| at.to_string()),
        "lost_pages": contents.lost_pages,
    })
}

fn unusable(recovery: &Recovery) -> Failure {
    let findings = recovery.all.iter().chain([&recovery.readable]).find_map(|state| state.findings.first());
    Failure::new(format!(
        "the log is {}; what it holds cannot be used ({}): restore the last backup into another folder (snavio restore); copies of all files are in {}",
        recovery.damage,
        findings.map_or("it holds no other commits", String::as_str),
        recovery.copies.display(),
    ))
}

/// Standard output is for the result.
fn ask(text: &str) {
    // The answer counts, also where the question cannot be written.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn is_confirmed() -> Result<bool, Failure> {
    ask("\nChange the store accordingly? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}
