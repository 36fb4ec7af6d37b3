//! Eight processes race for the same messages.

use std::process::{Command, Stdio};

use snavio_sdk::once::Once;

use crate::consumer::{AfterWrite, Consumer, delivery};
use crate::on_postgres::OnPostgres;
use crate::on_sqlite::Sqlite;

const PROCESSES: usize = 8;
const MESSAGES: usize = 100;
/// The variable that passes the database to a racer.
const DATABASE: &str = "TEST_ONCE_DATABASE";
/// The variable that passes a racer its first message. Each racer goes through all messages from there, so
/// they meet everywhere.
const BEGIN: &str = "TEST_ONCE_BEGIN";

/// CLM-10
#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_have_each_effect_once_in_sqlite() {
    let consumer = Sqlite::new().await;
    race(&consumer.path.display().to_string());
    assert_eq!(consumer.effects().await, MESSAGES as i64);
}

/// CLM-10
#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_have_each_effect_once_in_postgresql() {
    let consumer = OnPostgres::new().await;
    race(&consumer.url);
    assert_eq!(consumer.effects().await, MESSAGES as i64);
}

/// Starts the racers, waits for them, and asserts that they report each effect once in sum.
fn race(database: &str) {
    let racers = (0..PROCESSES).map(|racer| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::racer", "--ignored", "--nocapture"])
            .env(DATABASE, database)
            .env(BEGIN, (racer * MESSAGES / PROCESSES).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut done = [0; PROCESSES];
    for (racer, done) in racers.collect::<Vec<_>>().into_iter().zip(&mut done) {
        let output = racer.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        let count = said.lines().find_map(|line| line.split_once("done: ")?.1.parse::<usize>().ok());
        *done = count.unwrap_or_else(|| panic!("the racer says nothing: {said}"));
    }
    println!("effects of each process: {done:?}");
    assert_eq!(done.iter().sum::<usize>(), MESSAGES);
}

#[tokio::test]
#[ignore = "runs in processes that the tests above start"]
async fn racer() {
    let database = std::env::var(DATABASE).unwrap();
    let done = if database.contains("://") {
        run(OnPostgres::at(database)).await
    } else {
        run(Sqlite::at(database.into())).await
    };
    println!("\ndone: {done}");
}

async fn run(consumer: impl Consumer) -> usize {
    let mut done = 0;
    let begin: usize = std::env::var(BEGIN).unwrap().parse().unwrap();
    for message in begin..begin + MESSAGES {
        let message = message % MESSAGES;
        let once =
            consumer.once(delivery(&format!("id-{message}")), AfterWrite::returning("done")).await.unwrap();
        assert_eq!(once.result(), Some("done"));
        done += usize::from(matches!(once, Once::Done(_)));
    }
    done
}
