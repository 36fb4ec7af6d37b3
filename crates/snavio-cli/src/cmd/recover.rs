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
use crate::CommandResult;
use crate::output::Output;

/// Recover an embedded store with a damaged write-ahead log.
///
/// Stop the node first. The command copies the files of the store into a folder recovery-<time> beside them
/// and shows the commits that it can keep. It changes the store only after you confirm.
#[derive(Args)]
#[command(after_help = "Example: snavio recover
Example: snavio recover --data /var/lib/snavio
Example: snavio recover --data /var/lib/snavio --keep readable --yes")]
pub(crate) struct Recover {
    /// The data folder of the node.
    #[arg(long, default_value = "./snavio-data")]
    data: PathBuf,
    /// The commits to keep, instead of the command's proposal.
    #[arg(long, value_enum)]
    keep: Option<KeepOption>,
    /// Change the store without asking for confirmation.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KeepOption {
    /// All commits with a correct checksum, before and after the damage.
    All,
    /// The commits before the damage, which SQLite can read.
    Readable,
}

impl Recover {
    pub(crate) fn run(self, output: Output) -> CommandResult {
        if !self.yes && !std::io::stdin().is_terminal() {
            return match Recovery::find_damage(&self.data)? {
                None => {
                    self.report_no_damage(output);
                    Ok(())
                }
                Some(damage) => Err(Failure::misuse(format!(
                    "the log is {damage}; nothing was copied or changed: run snavio recover in a terminal to confirm, \
                     or use --yes to keep the commits that it proposes"
                ))),
            };
        }
        let now = MachineClock::after(Timestamp(0)).now();
        let Some(recovery) = Recovery::prepare(&self.data, now)? else {
            self.report_no_damage(output);
            return Ok(());
        };
        let kept = match self.keep {
            Some(KeepOption::All) => Kept::All,
            Some(KeepOption::Readable) => Kept::Readable,
            None => recovery.advice().ok_or_else(|| unusable(&recovery))?,
        };
        let is_sound = recovery.contents(kept).is_some_and(Contents::is_sound);
        if !is_sound {
            return Err(unusable(&recovery));
        }
        let proposal = proposal(&recovery, kept);
        match output {
            Output::Table => output.print_object(&proposal),
            Output::Json if self.yes => {}
            Output::Json => print_question(&format!("{proposal:#}\n")),
        }
        if !self.yes && !confirm()? {
            let copies = recovery.copies.display();
            return Err(Failure::new(format!(
                "the store was not changed; copies of its files are in {copies}"
            )));
        }
        let act = Act { who: "operator".to_owned(), why: String::new(), at: now };
        let recovered = recovery.apply(kept, act)?;
        let kept = kept_name(recovered.kept);
        let done = json!({ "recovered": self.data, "kept": kept, "epoch": recovered.epoch });
        match output {
            Output::Table => output.print_object(&done),
            Output::Json => {
                let mut document = proposal;
                document["recovered"] = done;
                output.print_object(&document);
            }
        }
        Ok(())
    }

    fn report_no_damage(&self, output: Output) {
        output.print_object(&json!({ "data": self.data, "damage": Value::Null }));
    }
}

fn kept_name(kept: Kept) -> &'static str {
    match kept {
        Kept::All => "all",
        Kept::Readable => "readable",
    }
}

fn proposal(recovery: &Recovery, kept: Kept) -> Value {
    json!({
        "damage": recovery.damage.to_string(),
        "copies": recovery.copies,
        "readable": contents_summary(&recovery.readable),
        "all": recovery.all.as_ref().map(contents_summary),
        "keep": kept_name(kept),
        "warning": recovery.warning,
    })
}

fn contents_summary(contents: &Contents) -> Value {
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
        "the log is {}; its commits cannot be used ({}): restore the last backup into another folder (snavio restore); \
         copies of all files are in {}",
        recovery.damage,
        findings.map_or("it holds no other commits", String::as_str),
        recovery.copies.display(),
    ))
}

/// Prints to standard error: standard output is for the result.
fn print_question(text: &str) {
    // If the question cannot be written, the answer still decides.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn confirm() -> Result<bool, Failure> {
    print_question("\nChange the store as shown? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}
