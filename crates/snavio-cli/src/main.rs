//! The binary `snavio`: one file per command in `cmd/`.
// They panic where nobody reads any more (`| head`): `output` prints.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cmd;
mod connection;
mod log;
mod output;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::output::Output;

/// A message allocates and frees a few dozen small things on different threads; this allocator is made for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A gateway for commands and events: at-least-once delivery in, effects that happen once out.
#[derive(Parser)]
#[command(name = "snavio", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
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
    ///
    /// Example: snavio completions bash > /etc/bash_completion.d/snavio
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page.
    ///
    /// Example: snavio man > /usr/local/share/man/man1/snavio.1
    Man,
}

/// What a command ends with: success, a failure to be told, or a failure that was told already.
type Ended = Result<(), cmd::Failure>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
            output.failure(&failure);
            failure.exit_code().into()
        }
    }
}

async fn run(arguments: Arguments) -> Ended {
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
