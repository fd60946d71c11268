//! TLS, logins and several servers, compared with `psql`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use futures::executor::block_on;
use pirn_postgres::{ConnectError, PostgresOptions, PostgresStore};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::server::Server;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("valid");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed")
}

/// Returns a certificate and its key as PEM.
fn certificate(by: &Authority, common_name: &str, names: &[&str], has_expired: bool) -> (String, String) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("valid");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(if has_expired { 2021 } else { 2090 }, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let signed = params.signed_by(&key, by).expect("signed");
    (signed.pem(), key.serialize_pem())
}

/// A server with TLS, and the files of its clients.
struct Fixture {
    server: Server,
    folder: tempfile::TempDir,
    trusted: Authority,
    other: Authority,
}

impl Fixture {
    fn start() -> Option<Self> {
        let server = Server::start_with_tcp()?;
        let fixture = Self {
            folder: tempfile::tempdir().expect("a folder"),
            trusted: authority("trusted"),
            other: authority("other"),
            server,
        };
        fixture.file("trusted.crt", &fixture.trusted.pem());
        fixture.file("other.crt", &fixture.other.pem());
        let server = &fixture.server;
        let admin = server.url("postgres");
        for sql in [
            "CREATE DATABASE plain",
            "CREATE DATABASE encrypted",
            "CREATE DATABASE certified",
            "CREATE DATABASE secret",
            "CREATE ROLE alice LOGIN PASSWORD 'p@ss:word \\'",
            "ALTER SYSTEM SET ssl = on",
            "ALTER SYSTEM SET ssl_ca_file = 'ca.crt'",
        ] {
            server.sql(&admin, sql);
        }
        server.write("ca.crt", &fixture.trusted.pem());
        server.write(
            "pg_hba.conf",
            "local all all trust\n\
            hostnossl plain all 127.0.0.1/32 trust\nhostssl plain all 127.0.0.1/32 reject\n\
            hostssl certified all 127.0.0.1/32 cert\n\
            host secret all 127.0.0.1/32 scram-sha-256\n\
            hostssl encrypted all 127.0.0.1/32 trust\n",
        );
        fixture.present(certificate(&fixture.trusted, "server", &["localhost"], false));
        Some(fixture)
    }

    /// Restarts the server with a certificate.
    fn present(&self, (certificate, key): (String, String)) {
        self.server.write("server.crt", &certificate);
        self.server.write("server.key", &key);
        self.server.kill();
        self.server.go();
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::write(&file, text).expect("written");
        let private = Command::new("chmod").arg("600").arg(&file).status();
        assert!(private.expect("chmod").success());
        file
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn to(&self, database: &str, more: &str) -> String {
        let port = self.server.port();
        format!("host=localhost hostaddr=127.0.0.1 port={port} user=postgres dbname={database} {more}")
    }

    /// Returns the error of a connection, after checking that `psql` has one too. A database without schemas is reached.
    fn refusal(&self, text: &str) -> Option<ConnectError> {
        let found = Self::own_refusal(text);
        let psql = self.psql(text);
        assert_eq!(found.is_none(), psql.is_ok(), "{text}\n{found:?}\n{psql:?}");
        found
    }

    fn own_refusal(text: &str) -> Option<ConnectError> {
        match PostgresStore::connect(text, PostgresOptions::default()) {
            Ok(_) | Err(ConnectError::NotSetUp { .. }) => None,
            Err(error) => Some(error),
        }
    }

    fn psql(&self, text: &str) -> Result<(), String> {
        let mut psql = Command::new("psql");
        psql.env("HOME", self.folder.path()).stdin(Stdio::null());
        let done = psql
            .args(["-X", "-w", "-q", "-c", "SELECT 1", text])
            .output()
            .expect("runs");
        if done.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

fn help(error: Option<ConnectError>) -> String {
    let error = error.expect("is refused");
    format!("{} {error} / {}", error.code(), error.help().unwrap_or_default())
}

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

#[test]
fn every_sslmode_accepts_the_servers_that_psql_accepts() {
    let Some(fixture) = Fixture::start() else { return };
    let ca = &fixture.trusted;
    let certificates = [
        ("right", certificate(ca, "server", &["localhost"], false)),
        ("of another host", certificate(ca, "server", &["db.example"], false)),
        ("expired", certificate(ca, "server", &["localhost"], true)),
        (
            "by another authority",
            certificate(&fixture.other, "server", &["localhost"], false),
        ),
    ];
    for (name, certificate) in certificates {
        fixture.present(certificate);
        let mut accepted = Vec::new();
        for mode in MODES {
            for root in ["", "trusted.crt", "other.crt"] {
                let root_setting = if root.is_empty() {
                    String::new()
                } else {
                    format!("sslrootcert={}", fixture.path(root))
                };
                for database in ["encrypted", "plain"] {
                    let text = fixture.to(database, &format!("sslmode={mode} {root_setting}"));
                    if fixture.refusal(&text).is_none() && mode.starts_with("verify") {
                        accepted.push((mode, root));
                    }
                }
            }
        }
        let expected: &[(&str, &str)] = match name {
            "right" => &[("verify-ca", "trusted.crt"), ("verify-full", "trusted.crt")],
            "of another host" => &[("verify-ca", "trusted.crt")],
            "expired" => &[],
            _ => &[("verify-ca", "other.crt"), ("verify-full", "other.crt")],
        };
        assert_eq!(accepted, expected, "{name}");
    }
}

#[test]
fn a_refused_certificate_names_the_setting_to_change() {
    let Some(fixture) = Fixture::start() else { return };
    let full = |root: &str| {
        fixture.to(
            "encrypted",
            &format!("sslmode=verify-full sslrootcert={}", fixture.path(root)),
        )
    };
    let wrong = help(fixture.refusal(&full("other.crt")));
    assert!(
        wrong.starts_with("TLS_FAILED") && wrong.contains("set sslrootcert"),
        "{wrong}"
    );
    let missing = help(fixture.refusal(&full("missing.crt")));
    assert!(
        missing.starts_with("TLS_FAILED") && missing.contains("sslrootcert="),
        "{missing}"
    );
    let none = help(fixture.refusal(&fixture.to("encrypted", "sslmode=verify-full")));
    assert!(none.contains("set sslrootcert to its file, or to system"), "{none}");
    let plain = help(fixture.refusal(&fixture.to("encrypted", "sslmode=disable")));
    assert!(plain.contains("set sslmode=require"), "{plain}");
    fixture.present(certificate(&fixture.trusted, "server", &["db.example"], false));
    let name = help(fixture.refusal(&full("trusted.crt")));
    assert!(
        name.contains("subjectAltName") && name.contains("sslmode=verify-ca"),
        "{name}"
    );
    fixture.present(certificate(&fixture.trusted, "server", &["localhost"], true));
    let expired = help(fixture.refusal(&full("trusted.crt")));
    assert!(expired.contains("renew the server's certificate"), "{expired}");
    fixture
        .server
        .sql(&fixture.server.url("postgres"), "ALTER SYSTEM SET ssl = off");
    fixture.server.kill();
    fixture.server.go();
    let without = help(fixture.refusal(&fixture.to("plain", "sslmode=require")));
    assert!(without.contains("set ssl = on in postgresql.conf"), "{without}");
}

#[test]
fn a_client_certificate_is_presented_and_its_key_must_be_private() {
    let Some(fixture) = Fixture::start() else { return };
    let clients = [
        ("good", certificate(&fixture.trusted, "postgres", &[], false)),
        ("other-user", certificate(&fixture.trusted, "alice", &[], false)),
        ("other-ca", certificate(&fixture.other, "postgres", &[], false)),
        ("expired", certificate(&fixture.trusted, "postgres", &[], true)),
    ];
    let with = |name: &str| {
        let (certificate, key) = (
            fixture.path(&format!("{name}.crt")),
            fixture.path(&format!("{name}.key")),
        );
        fixture.to(
            "certified",
            &format!("sslmode=require sslcert={certificate} sslkey={key}"),
        )
    };
    for (name, (certificate, key)) in clients {
        fixture.file(&format!("{name}.crt"), &certificate);
        fixture.file(&format!("{name}.key"), &key);
        assert_eq!(fixture.refusal(&with(name)).is_none(), name == "good", "{name}");
    }
    let none = help(fixture.refusal(&fixture.to("certified", "sslmode=require")));
    assert!(none.contains("set sslcert and sslkey"), "{none}");
    let opened = Command::new("chmod").arg("644").arg(fixture.path("good.key")).status();
    assert!(opened.expect("chmod").success());
    let public = help(fixture.refusal(&with("good")));
    assert!(public.contains("chmod 600"), "{public}");
}

#[test]
fn a_missing_or_wrong_password_or_database_names_what_to_set() {
    let Some(fixture) = Fixture::start() else { return };
    let port = fixture.server.port();
    let url = |user: &str| format!("postgres://{user}@127.0.0.1:{port}/secret");
    // In the form of a URL and as a pair, with characters that need escapes.
    assert_eq!(
        fixture
            .refusal(&url("alice:p%40ss%3Aword%20%5C"))
            .map(|error| help(Some(error))),
        None
    );
    let pair = format!("host=127.0.0.1 port={port} user=alice password='p@ss:word \\\\' dbname=secret");
    assert_eq!(fixture.refusal(&pair).map(|error| help(Some(error))), None);
    let file = fixture.file(
        "pass",
        &format!("# a comment\n127.0.0.1:{port}:secret:bob:x\n127.0.0.1:*:secret:alice:p@ss\\:word \\\\\n"),
    );
    let by_file = format!("{}?passfile={}", url("alice"), file.display());
    assert_eq!(fixture.refusal(&by_file).map(|error| help(Some(error))), None);
    let opened = Command::new("chmod").arg("644").arg(&file).status();
    assert!(opened.expect("chmod").success());
    assert!(help(fixture.refusal(&by_file)).contains("PGPASSWORD"));
    let missing = help(fixture.refusal(&url("alice")));
    assert!(
        missing.contains("requires a password")
            && missing.contains("PGPASSWORD")
            && missing.contains("postgres:///secret"),
        "{missing}"
    );
    let wrong = help(fixture.refusal(&url("alice:wrong")));
    assert!(wrong.contains("PGPASSWORD"), "{wrong}");
    assert!(!wrong.contains("wrong@"), "{wrong}");
    let none = help(fixture.refusal(&fixture.server.url("missing")));
    assert!(none.contains("createdb --owner postgres"), "{none}");
    let socket = format!("host={} port=1 dbname=x user=y", fixture.server.socket().display());
    assert!(help(fixture.refusal(&socket)).contains("PGHOST"));
    assert!(help(fixture.refusal("host=127.0.0.1 port=9 dbname=x user=y")).contains("PGPORT"));
}

#[test]
fn the_server_that_accepts_writes_is_found_among_several() {
    let Some(primary) = Server::start_unsynced() else {
        return;
    };
    let url = primary.prepared();
    let (_, database) = url.rsplit_once('/').expect("a database");
    let standby = primary.standby();
    let both = |first: &Server, second: &Server| {
        let hosts = format!("{},/nowhere,{}", first.socket().display(), second.socket().display());
        format!("host={hosts} user=postgres dbname={database} target_session_attrs=read-write")
    };
    let connect = |url: &str| PostgresStore::connect(url, PostgresOptions::default());
    connect(&both(&standby, &primary)).expect("finds the primary");
    let alone = format!("host={} user=postgres dbname={database}", standby.socket().display());
    let refused = help(connect(&alone).err());
    assert!(
        refused.starts_with("READ_ONLY_SERVER") && refused.contains("name the primary"),
        "{refused}"
    );
    // A store that is open uses the new primary once the former one is gone.
    let store = connect(&both(&primary, &standby)).expect("connects");
    crate::begin(&store, "r");
    primary.kill();
    standby.promote();
    crate::begin(&store, "another");
    assert!(standby.is_so(&alone, "(SELECT count(*) FROM pirn.runs) = 2"));
}

#[test]
fn dumps_under_load_restore_to_stores_that_hold_every_commit_that_preceded_them() {
    use pirn_store::{RunFilter, Store as _};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    let Some(server) = Server::shared() else { return };
    let url = server.prepared();
    let store = crate::open(&url);
    crate::begin(&store, "r");
    let (stored, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for after in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                block_on(store.commit(crate::step("r", after))).expect("is stored");
                stored.store(after + 1, Ordering::SeqCst);
            }
        });
        for _ in 0..3 {
            let before = stored.load(Ordering::SeqCst);
            let restored = crate::open(&server.dumped_and_restored(&url));
            let runs = block_on(restored.runs(RunFilter::default(), None, 10)).expect("reads");
            assert_eq!(runs.len(), 1);
            let journal = block_on(restored.journal("r", 0, usize::MAX)).expect("reads");
            assert_eq!(journal.len() as u64, runs[0].steps);
            assert!(runs[0].steps >= before, "{} of {before}", runs[0].steps);
        }
        is_over.store(true, Ordering::SeqCst);
    });
}
