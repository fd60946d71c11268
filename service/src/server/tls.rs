//! TLS of the listening socket: a certificate and its key, which can be replaced while the service runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::http::invalid_option::InvalidOption;

/// A certificate with its key, for TLS 1.2 and 1.3. Cheap to clone: clones share the certificate.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    certificate: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("certificate", &self.0.certificate)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads a certificate chain and its private key from PEM files.
    ///
    /// # Errors
    /// Returns a message if a file cannot be read, or if the key does not belong to the certificate.
    pub fn read(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, InvalidOption> {
        let (certificate, key) = (certificate.into(), key.into());
        let config = config(&certificate, &key)?;
        Ok(Self(Arc::new(Inner {
            config: RwLock::new(Arc::new(config)),
            certificate,
            key,
        })))
    }

    /// Reads the files again, for later connections. On an error the certificate that is in use stays.
    ///
    /// # Errors
    /// Like [`read`](Self::read).
    pub fn reload(&self) -> Result<(), InvalidOption> {
        let config = config(&self.0.certificate, &self.0.key)?;
        *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        Ok(())
    }

    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> std::io::Result<TlsStream<S>> {
        let config = Arc::clone(&self.0.config.read().unwrap_or_else(PoisonError::into_inner));
        TlsAcceptor::from(config).accept(stream).await
    }
}

fn config(certificate: &Path, key: &Path) -> Result<ServerConfig, String> {
    let unreadable = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(certificate, &error))?;
    if chain.is_empty() {
        return Err(unreadable(certificate, &"the file has no certificate in PEM format"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| format!("{} with {}: {error}", certificate.display(), key.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
