//! The binary `snavio`: one file per command in `cmd/`.
// The print macros panic if the reader has closed the output (`| head`): `output` prints without a panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cmd;
mod connection;
mod log;
mod output;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::output::Output;

/// Each message allocates and frees dozens of small objects on different threads. mimalloc is fast at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A gateway for commands and events: at-least-once delivery in, effects that happen once out.
#[derive(Parser)]
#[command(
    name = "snavio",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Example: snavio demo
Example: snavio serve --data /var/lib/snavio
Example: snavio apply -f registry.toml --credentials-dir ./credentials

Run `snavio <command> --help` for the options and examples of a command."
)]
struct Arguments {
    /// Print results as a table or as JSON.
    // The order puts it after the options of a command, and before --help, which has 999.
    #[arg(long, global = true, value_enum, default_value_t = Output::Table, display_order = 998)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(cmd::serve::Serve),
    Demo(cmd::demo::Demo),
    Apply(cmd::apply::Apply),
    Adapters(cmd::adapters::Adapters),
    Bans(cmd::bans::Bans),
    DryRun(cmd::dry_run::DryRun),
    RegisterTarget(cmd::register_target::RegisterTarget),
    Get(cmd::get::Get),
    Keys(cmd::keys::Keys),
    Grants(cmd::grants::Grants),
    Tokens(cmd::tokens::Tokens),
    PlatformKey(cmd::platform_key::PlatformKey),
    Push(cmd::push::Push),
    Status(cmd::status::Status),
    Emit(cmd::emit::Emit),
    Sign(cmd::sign::Sign),
    Receive(cmd::receive::Receive),
    Ack(cmd::ack::Ack),
    Claims(cmd::claims::Claims),
    Conflicts(cmd::conflicts::Conflicts),
    Entities(cmd::entities::Entities),
    Holds(cmd::holds::Holds),
    Erase(cmd::erase::Erase),
    Erasures(cmd::erasures::Erasures),
    Explain(cmd::explain::Explain),
    DeadLetters(cmd::dead_letters::DeadLetters),
    Doctor(cmd::doctor::Doctor),
    Backup(cmd::backup::Backup),
    Restore(cmd::restore::Restore),
    Recover(cmd::recover::Recover),
    MoveStore(cmd::move_store::MoveStore),
    Audit(cmd::audit::Audit),
    Bench(Box<cmd::bench::Bench>),
    /// Print shell completions.
    #[command(after_help = "Example: snavio completions bash > /etc/bash_completion.d/snavio
Example: snavio completions zsh > ~/.zfunc/_snavio
Example: snavio completions fish > ~/.config/fish/completions/snavio.fish")]
    Completions {
        /// The shell to complete in.
        shell: clap_complete::Shell,
    },
    /// Print the man page.
    #[command(after_help = "Example: snavio man > /usr/local/share/man/man1/snavio.1
Example: snavio man | man -l -
Example: snavio man | mandoc -a")]
    Man,
}

/// The sections of the top-level help, each with its commands in the order shown.
const SECTIONS: [(&str, &[&str]); 8] = [
    ("Run a node", &["serve", "demo", "status", "doctor"]),
    ("Configure", &["apply", "get", "register-target", "dry-run", "grants", "adapters", "push"]),
    ("Manage credentials", &["keys", "tokens", "platform-key"]),
    ("Send and receive", &["emit", "sign", "receive", "ack"]),
    ("Inspect and repair messages", &["explain", "claims", "conflicts", "dead-letters", "entities", "bans"]),
    ("Keep evidence", &["audit", "holds", "erase", "erasures"]),
    ("Look after the store", &["backup", "restore", "recover", "move-store"]),
    ("Tools", &["bench", "completions", "man", "help"]),
];

/// The command line, with its commands grouped in the top-level help: clap itself prints one flat list.
fn grouped_command_line() -> clap::Command {
    let command = Arguments::command();
    let header = *command.get_styles().get_header();
    let name_style = *command.get_styles().get_literal();
    let longest = SECTIONS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max();
    let width = longest.unwrap_or_default();
    let mut list = String::new();
    for (title, names) in SECTIONS {
        list.push_str(&format!("\n{header}{title}:{header:#}\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map_or("Print the help of a command".to_owned(), ToString::to_string);
            list.push_str(&format!("  {name_style}{name:width$}{name_style:#}  {about}\n"));
        }
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{header}Commands:{header:#}\n{list}\n\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

/// The end of a command: success, or a failure to print.
type CommandResult = Result<(), cmd::Failure>;

fn main() -> ExitCode {
    let matches = grouped_command_line().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let output = arguments.output;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::print_error(format_args!("snavio: cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.print_failure(&failure);
            failure.exit_code().into()
        }
    }
}

async fn run(arguments: Arguments) -> CommandResult {
    let output = arguments.output;
    match arguments.command {
        Command::Serve(serve) => serve.run().await,
        Command::Demo(demo) => demo.run(output).await,
        Command::Apply(apply) => apply.run(output).await,
        Command::Adapters(adapters) => adapters.run(output).await,
        Command::Bans(bans) => bans.run(output).await,
        Command::DryRun(dry_run) => dry_run.run(output).await,
        Command::RegisterTarget(register) => register.run(output).await,
        Command::Get(get) => get.run(output).await,
        Command::Keys(keys) => keys.run(output).await,
        Command::Grants(grants) => grants.run(output).await,
        Command::Tokens(tokens) => tokens.run(output).await,
        Command::PlatformKey(platform_key) => platform_key.run(output).await,
        Command::Push(push) => push.run(output).await,
        Command::Status(status) => status.run(output).await,
        Command::Emit(emit) => emit.run(output).await,
        Command::Sign(sign) => sign.run(),
        Command::Receive(receive) => receive.run(output).await,
        Command::Ack(ack) => ack.run(output).await,
        Command::Claims(claims) => claims.run(output).await,
        Command::Explain(explain) => explain.run(output).await,
        Command::Conflicts(conflicts) => conflicts.run(output).await,
        Command::Entities(entities) => entities.run(output).await,
        Command::Holds(holds) => holds.run(output).await,
        Command::Erase(erase) => erase.run(output).await,
        Command::Erasures(erasures) => erasures.run(output).await,
        Command::DeadLetters(dead_letters) => dead_letters.run(output).await,
        Command::Doctor(doctor) => doctor.run(output).await,
        Command::Backup(backup) => backup.run(output),
        Command::Restore(restore) => restore.run(output),
        Command::Recover(recover) => recover.run(output),
        Command::MoveStore(move_store) => move_store.run(output).await,
        Command::Audit(audit) => audit.run(output).await,
        Command::Bench(bench) => bench.run(output).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "snavio", &mut script);
            output::print_text(&String::from_utf8_lossy(&script));
            Ok(())
        }
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
            output::print_text(&String::from_utf8_lossy(&page));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Command line (10-interfaces)
    #[test]
    fn top_level_help_lists_every_command_once() {
        let command = Arguments::command();
        let mut names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        names.push("help");
        names.sort_unstable();
        let mut listed: Vec<_> = SECTIONS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        listed.sort_unstable();
        assert_eq!(listed, names);
        for inner in command.get_subcommands() {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.chars().count() <= 81, "{about}: the line is longer than 100 columns");
        }
    }

    /// The examples in the help of a command and of all its commands, each with the name of the command.
    fn collect_examples(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("Example: "));
        found.extend(lines.map(|line| (path.to_owned(), line.to_owned())));
        for inner in command.get_subcommands() {
            collect_examples(inner, &format!("{path} {}", inner.get_name()), found);
        }
    }

    /// The arguments of a shell command, up to a redirection or a pipe.
    fn split_arguments(line: &str) -> Vec<String> {
        let mut arguments = vec![String::new()];
        for (index, part) in line.split('\'').enumerate() {
            let is_quoted = index % 2 == 1;
            for (number, word) in part.split(' ').enumerate() {
                match number {
                    _ if is_quoted && number > 0 => {
                        arguments.last_mut().unwrap().push_str(&format!(" {word}"));
                    }
                    0 => arguments.last_mut().unwrap().push_str(word),
                    _ => arguments.push(word.to_owned()),
                }
            }
        }
        let end = arguments.iter().position(|word| [">", "<", "|"].contains(&word.as_str()));
        arguments.truncate(end.unwrap_or(arguments.len()));
        arguments.retain(|word| !word.is_empty());
        arguments
    }

    /// Command line (10-interfaces)
    #[test]
    fn every_command_has_three_valid_examples() {
        let (mut found, mut paths, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        collect_examples(&Arguments::command(), "snavio", &mut found);
        collect_paths(&Arguments::command(), "snavio", &mut paths);
        for path in paths {
            let count = found.iter().filter(|(owner, _)| *owner == path).count();
            if count < 3 {
                problems.push(format!("{path} has {count} examples"));
            }
        }
        for (path, line) in &found {
            let command = path.split(' ').take(2).collect::<Vec<_>>().join(" ");
            // The help wraps at 100 columns, and an example must stay on its line.
            if !line.starts_with(&command) || "Example: ".len() + line.chars().count() > 100 {
                problems.push(format!("{path} has a wrong or long example: {line}"));
            }
            // The value of a shell variable is not known here.
            if !line.contains('$')
                && let Err(error) = grouped_command_line().try_get_matches_from(split_arguments(line))
            {
                problems.push(format!("{line}: {error}"));
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    fn collect_paths(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        found.push(path.to_owned());
        for inner in command.get_subcommands() {
            collect_paths(inner, &format!("{path} {}", inner.get_name()), found);
        }
    }
}
