//! Requirements on a database before a node serves over it: it must flush its commits (PIP-12) and prove its
//! identity (QUA-7).

use std::path::PathBuf;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use snavio_testbed::Postgres;

use crate::engine::Database;
use crate::node::{Draft, Launch, Node, new_id, post};
use crate::wire::metric;

/// Checks that a node refuses to serve over the database and names the setting. In relaxed mode the node
/// serves, and shows that it is relaxed in status, readiness, metrics and answers.
async fn assert_refused_or_relaxed(database: &Database, setting: &str) {
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
async fn server_without_flushes_is_refused_unless_relaxed() {
    for setting in ["fsync", "full_page_writes"] {
        let server = Postgres::start(&[&format!("{setting}=off")]).unwrap();
        assert_refused_or_relaxed(&Database::at(server.database().unwrap()), setting).await;
    }
}

/// PIP-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_with_asynchronous_commit_is_refused_unless_relaxed() {
    let database = Database::new();
    let name = database.url.rsplit('/').next().unwrap();
    database.ask(&format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    assert_refused_or_relaxed(&database, "synchronous_commit").await;
}

/// Files of a certificate authority, and of a certificate for this machine with its key.
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
        files.set_permissions();
        files
    }

    /// Makes the key readable for the user of the server, which refuses a key that others can read.
    fn set_permissions(&self) {
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

    /// Launch options of a node that trusts these certificates.
    fn trusting_launch(&self) -> Launch {
        Launch::default().set("STORE_CA_FILE", self.path("ca.pem").display())
    }
}

/// QUA-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trusted_certificates_encrypt_every_database_connection() {
    let files = Certificates::new();
    let server = files.server();
    let database = Database::at(server.database().unwrap());
    let node = Node::over(&database, &files.trusting_launch());
    node.get("/v1/status").await;
    let encrypted = "SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'snavio'";
    assert_eq!(database.ask(encrypted), "t");
}

/// QUA-7
#[test]
fn server_with_untrusted_certificate_is_refused() {
    let files = Certificates::new();
    let server = files.server();
    let database = Database::at(server.database().unwrap());
    let other = Certificates::new();
    let log = Node::refused(&database, &other.trusting_launch()).said();
    assert!(log.contains("certificate"), "{log}");
    std::fs::write(other.path("ca.pem"), "").unwrap();
    let log = Node::refused(&database, &other.trusting_launch()).said();
    assert!(log.contains("ca.pem") && log.contains("holds no certificate"), "{log}");
    // A server without TLS is refused, although it says so itself.
    let log = Node::refused(&Database::new(), &files.trusting_launch()).said();
    assert!(log.contains("TLS"), "{log}");
}

/// QUA-7
#[test]
fn encryption_without_ca_file_is_refused_with_reason() {
    let database = Database::at(format!("{}?sslmode=require", Database::new().url));
    let log = Node::refused(&database, &Launch::default()).said();
    assert!(log.contains("sslmode=require needs store.ca_file"), "{log}");
}
