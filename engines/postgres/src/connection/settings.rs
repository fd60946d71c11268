//! Settings of a connection: the connection string, completed by the service file, the environment and the password file.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslNegotiation};

use super::connection_string::{Values, keyword, parse, variables};

/// Returns the value of an environment variable.
type Variable = Box<dyn Fn(&str) -> Option<String>>;

/// Sources of settings other than the connection string.
pub(crate) struct Environment {
    pub(crate) variable: Variable,
    /// Home folder of the user.
    pub(crate) home: Option<PathBuf>,
}

impl Environment {
    pub(crate) fn of_process() -> Self {
        Self {
            variable: Box::new(|name| std::env::var(name).ok()),
            home: std::env::home_dir(),
        }
    }
}

/// `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// One of the servers that a connection string names.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Name or socket folder.
    pub(crate) host: Host,
    /// Address that is used instead of a lookup of the name.
    address: Option<IpAddr>,
    pub(crate) port: u16,
}

/// Settings of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    values: Values,
    pub(crate) targets: Vec<Target>,
    pub(crate) sslmode: SslMode,
    pub(crate) user: String,
    pub(crate) database: String,
    /// Time for one server: name lookup, TLS and login.
    pub(crate) timeout: Option<Duration>,
    pub(crate) is_random: bool,
    negotiation: SslNegotiation,
    channel_binding: ChannelBinding,
    home: Option<PathBuf>,
}

/// Settings that change what a connection guarantees and that this client does not implement, with the value that requests nothing.
const UNSUPPORTED: &[(&str, &[&str])] = &[
    ("gssencmode", &["disable", "prefer"]),
    ("require_auth", &[]),
    ("requirepeer", &[]),
    ("replication", &["0", "false", "off", "no"]),
    ("sslcrldir", &[]),
    ("sslcertmode", &["allow", "disable"]),
];

impl Settings {
    /// Completes a connection string in the order of libpq: service, environment, defaults.
    pub(crate) fn of(text: &str, environment: &Environment) -> Result<Self, String> {
        let values = completed(parse(text)?, environment)?;
        Self::checked(values, environment)
    }

    fn checked(values: Values, environment: &Environment) -> Result<Self, String> {
        let given = |name: &str| values.get(name).map(String::as_str).filter(|value| !value.is_empty());
        for (name, harmless) in UNSUPPORTED {
            if let Some(value) = given(name).filter(|value| !harmless.contains(value)) {
                return Err(format!("{name}={value} is not supported: remove it"));
            }
        }
        match given("target_session_attrs") {
            // Every process of a store writes, so that `any` means a server that accepts writes too.
            None | Some("any" | "read-write" | "primary") => {}
            Some(other @ ("read-only" | "standby" | "prefer-standby")) => {
                return Err(format!(
                    "target_session_attrs={other} selects a server that refuses writes: set read-write"
                ));
            }
            Some(other) => return Err(format!("target_session_attrs={other} is unknown: set read-write")),
        }
        let sslmode = sslmode(given("sslmode"), given("sslrootcert"))?;
        let user = match given("user") {
            Some(user) => user.to_owned(),
            None => whoami::username().map_err(|error| format!("the user is unknown ({error}): set user or PGUSER"))?,
        };
        let database = given("dbname").unwrap_or(&user).to_owned();
        let timeout = match number::<i64>(&values, "connect_timeout")? {
            // Without a limit, a host that drops packets blocks the connection for minutes.
            None => Some(Duration::from_secs(10)),
            Some(seconds) if seconds <= 0 => None,
            // At least 2, as in libpq.
            Some(seconds) => Some(Duration::from_secs(seconds.max(2).unsigned_abs())),
        };
        let targets = targets(&values)?;
        Ok(Self {
            targets,
            sslmode,
            user,
            database,
            timeout,
            is_random: choice(
                given("load_balance_hosts"),
                "load_balance_hosts",
                &[("disable", false), ("random", true)],
            )?,
            negotiation: choice(
                given("sslnegotiation"),
                "sslnegotiation",
                &[
                    ("postgres", SslNegotiation::Postgres),
                    ("direct", SslNegotiation::Direct),
                ],
            )?,
            channel_binding: choice(
                given("channel_binding"),
                "channel_binding",
                &[
                    ("prefer", ChannelBinding::Prefer),
                    ("disable", ChannelBinding::Disable),
                    ("require", ChannelBinding::Require),
                ],
            )?,
            values,
            home: environment.home.clone(),
        })
    }

    /// Returns the value of a setting, unless it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    pub(crate) fn is_direct_tls(&self) -> bool {
        self.negotiation == SslNegotiation::Direct
    }

    /// Returns a file of libpq's folder in the user's home.
    pub(crate) fn home_file(&self, name: &str) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join(".postgresql").join(name))
    }

    /// Returns the configuration of a connection to a server, and a warning about the password file.
    pub(crate) fn config(&self, target: &Target) -> Result<Config, String> {
        let mut config = Config::new();
        config.user(&self.user).dbname(&self.database).port(target.port);
        match &target.host {
            Host::Tcp(name) => config.host(name),
            #[cfg(unix)]
            Host::Unix(folder) => config.host_path(folder),
        };
        if let Some(address) = target.address {
            config.hostaddr(address);
        }
        if let Some(password) = self.password(target) {
            config.password(password);
        }
        // `pirn` first: a setup counts the connections of other processes by this prefix.
        match self.get("application_name").or(self.get("fallback_application_name")) {
            Some(name) => config.application_name(format!("pirn {name}")),
            None => config.application_name("pirn"),
        };
        if let Some(timeout) = self.timeout {
            config.connect_timeout(timeout);
        }
        let seconds = |name, default: u64| {
            let given = number::<u64>(&self.values, name)?.filter(|given| *given > 0);
            Ok::<_, String>(Duration::from_secs(given.unwrap_or(default)))
        };
        // Detects a server that disappeared without closing the connection.
        let user_timeout = number::<u64>(&self.values, "tcp_user_timeout")?.unwrap_or(20_000);
        config.tcp_user_timeout(Duration::from_millis(user_timeout));
        config.keepalives(self.get("keepalives") != Some("0"));
        config.keepalives_idle(seconds("keepalives_idle", 20)?);
        if self.get("keepalives_interval").is_some() {
            config.keepalives_interval(seconds("keepalives_interval", 20)?);
        }
        if let Some(count) = number::<u32>(&self.values, "keepalives_count")? {
            config.keepalives_retries(count);
        }
        config.channel_binding(self.channel_binding);
        config.ssl_negotiation(self.negotiation);
        Ok(config)
    }

    /// Returns the password for a server. The password file is read for each connection, so that a changed password is found.
    fn password(&self, target: &Target) -> Option<String> {
        if let Some(password) = self.get("password") {
            return Some(password.to_owned());
        }
        let file = match self.get("passfile") {
            Some(file) => PathBuf::from(file),
            None => self.home.as_ref()?.join(".pgpass"),
        };
        if !file.is_file() {
            return None;
        }
        if let Some(mode) = open_to_others(&file) {
            tracing::warn!(
                "the password file {} is ignored: others can read it (mode {mode:o}); chmod 600 it",
                file.display()
            );
            return None;
        }
        let text = std::fs::read_to_string(&file).ok()?;
        let host = match &target.host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(folder) if is_default_socket(folder) => "localhost".to_owned(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        };
        let port = target.port.to_string();
        text.lines()
            .find_map(|line| password_of(line, &[&host, &port, &self.database, &self.user]))
    }

    /// Returns the settings as variables of the environment, for a program that uses libpq.
    pub(crate) fn as_variables(&self) -> Vec<(&'static str, String)> {
        let set = variables().filter(|(name, _)| *name != "service");
        let mut set: Vec<_> = set
            .filter_map(|(name, variable)| Some((variable, self.get(name)?.to_owned())))
            .collect();
        let hosts = self.targets.iter().map(Target::host_name);
        set.push(("PGHOST", hosts.collect::<Vec<_>>().join(",")));
        let ports = self.targets.iter().map(|target| target.port.to_string());
        set.push(("PGPORT", ports.collect::<Vec<_>>().join(",")));
        set.push(("PGUSER", self.user.clone()));
        set.push(("PGDATABASE", self.database.clone()));
        set.push(("PGTARGETSESSIONATTRS", "read-write".to_owned()));
        set
    }
}

impl Target {
    pub(crate) fn is_socket(&self) -> bool {
        !matches!(self.host, Host::Tcp(_))
    }

    pub(crate) fn has_name(&self) -> bool {
        // An address without a name is stored as the name too.
        self.address
            .is_none_or(|address| self.host != Host::Tcp(address.to_string()))
    }

    fn host_name(&self) -> String {
        match &self.host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host_name(), self.port)
    }
}

/// Adds the values of the service and of the environment.
fn completed(mut values: Values, environment: &Environment) -> Result<Values, String> {
    let service = values.get("service").cloned();
    let service = service.or_else(|| (environment.variable)("PGSERVICE"));
    if let Some(service) = service.filter(|service| !service.is_empty()) {
        for (name, value) in of_service(&service, environment)? {
            values.entry(name).or_insert(value);
        }
    }
    for (name, variable) in variables() {
        if let (false, Some(value)) = (values.contains_key(name), (environment.variable)(variable)) {
            values.insert(name, value);
        }
    }
    Ok(values)
}

fn of_service(service: &str, environment: &Environment) -> Result<Values, String> {
    let own = match (environment.variable)("PGSERVICEFILE") {
        Some(file) => Some(PathBuf::from(file)),
        None => environment.home.as_ref().map(|home| home.join(".pg_service.conf")),
    };
    let folder = (environment.variable)("PGSYSCONFDIR").unwrap_or_else(|| "/etc/postgresql-common".to_owned());
    let files = own.into_iter().chain([Path::new(&folder).join("pg_service.conf")]);
    for file in files.filter(|file| file.exists()) {
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|error| format!("cannot read the service file {}: {error}", file.display()))?;
        if let Some(values) = section(&text, service).map_err(|why| format!("{}: {why}", file.display()))? {
            return Ok(values);
        }
    }
    Err(format!(
        "no service file defines the service \"{service}\": see PGSERVICEFILE"
    ))
}

/// Returns the values of a section of a service file.
fn section(text: &str, service: &str) -> Result<Option<Values>, String> {
    let header = format!("[{service}]");
    let lines = text.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| !line.starts_with(&header));
    if lines.next().is_none() {
        return Ok(None);
    }
    let mut values = Values::new();
    for line in lines.take_while(|line| !line.starts_with('[')) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let pair = line.split_once('=');
        let known = pair.and_then(|(name, value)| Some((keyword(name)?, value)));
        let (name, value) = known
            .filter(|(name, _)| *name != "service")
            .ok_or_else(|| format!("the service \"{service}\" has a line that sets no known setting"))?;
        // The first value of a setting is valid, as in libpq.
        values.entry(name).or_insert_with(|| value.to_owned());
    }
    Ok(Some(values))
}

fn sslmode(given: Option<&str>, root: Option<&str>) -> Result<SslMode, String> {
    let default = if root == Some("system") {
        SslMode::VerifyFull
    } else {
        SslMode::Prefer
    };
    let mode = match given {
        None => default,
        Some("disable") => SslMode::Disable,
        Some("allow") => SslMode::Allow,
        Some("prefer") => SslMode::Prefer,
        Some("require") => SslMode::Require,
        Some("verify-ca") => SslMode::VerifyCa,
        Some("verify-full") => SslMode::VerifyFull,
        Some(other) => {
            return Err(format!(
                "sslmode={other} is unknown: set disable, allow, prefer, require, verify-ca or verify-full"
            ));
        }
    };
    // Anyone can get a certificate of a public authority, for their own host name.
    if root == Some("system") && mode < SslMode::VerifyFull {
        return Err("sslrootcert=system needs sslmode=verify-full: set it, or remove sslmode".to_owned());
    }
    Ok(mode)
}

fn choice<T: Copy>(given: Option<&str>, name: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let Some(given) = given else { return Ok(choices[0].1) };
    let found = choices.iter().find(|(choice, _)| *choice == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
        format!("{name}={given} is unknown: set one of {}", known.join(", "))
    })
}

fn number<T: FromStr>(values: &Values, name: &str) -> Result<Option<T>, String> {
    let given = values
        .get(name)
        .map(|value| value.trim())
        .filter(|value| !value.is_empty());
    let parsed = given.map(|value| value.parse().map_err(|_| format!("{name}={value} is not a number")));
    parsed.transpose()
}

fn targets(values: &Values) -> Result<Vec<Target>, String> {
    let list = |name: &str| -> Vec<&str> {
        let given = values.get(name).filter(|value| !value.is_empty());
        given.map(|value| value.split(',').collect()).unwrap_or_default()
    };
    let (hosts, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
    let count = hosts.len().max(addresses.len()).max(1);
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(format!(
            "host names {} hosts and hostaddr {} addresses: give both the same number",
            hosts.len(),
            addresses.len()
        ));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(format!(
            "port names {} ports for {count} hosts: give one, or one for each host",
            ports.len()
        ));
    }
    let mut targets = Vec::with_capacity(count);
    for index in 0..count {
        let port = ports.get(index).or(ports.first()).map_or("", |port| port.trim());
        let port = match port {
            "" => 5432,
            port => {
                let parsed = port.parse().ok().filter(|port| *port > 0);
                parsed.ok_or_else(|| format!("the port {port} is not a number from 1 to 65535"))?
            }
        };
        let address = addresses.get(index).filter(|address| !address.is_empty());
        let address = address.map(|address| {
            let parsed = address.parse::<IpAddr>();
            parsed.map_err(|_| format!("hostaddr={address} is not an IP address: name it by host"))
        });
        let address = address.transpose()?;
        let host = match (hosts.get(index).copied().unwrap_or_default(), address) {
            ("", Some(address)) => Host::Tcp(address.to_string()),
            ("", None) => default_host(port),
            (name, None) if name.starts_with('@') => {
                return Err(format!("host={name}: sockets without a file are not supported"));
            }
            #[cfg(unix)]
            (folder, None) if folder.starts_with('/') => Host::Unix(folder.into()),
            (name, _) => Host::Tcp(name.to_owned()),
        };
        targets.push(Target { host, address, port });
    }
    Ok(targets)
}

/// Folders of the socket in packages of PostgreSQL and in PostgreSQL itself.
#[cfg(unix)]
const SOCKETS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

#[cfg(unix)]
fn is_default_socket(folder: &Path) -> bool {
    SOCKETS.iter().any(|default| Path::new(default) == folder)
}

#[cfg(unix)]
fn default_host(port: u16) -> Host {
    let has_socket = |folder: &&&str| Path::new(folder).join(format!(".s.PGSQL.{port}")).exists();
    // Without any, the message names the folder of packages.
    Host::Unix(SOCKETS.iter().find(has_socket).unwrap_or(&SOCKETS[0]).into())
}

#[cfg(not(unix))]
fn default_host(_: u16) -> Host {
    Host::Tcp("localhost".to_owned())
}

/// Returns the permissions of a file that others can read.
#[cfg(unix)]
pub(crate) fn open_to_others(file: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    let mode = file.metadata().ok()?.mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(not(unix))]
pub(crate) fn open_to_others(_: &Path) -> Option<u32> {
    None
}

/// Returns the password of a line of a password file, if its four other fields match.
fn password_of(line: &str, wanted: &[&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![(String::new(), false)];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        // The password is the rest of the line, up to a further colon.
        let field = fields.last_mut()?;
        match character {
            '\\' => {
                field.0.extend(characters.next());
                field.1 = true;
            }
            ':' => fields.push((String::new(), false)),
            other => field.0.push(other),
        }
    }
    let is_match =
        |((field, is_escaped), wanted): (&(String, bool), &&str)| (field == "*" && !is_escaped) || field == *wanted;
    if fields.len() < 5 || !fields.iter().zip(wanted).all(is_match) {
        return None;
    }
    Some(fields.swap_remove(4).0).filter(|password| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::connection_string::tests::libpq;

    fn settings(text: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
        let set: Vec<(String, String)> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let environment = Environment {
            variable: Box::new(move |name| set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone())),
            home: None,
        };
        Settings::of(text, &environment)
    }

    #[test]
    fn the_environment_and_a_service_complete_a_connection_string_as_in_libpq() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("services");
        let text = "# a comment\n[other]\nhost=wrong\n\n[mine]\nhost=of-service\nport=7\nport=8\nuser=of-service\n[last]\nport=9\n";
        std::fs::write(&file, text).expect("written");
        let file = file.display().to_string();
        let sets: [&[(&str, &str)]; 3] = [
            &[],
            &[
                ("PGHOST", "h"),
                ("PGPORT", "1"),
                ("PGUSER", "u"),
                ("PGPASSWORD", "p"),
                ("PGDATABASE", "d"),
                ("PGSSLMODE", "require"),
            ],
            &[
                ("PGSERVICE", "mine"),
                ("PGSERVICEFILE", &file),
                ("PGHOST", "h"),
                ("PGDATABASE", "d"),
            ],
        ];
        for variables in sets {
            let Some(expected) = libpq(&[], variables) else { return };
            let own = settings("", variables).map(|settings| settings.values).ok();
            match (&own, &expected[0]) {
                (None, None) => {}
                (Some(own), Some(expected)) => {
                    for (name, value) in own {
                        assert_eq!(expected.get(*name), Some(value), "{name} of {variables:?}");
                    }
                    for name in ["host", "password", "dbname"] {
                        assert_eq!(
                            expected.contains_key(name),
                            own.contains_key(name),
                            "{name} of {variables:?}"
                        );
                    }
                }
                other => panic!("{variables:?}: {other:?}"),
            }
        }
        let missing = settings("service=missing", &[("PGSERVICEFILE", &file)]);
        assert!(missing.expect_err("is not there").contains("PGSERVICEFILE"));
        let own = settings("service=mine port=3", &[("PGSERVICEFILE", &file)]).expect("valid");
        assert_eq!(
            (own.targets[0].to_string(), &*own.user),
            ("of-service:3".to_owned(), "of-service")
        );
    }

    #[test]
    fn each_host_has_its_port_and_an_empty_host_is_the_local_socket() {
        let targets = |text: &str| -> Result<Vec<String>, String> {
            Ok(settings(text, &[])?.targets.iter().map(ToString::to_string).collect())
        };
        assert_eq!(targets("host=a,b,c port=1").expect("valid"), ["a:1", "b:1", "c:1"]);
        assert_eq!(
            targets("postgres://a:1,[::1],c:3/d").expect("valid"),
            ["a:1", "::1:5432", "c:3"]
        );
        assert_eq!(targets("hostaddr=127.0.0.1").expect("valid"), ["127.0.0.1:5432"]);
        assert!(targets("postgres:///d").expect("valid")[0].starts_with('/'));
        assert!(
            targets("host=a,b port=1,2,3")
                .expect_err("three ports")
                .contains("port")
        );
        assert!(
            targets("host=a,b hostaddr=127.0.0.1")
                .expect_err("one address")
                .contains("hostaddr")
        );
        assert!(targets("port=0").expect_err("no port").contains("1 to 65535"));
    }

    #[test]
    fn a_setting_that_would_weaken_or_break_a_connection_is_refused_by_its_name() {
        for (text, names) in [
            ("sslmode=verify", "sslmode"),
            ("sslrootcert=system sslmode=require", "sslmode=verify-full"),
            ("target_session_attrs=standby", "read-write"),
            ("gssencmode=require", "gssencmode"),
            ("require_auth=scram-sha-256", "require_auth"),
            ("channel_binding=always", "channel_binding"),
            ("connect_timeout=soon", "connect_timeout"),
            ("replication=database", "replication"),
        ] {
            let why = settings(text, &[]).expect_err(text);
            assert!(why.contains(names), "{text}: {why}");
        }
        assert_eq!(
            settings("sslrootcert=system", &[]).expect("valid").sslmode,
            SslMode::VerifyFull
        );
    }

    #[test]
    fn a_line_of_a_password_file_matches_by_its_fields_and_wildcards() {
        let of = |line: &str| password_of(line, &["h", "1", "d:b", "u"]);
        assert_eq!(of("h:1:d\\:b:u:p"), Some("p".to_owned()));
        assert_eq!(of("*:*:*:*:a\\:b\\\\c"), Some("a:b\\c".to_owned()));
        assert_eq!(of("*:*:*:*:p:more"), Some("p".to_owned()));
        for line in ["#h:1:*:u:p", "h:2:*:u:p", "h:1:*:u", "h:1:\\*:u:p", "h:1:*:u:", ""] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
