//! Errors of opening a connection, with the setting to change.

use std::error::Error as _;
use std::io;

use rustls::{AlertDescription, CertificateError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::settings::{Settings, SslMode, Target};

/// Reason why a server was not used.
pub(crate) struct Refusal {
    pub(crate) why: String,
    pub(crate) help: Option<String>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No server answers, or it refuses the connection.
    Unreachable,
    /// The server refuses the user, or the method of the connection.
    Login,
    /// TLS failed.
    Tls,
    /// The server accepts no writes.
    ReadOnly,
    /// A pooler refuses the settings of a session.
    Pooler,
}

impl Refusal {
    pub(crate) fn new(kind: Kind, why: impl Into<String>, help: impl Into<Option<String>>) -> Self {
        Self {
            why: why.into(),
            help: help.into(),
            kind,
        }
    }

    pub(crate) fn timeout(settings: &Settings) -> Self {
        let seconds = settings.timeout.unwrap_or_default().as_secs();
        let help = "check host, port and firewall, or set connect_timeout to more seconds".to_owned();
        Self::new(Kind::Unreachable, format!("no answer in {seconds} s"), help)
    }
}

/// Explains an error of opening a connection to a server.
pub(crate) fn explain(error: &Error, settings: &Settings, target: &Target) -> Refusal {
    if let Some(refused) = error.as_db_error() {
        return refused_login(refused.code(), refused.message(), settings, target);
    }
    let mut cause = error.source();
    while let Some(source) = cause {
        let inner = source.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return failed_tls(tls, settings, target);
        }
        if let Some(failed) = source.downcast_ref::<io::Error>() {
            return failed_io(failed, target);
        }
        cause = source.source();
    }
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    match &*why {
        "server does not support TLS" => Refusal::new(
            Kind::Tls,
            "the server does not support TLS",
            "set ssl = on in postgresql.conf, or sslmode=disable on a trusted network".to_owned(),
        ),
        "password missing" => Refusal::new(
            Kind::Unreachable,
            "the server requires a password",
            password(settings, target),
        ),
        _ => Refusal::new(Kind::Unreachable, why, None),
    }
}

fn password(settings: &Settings, target: &Target) -> String {
    let mut help = "set PGPASSWORD, password in the URL, or a line in ~/.pgpass".to_owned();
    if !target.is_socket() {
        // The usual case on a machine with its own server: the socket needs no password.
        help.push_str("; or connect by the local socket without one: postgres:///");
        help.push_str(&settings.database);
    }
    help
}

fn refused_login(code: &SqlState, message: &str, settings: &Settings, target: &Target) -> Refusal {
    let (user, database) = (&settings.user, &settings.database);
    let is_pooler = message.contains("startup parameter") || message.contains("command-line options");
    let help = match code.code() {
        "08P01" | "0A000" if is_pooler => {
            let help = "remove options (PGOPTIONS): the connection pooler does not forward them".to_owned();
            return Refusal::new(Kind::Pooler, message, help);
        }
        "28P01" => Some(password(settings, target)),
        "28000" if message.contains("client certificate") => {
            Some("set sslcert and sslkey to the files of a certificate for this user and its key".to_owned())
        }
        "28000" if message.contains("no encryption") || message.contains("SSL off") => {
            Some("the server requires TLS: set sslmode=require, or better verify-full with sslrootcert".to_owned())
        }
        "28000" if message.contains("pg_hba.conf") => {
            Some("add a line for this host, user and database to pg_hba.conf".to_owned())
        }
        "28000" if message.contains("Peer authentication") || message.contains("does not exist") => Some(format!(
            "the socket accepts users of the system by their name: create the role by `sudo -u postgres createuser {user}`, \
            or set user and a password with host=localhost"
        )),
        "3D000" => Some(format!(
            "create it: sudo -u postgres createdb --owner {user} --encoding UTF8 {database}"
        )),
        "42501" => Some(format!("grant it: GRANT CONNECT ON DATABASE {database} TO {user}")),
        "53300" => Some("each process opens up to 5 connections: raise max_connections, or use a pooler".to_owned()),
        "57P03" => Some("wait until the server has started; a standby needs hot_standby = on".to_owned()),
        _ => None,
    };
    let kind = if code.code().starts_with("28") {
        Kind::Login
    } else {
        Kind::Unreachable
    };
    Refusal::new(kind, message, help)
}

fn failed_io(failed: &io::Error, target: &Target) -> Refusal {
    let why = failed.to_string();
    match failed.kind() {
        // The client compares `transaction_read_only` after the login.
        io::ErrorKind::PermissionDenied if why.contains("does not allow writes") => Refusal::new(
            Kind::ReadOnly,
            "the server is read-only: a standby, or a primary with default_transaction_read_only = on",
            "name the primary, or all servers in host: the one that accepts writes is used".to_owned(),
        ),
        io::ErrorKind::PermissionDenied if target.is_socket() => Refusal::new(
            Kind::Unreachable,
            why,
            "the user of this process may not open the socket: set host to another folder, or host=localhost".to_owned(),
        ),
        io::ErrorKind::NotFound if target.is_socket() => Refusal::new(
            Kind::Unreachable,
            format!("there is no socket {}", socket(target)),
            "start the server (apt-get install postgresql), or set host (PGHOST) and port (PGPORT)".to_owned(),
        ),
        io::ErrorKind::ConnectionRefused => Refusal::new(
            Kind::Unreachable,
            why,
            "start the server, or set host (PGHOST) and port (PGPORT); listen_addresses of the server must include this address"
                .to_owned(),
        ),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Refusal::new(
            Kind::Unreachable,
            why,
            "the server closed the connection: its log has the reason; check that host and port name PostgreSQL".to_owned(),
        ),
        io::ErrorKind::TimedOut => Refusal::new(Kind::Unreachable, why, "check host, port and firewall".to_owned()),
        _ if why.contains("lookup") || why.contains("resolve") => {
            Refusal::new(Kind::Unreachable, why, "check the name in host".to_owned())
        }
        _ => Refusal::new(Kind::Unreachable, why, None),
    }
}

fn socket(target: &Target) -> String {
    match &target.host {
        #[cfg(unix)]
        tokio_postgres::config::Host::Unix(folder) => {
            folder.join(format!(".s.PGSQL.{}", target.port)).display().to_string()
        }
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
    }
}

fn failed_tls(error: &rustls::Error, settings: &Settings, target: &Target) -> Refusal {
    let root = settings.get("sslrootcert").unwrap_or("~/.postgresql/root.crt");
    let help = match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer => Some(format!(
                "the server's certificate is not signed by an authority in {root}: set sslrootcert to the file of the right one"
            )),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Some(format!(
                "set host to a name in the subjectAltName of the server's certificate (and hostaddr to its address), \
                or set sslmode=verify-ca to check no name; {target} is not one"
            )),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                Some("renew the server's certificate (ssl_cert_file), and check the clock of this machine".to_owned())
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Some("check the clocks of this machine and of the authority".to_owned())
            }
            CertificateError::Revoked => Some("the list in sslcrl revokes the certificate: replace it".to_owned()),
            // A self-signed certificate of `openssl req -x509`, or one of version 1.
            _ => Some(format!(
                "replace the server's certificate by an X.509 version 3 certificate with a subjectAltName and without CA:TRUE, \
                signed by an authority in {root}"
            )),
        },
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked,
        ) => Some(
            "the server refuses the client certificate: set sslcert and sslkey; the server trusts ssl_ca_file"
                .to_owned(),
        ),
        _ if settings.sslmode >= SslMode::Require => Some(
            "check ssl_min_protocol_version here and at the server, and that host and port name PostgreSQL".to_owned(),
        ),
        _ => None,
    };
    Refusal::new(Kind::Tls, format!("TLS: {error}"), help)
}
