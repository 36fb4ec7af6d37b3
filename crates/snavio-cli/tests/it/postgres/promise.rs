//! What a database must do for a node to serve over it: flush what it commits (PIP-12), and be who it says it is
//! (QUA-7).

use std::path::PathBuf;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use reqwest::Method;
use snavio_testbed::Postgres;

use crate::node::{Draft, new_id, post};
use crate::postgres::node::{DatabaseNode, Secrets};

/// A node refuses to serve over the database and names the setting; told to be relaxed, it serves and says so
/// wherever somebody could rely on it.
async fn is_refused_or_relaxed(database: &str, setting: &str) {
    let secrets = Secrets::new();
    let refusal = DatabaseNode::refusal(database, &secrets.settings());
    let named = format!("PostgreSQL's {setting} is off");
    assert!(refusal.contains(&named) && refusal.contains("store.relaxed"), "{refusal}");

    let mut settings = secrets.settings();
    settings.push(("SNAVIO_STORE_RELAXED", "true".to_owned()));
    let node = DatabaseNode::start(database, &settings);
    let token = secrets.token();
    assert_eq!(node.get(&token, "/readyz").await["durability"], "relaxed");
    let status = node.get(&token, "/v1/status").await;
    let durability = status["store"]["durability"].as_str().unwrap();
    assert!(durability.starts_with("relaxed: ") && durability.contains(&named), "{status}");
    let metrics = node.api().with_token(&token).send(Method::GET, "/metrics", None, "text/plain").await;
    assert!(format!("{metrics:?}").contains("snavio_relaxed 1"), "{metrics:?}");
    let cast = node.cast(&token).await;
    let billing = node.client(&cast.billing);
    let (code, answer) = post(&billing, Draft::new("pay", &new_id()).sign(&cast.billing)).await;
    assert_eq!((code, answer["durability"].as_str()), (202, Some("relaxed")), "{answer}");
}

/// PIP-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_flush_is_refused_unless_relaxed() {
    for setting in ["fsync", "full_page_writes"] {
        let server = Postgres::start(&[&format!("{setting}=off")]).unwrap();
        is_refused_or_relaxed(&server.database().unwrap(), setting).await;
    }
}

/// PIP-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_answers_before_it_flushes_is_refused_unless_relaxed() {
    let server = Postgres::shared();
    let database = server.database().unwrap();
    let name = database.rsplit('/').next().unwrap();
    server.ask("postgres", &format!("ALTER DATABASE {name} SET synchronous_commit = off")).unwrap();
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

    /// Secrets and the certificates to trust.
    fn settings(&self, secrets: &Secrets) -> Vec<(&'static str, String)> {
        let mut settings = secrets.settings();
        settings.push(("SNAVIO_STORE_CA_FILE", self.path("ca.pem").display().to_string()));
        settings
    }
}

/// QUA-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_certificates_to_trust_every_connection_to_the_database_is_encrypted() {
    let (files, secrets) = (Certificates::new(), Secrets::new());
    let server = files.server();
    let database = server.database().unwrap();
    let node = DatabaseNode::start(&database, &files.settings(&secrets));
    node.get(&secrets.token(), "/v1/status").await;
    let encrypted = "SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'snavio'";
    assert_eq!(server.ask(&database, encrypted).unwrap(), "t");
}

/// QUA-7
#[test]
fn a_server_that_is_not_the_one_to_trust_is_refused() {
    let (files, secrets) = (Certificates::new(), Secrets::new());
    let server = files.server();
    let database = server.database().unwrap();
    let stranger = Certificates::new();
    let told = DatabaseNode::refusal(&database, &stranger.settings(&secrets));
    assert!(told.contains("certificate"), "{told}");
    std::fs::write(stranger.path("ca.pem"), "").unwrap();
    let told = DatabaseNode::refusal(&database, &stranger.settings(&secrets));
    assert!(told.contains("ca.pem") && told.contains("holds no certificate"), "{told}");
    // Its own word that it has no TLS is not taken for an excuse.
    let plain = Postgres::shared().database().unwrap();
    let told = DatabaseNode::refusal(&plain, &files.settings(&secrets));
    assert!(told.contains("TLS"), "{told}");
}

/// QUA-7
#[test]
fn encryption_without_anybody_to_trust_is_refused_with_the_reason() {
    let database = format!("{}?sslmode=require", Postgres::shared().database().unwrap());
    let told = DatabaseNode::refusal(&database, &Secrets::new().settings());
    assert!(told.contains("sslmode=require needs store.ca_file"), "{told}");
}
