//! TLS of connections: which certificates are trusted and presented.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::{Settings, SslMode};

/// Returns the TLS of a connection. Files are read for each connection, so that renewed certificates are found.
pub(crate) fn connector(settings: &Settings) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(settings)?)
        .map_err(|error| error.to_string())?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier(settings, provider)?);
    let mut config = match client_certificate(settings)? {
        Some((chain, key, file)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| format!("sslcert={}: {error}", file.display()))?,
        None => builder.with_no_client_auth(),
    };
    config.enable_sni = settings.get("sslsni") != Some("0");
    if settings.is_direct_tls() {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

/// Versions of TLS, in the type of rustls.
type Versions = &'static [&'static SupportedProtocolVersion];

const ONLY_12: Versions = &[&TLS12];
const ONLY_13: Versions = &[&TLS13];
const BOTH: Versions = &[&TLS13, &TLS12];

fn versions(settings: &Settings) -> Result<Versions, String> {
    let version = |name: &str| match settings.get(name) {
        None => Ok(None),
        Some("TLSv1" | "TLSv1.1") => Ok(Some(1)),
        Some("TLSv1.2") => Ok(Some(2)),
        Some("TLSv1.3") => Ok(Some(3)),
        Some(other) => Err(format!("{name}={other} is unknown: set TLSv1.2 or TLSv1.3")),
    };
    let (least, most) = (
        version("ssl_min_protocol_version")?.unwrap_or(2),
        version("ssl_max_protocol_version")?.unwrap_or(3),
    );
    match (least, most) {
        (..=2, 2) => Ok(ONLY_12),
        (..=2, 3) => Ok(BOTH),
        (3, 3) => Ok(ONLY_13),
        _ => Err(
            "ssl_min_protocol_version and ssl_max_protocol_version leave neither TLSv1.2 nor TLSv1.3: remove them"
                .to_owned(),
        ),
    }
}

fn verifier(settings: &Settings, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let mode = settings.sslmode;
    let Some(roots) = roots(settings)? else {
        return Ok(Arc::new(Nameless { provider, chain: None }));
    };
    let mut builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    if let Some(file) = settings.get("sslcrl") {
        let unreadable = |error| format!("sslcrl={file}: {error}");
        let lists = CertificateRevocationListDer::pem_file_iter(file).map_err(unreadable)?;
        builder = builder.with_crls(lists.collect::<Result<Vec<_>, _>>().map_err(unreadable)?);
    }
    let inner = builder.build().map_err(|error| error.to_string())?;
    Ok(if mode == SslMode::VerifyFull {
        inner
    } else {
        // A root certificate makes `require` check the chain too, as in libpq.
        let chain = Some(inner);
        Arc::new(Nameless { provider, chain })
    })
}

/// Returns the trusted certificates; none if the chain is not checked.
fn roots(settings: &Settings) -> Result<Option<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    let file = match settings.get("sslrootcert") {
        Some("system") => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(
                    "sslrootcert=system: the system has no certificates: install ca-certificates, or name a file"
                        .to_owned(),
                );
            }
            return Ok(Some(roots));
        }
        Some(file) => PathBuf::from(file),
        None => match settings.home_file("root.crt").filter(|file| file.exists()) {
            Some(file) => file,
            None if settings.sslmode >= SslMode::VerifyCa => {
                return Err(
                    "sslmode=verify-ca and verify-full need the certificate of the server's authority: \
                    set sslrootcert to its file, or to system for a public authority"
                        .to_owned(),
                );
            }
            None => return Ok(None),
        },
    };
    for certificate in certificates("sslrootcert", &file)? {
        roots
            .add(certificate)
            .map_err(|error| format!("sslrootcert={}: {error}", file.display()))?;
    }
    Ok(Some(roots))
}

fn certificates(setting: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |why: String| format!("{setting}={}: {why}", file.display());
    let found = CertificateDer::pem_file_iter(file).map_err(|error| unreadable(error.to_string()))?;
    let found = found
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(error.to_string()))?;
    if found.is_empty() {
        return Err(unreadable("the file has no certificate in PEM format".to_owned()));
    }
    Ok(found)
}

type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, PathBuf);

fn client_certificate(settings: &Settings) -> Result<Option<ClientCertificate>, String> {
    if settings.get("sslcertmode") == Some("disable") {
        return Ok(None);
    }
    let file = match settings.get("sslcert") {
        Some(file) => PathBuf::from(file),
        None => match settings.home_file("postgresql.crt").filter(|file| file.exists()) {
            Some(file) => file,
            None => return Ok(None),
        },
    };
    let chain = certificates("sslcert", &file)?;
    let key_file = match settings.get("sslkey") {
        Some(file) => PathBuf::from(file),
        None => settings
            .home_file("postgresql.key")
            .filter(|file| file.exists())
            .ok_or_else(|| {
                format!(
                    "sslcert={} has no key: set sslkey to the file of its private key",
                    file.display()
                )
            })?,
    };
    let unreadable = |why: &str| format!("sslkey={}: {why}", key_file.display());
    if !is_private(&key_file) {
        return Err(unreadable("other users can read the private key: chmod 600 it"));
    }
    let text = std::fs::read_to_string(&key_file).map_err(|error| unreadable(&error.to_string()))?;
    if text.contains("ENCRYPTED") {
        return Err(unreadable(
            "encrypted keys are not supported: decrypt it with `openssl pkey -in FILE -out FILE`",
        ));
    }
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|_| unreadable("the file has no private key in PEM format"))?;
    Ok(Some((chain, key, file)))
}

/// True if a key can be read by its owner only, or belongs to the superuser and can be read by its group.
#[cfg(unix)]
fn is_private(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // A missing file is reported when it is read.
    file.metadata().map_or(true, |metadata| {
        let others = if metadata.uid() == 0 { 0o037 } else { 0o077 };
        metadata.mode() & others == 0
    })
}

#[cfg(not(unix))]
fn is_private(_: &Path) -> bool {
    true
}

/// Compares no host name. Checks the chain and dates of a certificate (`verify-ca`), or nothing but that the server has the key of its
/// certificate (`require` without a root certificate).
#[derive(Debug)]
struct Nameless {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Nameless {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is compared after the chain is accepted.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
