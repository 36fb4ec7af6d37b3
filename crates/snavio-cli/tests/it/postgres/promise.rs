//! What a database must do for a node to serve over it: flush what it commits (PIP-12), and be who it says it is
//! (QUA-7).

use std::path::PathBuf;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use snavio_testbed::Postgres;

use crate::engine::Database;
use crate::node::{Draft, Launch, Node, new_id, post};
use crate::wire::metric;

/// A node refuses to serve over the database and names the setting; told to be relaxed, it serves and says so
/// wherever somebody could rely on it.
async fn is_refused_or_relaxed(database: &Database, setting: &str) {
    let refusal = Node::refused(database, &Launch::default()).said();
    let named = format!("PostgreSQL's {setting} is off");
    assert!(refusal.contains(&named) && refusal.contains("store.relaxed"), "{refusal}");

    let node = Node::over(database, &Launch::default().set("STORE_RELAXED", true));
    assert_eq!(node.get("/readyz").await["durability"], "relaxed");
    let status = node.get("/v1/status").await;
    let durability = status["store"]["durability"].as_str().unwrap();
    assert!(durability.starts_with("relaxed: ") && durability.contains(&named), "{status}");
    assert_eq!(metric(&node, "snavio_relaxed").await, Some(1.0));
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let (code, answer) = post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!((code, answer["durability"].as_str()), (202, Some("relaxed")), "{answer}");
}

/// PIP-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_flush_is_refused_unless_relaxed() {
    for setting in ["fsync", "full_page_writes"] {
        let server = Postgres::start(&[&format!("{setting}=off")]).unwrap();
        is_refused_or_relaxed(&Database::at(server.database().unwrap()), setting).await;
    }
}

/// PIP-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_answers_before_it_flushes_is_refused_unless_relaxed() {
    let database = Database::new();
    let name = database.url.rsplit('/').next().unwrap();
    database.ask(&format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    is_refused_or_relaxed(&database, "synchronous_commit").await;
}

/// A certificate authority, and a certificate for this machine with its key, as files.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        std::fs::write(files.path("ca.pem"), authority.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(authority, key);
        let server = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        let key = KeyPair::generate().unwrap();
        std::fs::write(files.path("cert.pem"), server.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        std::fs::write(files.path("key.pem"), key.serialize_pem()).unwrap();
        files.hand_over();
        files
    }

    /// The server reads its key itself, as whoever it runs, and only if nobody else may.
    fn hand_over(&self) {
        let mode = |path: PathBuf, mode| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        mode(self.0.path().to_owned(), 0o755);
        mode(self.path("key.pem"), 0o600);
        if rustix::process::geteuid().is_root() {
            assert!(
                Command::new("chown").arg("postgres").arg(self.path("key.pem")).status().unwrap().success()
            );
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn server(&self) -> Postgres {
        let (cert, key) = (self.path("cert.pem"), self.path("key.pem"));
        let cert = format!("ssl_cert_file={}", cert.display());
        let key = format!("ssl_key_file={}", key.display());
        Postgres::start(&["ssl=on", &cert, &key]).unwrap()
    }

    /// A node that is told to trust them.
    fn trusted(&self) -> Launch {
        Launch::default().set("STORE_CA_FILE", self.path("ca.pem").display())
    }
}

/// QUA-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_certificates_to_trust_every_connection_to_the_database_is_encrypted() {
    let files = Certificates::new();
    let server = files.server();
    let database = Database::at(server.database().unwrap());
    let node = Node::over(&database, &files.trusted());
    node.get("/v1/status").await;
    let encrypted = "SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'snavio'";
    assert_eq!(database.ask(encrypted), "t");
}

/// QUA-7
#[test]
fn a_server_that_is_not_the_one_to_trust_is_refused() {
    let files = Certificates::new();
    let server = files.server();
    let database = Database::at(server.database().unwrap());
    let stranger = Certificates::new();
    let told = Node::refused(&database, &stranger.trusted()).said();
    assert!(told.contains("certificate"), "{told}");
    std::fs::write(stranger.path("ca.pem"), "").unwrap();
    let told = Node::refused(&database, &stranger.trusted()).said();
    assert!(told.contains("ca.pem") && told.contains("holds no certificate"), "{told}");
    // Its own word that it has no TLS is not taken for an excuse.
    let told = Node::refused(&Database::new(), &files.trusted()).said();
    assert!(told.contains("TLS"), "{told}");
}

/// QUA-7
#[test]
fn encryption_without_anybody_to_trust_is_refused_with_the_reason() {
    let database = Database::at(format!("{}?sslmode=require", Database::new().url));
    let told = Node::refused(&database, &Launch::default()).said();
    assert!(told.contains("sslmode=require needs store.ca_file"), "{told}");
}
