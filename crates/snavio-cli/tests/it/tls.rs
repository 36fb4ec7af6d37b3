//! TLS: HTTP/1.1 and HTTP/2, client certificates, and clear messages about wrong files.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::node::{Launch, Node, binary};
use crate::raw_wire::Wire;

/// A certificate authority for the test.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate for localhost, and returns it with its key.
    fn sign(&self) -> (String, String) {
        let params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

struct Files {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap(), authority: Authority::new() };
        let (cert, key) = files.authority.sign();
        files.write("cert.pem", &cert);
        files.write("key.pem", &key);
        files.write("ca.pem", &files.authority.pem);
        files
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn launch(&self) -> Launch {
        let launch = Launch::default().set("SERVER_TLS_CERT", self.path("cert.pem").display());
        launch.set("SERVER_TLS_KEY", self.path("key.pem").display())
    }

    fn client(&self) -> reqwest::ClientBuilder {
        snavio_sdk::Api::new("https://localhost", None).unwrap();
        let root = reqwest::Certificate::from_pem(self.authority.pem.as_bytes()).unwrap();
        reqwest::Client::builder().tls_certs_only([root])
    }
}

/// QUA-7
#[tokio::test]
async fn http1_and_http2_are_served_over_tls() {
    let files = Files::new();
    let node = Node::launch(&files.launch());
    assert!(node.url().starts_with("https://"));
    let url = format!("{}/livez", node.url());
    let answer = files.client().build().unwrap().get(&url).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, reqwest::Version::HTTP_2));
    let answer = files.client().http1_only().build().unwrap().get(&url).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, reqwest::Version::HTTP_11));
    let foreign = Authority::new();
    let root = reqwest::Certificate::from_pem(foreign.pem.as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
    assert!(client.get(&url).send().await.is_err(), "the certificate is checked by the client");
}

/// QUA-7
#[tokio::test]
async fn client_certificate_is_required_when_configured() {
    let files = Files::new();
    let node = Node::launch(&files.launch().set("SERVER_TLS_CLIENT_CA", files.path("ca.pem").display()));
    let url = format!("{}/livez", node.url());
    assert!(files.client().build().unwrap().get(&url).send().await.is_err());
    let identity = |authority: &Authority| {
        let (cert, key) = authority.sign();
        reqwest::Identity::from_pem(format!("{cert}{key}").as_bytes()).unwrap()
    };
    let trusted = files.client().identity(identity(&files.authority)).build().unwrap();
    assert_eq!(trusted.get(&url).send().await.unwrap().status(), 200);
    let foreign = files.client().identity(identity(&Authority::new())).build().unwrap();
    assert!(foreign.get(&url).send().await.is_err());
}

/// QUA-7
#[test]
fn unfinished_handshake_closes_the_connection() {
    let files = Files::new();
    let node = Node::launch(&files.launch().set("SERVER_HEADER_TIMEOUT_SECONDS", 1));
    for first in [&b""[..], b"\x16\x03\x01"] {
        let mut wire = Wire::to(&node);
        wire.send(first);
        assert!(wire.is_hung_up_within(std::time::Duration::from_secs(8)));
    }
    let mut wire = Wire::to(&node);
    wire.send("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while !wire.is_hung_up_within(std::time::Duration::from_secs(8)) {}
}

fn start_error(data: &Path, launch: &Launch) -> String {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.envs(launch.settings.iter().cloned()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{text}");
    text
}

/// QUA-7
#[test]
fn wrong_file_is_named_at_start() {
    let files = Files::new();
    let (_, other_key) = files.authority.sign();
    files.write("other-key.pem", &other_key);
    files.write("empty.pem", "");
    let data = files.path("data");
    for (variable, file, words) in [
        ("SERVER_TLS_CERT", "missing.pem", "cannot read certificates from"),
        ("SERVER_TLS_CERT", "empty.pem", "holds no certificate"),
        ("SERVER_TLS_KEY", "missing.pem", "cannot read the private key from"),
        ("SERVER_TLS_KEY", "cert.pem", "holds no private key"),
        ("SERVER_TLS_KEY", "other-key.pem", "does not fit the certificate"),
        ("SERVER_TLS_CLIENT_CA", "empty.pem", "holds no certificate"),
    ] {
        let message = start_error(&data, &files.launch().set(variable, files.path(file).display()));
        assert!(message.contains(words) && message.contains(file), "{variable} = {file}: {message}");
    }
}
