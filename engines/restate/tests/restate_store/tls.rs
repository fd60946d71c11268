//! A server behind a proxy with TLS that requires a token, as that of a managed server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::executor::block_on;
use pirn_restate::{ConnectError, Endpoint, RestateOptions, RestateStore};
use pirn_store::{Claims, Store, StoreError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::server::{Server, free_port};
use crate::{begun, step};

const TOKEN: &str = "secret-of-the-test";

/// The name of the test below, and its environment variables: system roots are read from the environment, so the test starts itself
/// for each case.
const NAME: &str =
    "tls::a_server_behind_tls_is_used_with_its_token_and_refused_with_a_wrong_one_or_an_unknown_certificate";
const CASE: &str = "PIRN_TEST_RESTATE_CASE";
const INGRESS: &str = "PIRN_TEST_RESTATE_INGRESS";
const ADMIN: &str = "PIRN_TEST_RESTATE_ADMIN";

/// Creates a certificate for `localhost` and the acceptor that presents it. Returns the certificate of its authority as PEM.
fn acceptor() -> (TlsAcceptor, String) {
    let mut authority = CertificateParams::new(Vec::new()).expect("valid");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("signed");
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).expect("valid");
    let certificate = certificate.signed_by(&key, &authority).expect("signed").pem();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("fits");
    (TlsAcceptor::from(Arc::new(config)), authority.pem())
}

/// Forwards TLS connections to a port. A connection whose first request lacks the token gets 401. `passed` counts the others.
async fn proxy(listener: TcpListener, acceptor: TlsAcceptor, to: SocketAddr, passed: Arc<AtomicUsize>) {
    while let Ok((connection, _)) = listener.accept().await {
        let (acceptor, passed) = (acceptor.clone(), Arc::clone(&passed));
        tokio::spawn(async move {
            // A client that does not trust the certificate ends the handshake.
            let Ok(mut client) = acceptor.accept(connection).await else {
                return;
            };
            let (mut head, mut piece) = (Vec::new(), [0; 4096]);
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                match client.read(&mut piece).await {
                    Ok(read @ 1..) => head.extend_from_slice(&piece[..read]),
                    // Closed without a request.
                    Ok(0) | Err(_) => return,
                }
            }
            let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
            if !text.contains(&format!("authorization: bearer {TOKEN}\r\n")) {
                let refusal = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 8\r\nconnection: close\r\n\r\nno token";
                client.write_all(refusal).await.expect("the client reads");
                client.shutdown().await.expect("the client reads");
                return;
            }
            passed.fetch_add(1, Ordering::SeqCst);
            let mut server = TcpStream::connect(to).await.expect("the server listens");
            server.write_all(&head).await.expect("the server reads");
            // An error is a closed connection of one side.
            let _closed = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

/// Connects in the process of one case, and uses the store.
fn execute(case: &str) {
    let variable = |name| std::env::var(name).expect("is set");
    let token = if case == "wrong token" { "another" } else { TOKEN };
    let endpoint = Endpoint::at(([127, 0, 0, 1], free_port()).into());
    let mut options = RestateOptions::default().admin(variable(ADMIN)).endpoint(endpoint);
    if case != "no token" {
        options = options.token(token);
    }
    let connected = RestateStore::connect(&variable(INGRESS), options);
    match case {
        "trusted" => {
            let store = connected.expect("connects");
            block_on(store.commit(begun("run"))).expect("begins");
            assert_eq!(block_on(store.commit(step("run", 0, 1 << 20))), Ok(1));
            assert_eq!(block_on(store.journal("run", 0, 9)).expect("reads").len(), 1);
            store.release("run", 1);
            let stored = block_on(store.run("run")).expect("reads").expect("is there");
            assert_eq!(stored.steps, 1);
            let missing: Result<_, StoreError> = block_on(store.commit(step("none", 0, 1)));
            assert_eq!(missing.expect_err("is missing").code(), "NO_SUCH_RUN");
        }
        "wrong token" | "no token" => {
            let error = connected.map(drop).expect_err("is refused");
            assert!(matches!(error, ConnectError::Unauthorized { .. }), "{error}");
            assert!(!error.to_string().contains("another"), "{error}");
        }
        _ => {
            let error = connected.map(drop).expect_err("is not trusted");
            assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
            assert!(error.to_string().contains("certificate"), "{error}");
        }
    }
}

fn case(name: &str, roots: Option<&Path>, urls: [&str; 2]) -> Output {
    let mut process = Command::new(std::env::current_exe().expect("is known"));
    process
        .args(["--exact", NAME, "--nocapture"])
        .envs([(CASE, name), (INGRESS, urls[0]), (ADMIN, urls[1])])
        .env_remove("SSL_CERT_DIR");
    match roots {
        Some(roots) => process.env("SSL_CERT_FILE", roots),
        None => process.env_remove("SSL_CERT_FILE"),
    };
    process.output().expect("it runs")
}

#[test]
fn a_server_behind_tls_is_used_with_its_token_and_refused_with_a_wrong_one_or_an_unknown_certificate() {
    if let Ok(case) = std::env::var(CASE) {
        return execute(&case);
    }
    let Some(server) = Server::start() else { return };
    let (acceptor, authority) = acceptor();
    let folder = tempfile::tempdir().expect("a folder");
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, authority).expect("is written");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("threads");
    let passed = Arc::new(AtomicUsize::new(0));
    let urls = [server.url(), server.admin()].map(|url| {
        let to = url.trim_start_matches("http://").parse().expect("an address");
        let listener = runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        runtime.spawn(proxy(listener, acceptor.clone(), to, Arc::clone(&passed)));
        format!("https://localhost:{port}")
    });
    let [ingress, admin] = &urls;
    let number = |port: &str| port.rsplit(':').next().expect("a port").to_owned();
    let by_address = urls.clone().map(|url| format!("https://127.0.0.1:{}", number(&url)));
    for (name, roots, urls) in [
        ("wrong token", Some(&*roots), [&**ingress, admin]),
        ("no token", Some(&*roots), [&**ingress, admin]),
        ("unknown certificate", None, [&**ingress, admin]),
        // The certificate is for `localhost`.
        ("wrong host", Some(&*roots), [&*by_address[0], &*by_address[1]]),
        ("trusted", Some(&*roots), [&**ingress, admin]),
    ] {
        let output = case(name, roots, urls);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.contains("1 passed"), "{name}: {said}");
        let connections = passed.load(Ordering::SeqCst);
        assert_eq!(
            connections > 1,
            name == "trusted",
            "{name}: {connections} connections passed"
        );
    }
}
