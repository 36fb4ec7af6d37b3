//! TLS: the server's certificate and key, and who may sign those of its clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsConfig;

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, or not readable as PEM.
    #[error("cannot read {what} from {file}")]
    File {
        /// What should be in it.
        what: &'static str,
        /// Which file.
        file: PathBuf,
        /// Why.
        #[source]
        source: PemError,
    },
    /// A PEM file without what it is for.
    #[error("{file} holds no {what}")]
    Empty {
        /// What should be in it.
        what: &'static str,
        /// Which file.
        file: PathBuf,
    },
    /// The two do not belong together, or cannot be used.
    #[error("the key in {key} does not fit the certificate in {cert}")]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// A certificate that cannot sign others.
    #[error("the certificates in {file} cannot be used to check clients")]
    ClientCa {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The provider lacks what TLS needs.
    #[error("TLS cannot be set up")]
    Provider(#[source] rustls::Error),
}

/// Whether a node could serve with these files.
pub fn check_tls(config: &TlsConfig) -> Result<(), TlsError> {
    acceptor(config).map(drop)
}

/// Reads the files and takes them for use.
pub(crate) fn acceptor(config: &TlsConfig) -> Result<TlsAcceptor, TlsError> {
    let chain = certificates(&config.cert)?;
    let key = PrivateKeyDer::from_pem_file(&config.key).map_err(|source| match source {
        PemError::NoItemsFound => TlsError::Empty { what: "private key", file: config.key.clone() },
        source => TlsError::File { what: "the private key", file: config.key.clone(), source },
    })?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Provider)?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = Arc::new(roots(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|source: VerifierBuilderError| {
                TlsError::ClientCa { file: file.clone(), source: source.into() }
            })?)
        }
    };
    let mut server = builder.with_single_cert(chain, key).map_err(|source| TlsError::Pair {
        cert: config.cert.clone(),
        key: config.key.clone(),
        source,
    })?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificates";
    let failed = |source| TlsError::File { what, file: file.to_owned(), source };
    let chain = CertificateDer::pem_file_iter(file).map_err(failed)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if chain.is_empty() {
        return Err(TlsError::Empty { what: "certificate", file: file.to_owned() });
    }
    Ok(chain)
}

fn roots(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|source| TlsError::ClientCa { file: file.to_owned(), source: source.into() })?;
    }
    Ok(roots)
}
