//! The ledger from the gateway's side: repeated requests, concurrent requests, and kills.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use snavio_testbed::Serving;
use tempfile::TempDir;
use tokio::task::JoinSet;

const KILLS: usize = 20;
const WORKERS: usize = 4;

struct Ledger {
    folder: TempDir,
    port: u16,
}

impl Ledger {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), port: snavio_testbed::free_port().unwrap() }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("books.db")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_general-ledger"));
        command.arg(name).arg("--database").arg(self.database());
        command
    }

    /// Starts the ledger. It is killed like `kill -9` when it is dropped.
    fn serve(&self, options: &[&str]) -> Serving {
        let mut command = self.command("serve");
        command.args(["--listen", &format!("127.0.0.1:{}", self.port)]).args(options);
        let mut serving = Serving::spawn(&mut command, &self.folder.path().join("stderr")).unwrap();
        serving.settle();
        assert!(serving.url().is_some(), "{}", serving.said());
        serving
    }

    fn client(&self) -> LedgerClient {
        // The process has one provider. A second call returns an error and uses the first provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        LedgerClient {
            http: reqwest::Client::new(),
            url: format!("http://127.0.0.1:{}/journal-entries", self.port),
        }
    }

    /// Returns the output of the trial balance, after the balance reports no fault.
    fn balance(&self) -> String {
        let output = self.command("trial-balance").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        said
    }
}

#[derive(Clone)]
struct LedgerClient {
    http: reqwest::Client,
    url: String,
}

impl LedgerClient {
    /// Posts an event, and returns the status and body of the answer. Fails if the connection was lost.
    async fn post(&self, id: &str, data: &str) -> reqwest::Result<(u16, String)> {
        let body = format!(r#"{{"eventId":"{id}","eventType":"sold","source":"acme/shop","data":{data}}}"#);
        let request =
            self.http.post(&self.url).header("Idempotency-Key", id).timeout(Duration::from_secs(30));
        let answer = request.body(body).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
}

fn entry(cents: usize) -> String {
    let amount = format!("{}.{:02}", cents / 100, cents % 100);
    format!(
        r#"{{"postingDate":"2026-11-15","currency":"EUR","lines":[{{"account":"1200","debit":"{amount}"}},{{"account":"8400","credit":"{amount}"}}]}}"#
    )
}

#[tokio::test]
async fn concurrent_requests_post_an_entry_once() {
    let ledger = Ledger::new();
    let _serving = ledger.serve(&[]);
    let (client, mut asking) = (ledger.client(), JoinSet::new());
    for _ in 0..20 {
        let client = client.clone();
        asking.spawn(async move { client.post("id-1", &entry(11_900)).await.unwrap() });
    }
    let first = r#"{"glPostingReference":"JE-2026-000001","eventId":"id-1","postingDate":"2026-11-15","currency":"EUR","total":"119.00"}"#;
    for answer in asking.join_all().await {
        assert_eq!(answer, (201, first.to_owned()));
    }
    let balance = ledger.balance();
    assert!(balance.contains("\nentries: 1\n"), "{balance}");
}

#[tokio::test]
async fn invalid_entry_differs_from_a_busy_ledger() {
    let ledger = Ledger::new();
    let _serving = ledger.serve(&["--lock-wait-ms", "50"]);
    let client = ledger.client();
    assert_eq!(client.post("id-1", &entry(100)).await.unwrap().0, 201);
    assert_eq!(client.post("id-1", &entry(101)).await.unwrap().0, 409, "the same id, and another content");
    let unbalanced = entry(100).replacen("1.00", "1.01", 1);
    let (status, answer) = client.post("id-2", &unbalanced).await.unwrap();
    assert_eq!((status, answer.as_str()), (422, r#"{"error":"debits are 1.01 and credits 1.00"}"#));
    let other_key = client
        .http
        .post(&client.url)
        .header("Idempotency-Key", "id-3")
        .body(r#"{"eventId":"id-4","data":{}}"#);
    assert_eq!(other_key.send().await.unwrap().status(), 400);

    let locked = snavio_sdk::sqlite::rusqlite::Connection::open(ledger.database()).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let body = format!(r#"{{"eventId":"id-2","data":{}}}"#, entry(100));
    let busy =
        client.http.post(&client.url).header("Idempotency-Key", "id-2").body(body).send().await.unwrap();
    assert_eq!((busy.status().as_u16(), &busy.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    locked.execute_batch("ROLLBACK").unwrap();
    let (status, answer) = client.post("id-2", &entry(100)).await.unwrap();
    assert_eq!((status, answer.contains("JE-2026-000002")), (201, true), "refusals left no gap: {answer}");
}

/// CLM-9: the ledger is killed after it has posted the entry, and before it answers.
#[tokio::test]
async fn repeated_request_gets_the_lost_answer() {
    let ledger = Ledger::new();
    let serving = ledger.serve(&["--slow-ms", "600000"]);
    let client = ledger.client();
    let asking = tokio::spawn(async move { client.post("id-1", &entry(100)).await });
    while !ledger.balance().contains("\nentries: 1\n") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(serving);
    assert!(asking.await.unwrap().is_err(), "there was no answer");

    let _serving = ledger.serve(&[]);
    let (status, answer) = ledger.client().post("id-1", &entry(100)).await.unwrap();
    assert_eq!((status, answer.contains("JE-2026-000001")), (201, true), "{answer}");
    let balance = ledger.balance();
    assert!(balance.contains("\nentries: 1\n"), "{balance}");
}

/// CLM-9: the ledger is killed twenty times during requests. The client repeats each request without an
/// answer, under its id.
#[tokio::test(flavor = "multi_thread")]
async fn journal_has_each_id_once_after_kills() {
    let ledger = Ledger::new();
    let clients = Arc::new(Clients::default());
    let mut asking = JoinSet::new();
    for _ in 0..WORKERS {
        asking.spawn(Arc::clone(&clients).work(ledger.client()));
    }
    for kill in 0..KILLS {
        let serving = ledger.serve(&[]);
        let enough = clients.answers.load(Ordering::SeqCst) + 1 + kill % 7;
        while clients.answers.load(Ordering::SeqCst) < enough {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(serving);
    }
    let _serving = ledger.serve(&[]);
    clients.is_closing.store(true, Ordering::SeqCst);
    let answers: BTreeMap<String, String> = asking.join_all().await.into_iter().flatten().collect();
    let in_doubt = clients.in_doubt.load(Ordering::SeqCst);
    println!("{} ids, {KILLS} kills, {in_doubt} calls without an answer", answers.len());
    assert!(in_doubt > 0, "no kill met a call");

    let balance = ledger.balance();
    assert!(balance.contains(&format!("\nentries: {}\n", answers.len())), "{balance}");
    for (id, answer) in answers {
        let again = ledger.client().post(&id, &entry(100)).await.unwrap();
        assert_eq!(again, (201, answer), "{id}: the same bytes as the first time");
    }
}

/// Clients that post entries until they are told to close. Each entry is posted until it is answered.
#[derive(Default)]
struct Clients {
    begun: AtomicUsize,
    answers: AtomicUsize,
    in_doubt: AtomicUsize,
    is_closing: AtomicBool,
}

impl Clients {
    async fn work(self: Arc<Self>, client: LedgerClient) -> Vec<(String, String)> {
        let mut answered = Vec::new();
        while !self.is_closing.load(Ordering::SeqCst) {
            let id = format!("id-{}", self.begun.fetch_add(1, Ordering::SeqCst));
            let answer = self.post_until_answered(&client, &id).await;
            answered.push((id, answer));
        }
        answered
    }

    async fn post_until_answered(&self, client: &LedgerClient, id: &str) -> String {
        loop {
            match client.post(id, &entry(100)).await {
                Ok((status, answer)) => {
                    assert_eq!(status, 201, "{answer}");
                    self.answers.fetch_add(1, Ordering::SeqCst);
                    return answer;
                }
                Err(error) => {
                    self.in_doubt.fetch_add(usize::from(!error.is_connect()), Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
}
