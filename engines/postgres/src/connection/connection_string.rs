//! Connection strings: URLs and lists of `key=value`, with the grammar of libpq.

use std::collections::BTreeMap;

/// Keyword, and the environment variable with its default.
const KEYWORDS: &[(&str, &str)] = &[
    ("application_name", "PGAPPNAME"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("client_encoding", "PGCLIENTENCODING"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("dbname", "PGDATABASE"),
    ("fallback_application_name", ""),
    ("gssdelegation", "PGGSSDELEGATION"),
    ("gssencmode", "PGGSSENCMODE"),
    ("gsslib", "PGGSSLIB"),
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("keepalives", ""),
    ("keepalives_count", ""),
    ("keepalives_idle", ""),
    ("keepalives_interval", ""),
    ("krbsrvname", "PGKRBSRVNAME"),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    ("max_protocol_version", "PGMAXPROTOCOLVERSION"),
    ("min_protocol_version", "PGMINPROTOCOLVERSION"),
    ("options", "PGOPTIONS"),
    ("passfile", "PGPASSFILE"),
    ("password", "PGPASSWORD"),
    ("port", "PGPORT"),
    ("replication", ""),
    ("require_auth", "PGREQUIREAUTH"),
    ("requirepeer", "PGREQUIREPEER"),
    ("service", "PGSERVICE"),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    ("sslcert", "PGSSLCERT"),
    ("sslcertmode", "PGSSLCERTMODE"),
    ("sslcompression", "PGSSLCOMPRESSION"),
    ("sslcrl", "PGSSLCRL"),
    ("sslcrldir", "PGSSLCRLDIR"),
    ("sslkey", "PGSSLKEY"),
    ("sslmode", "PGSSLMODE"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("sslpassword", ""),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslsni", "PGSSLSNI"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("tcp_user_timeout", ""),
    ("user", "PGUSER"),
];

/// Values by keyword. An empty value overrides the environment, as in libpq.
pub(crate) type Values = BTreeMap<&'static str, String>;

/// Returns the keywords that have an environment variable, with the variable.
pub(crate) fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    KEYWORDS.iter().copied().filter(|(_, variable)| !variable.is_empty())
}

/// Returns the known keyword of this name.
pub(crate) fn keyword(name: &str) -> Option<&'static str> {
    KEYWORDS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// Parses a connection string. Errors never contain a value, which may be a password.
pub(crate) fn parse(text: &str) -> Result<Values, String> {
    if text.contains('\0') {
        return Err("it contains a NUL character".to_owned());
    }
    let url = ["postgresql://", "postgres://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    match url {
        Some(rest) => parse_url(rest),
        None => parse_pairs(text),
    }
}

fn put(values: &mut Values, name: &str, value: String) -> Result<(), String> {
    // Accepted by libpq for old clients.
    let (name, value) = match (name, value.starts_with('1')) {
        ("requiressl", true) => ("sslmode", "require".to_owned()),
        ("requiressl", false) => ("sslmode", "prefer".to_owned()),
        _ => (name, value),
    };
    let known = keyword(name).ok_or_else(|| format!("unknown setting \"{name}\""))?;
    values.insert(known, value);
    Ok(())
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("a % is not followed by two hexadecimal digits: write % as %25".to_owned());
        };
        match u8::try_from(high * 16 + low) {
            Ok(0) | Err(_) => return Err("%00 is not allowed".to_owned()),
            Ok(byte) => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| "a percent-encoded value is not UTF-8".to_owned())
}

/// Splits a string before the first of some characters.
fn until<'a>(text: &'a str, ends: &[char]) -> (&'a str, &'a str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Parses a URL without its scheme.
fn parse_url(rest: &str) -> Result<Values, String> {
    let mut values = Values::new();
    let mut rest = rest;
    // As in libpq, an `@` before the first `/` ends the user, even after a `?`.
    let (before, after) = until(rest, &['@', '/']);
    if let Some(after) = after.strip_prefix('@') {
        let (user, password) = before.split_once(':').unwrap_or((before, ""));
        for (name, value) in [("user", user), ("password", password)] {
            if !value.is_empty() {
                put(&mut values, name, decoded(value)?)?;
            }
        }
        rest = after;
    }
    let (mut hosts, mut ports) = (String::new(), String::new());
    loop {
        let host;
        if let Some(address) = rest.strip_prefix('[') {
            let (address, after) = address.split_once(']').ok_or("an IPv6 address has no closing \"]\"")?;
            if address.is_empty() {
                return Err("an IPv6 address is empty".to_owned());
            }
            if !(after.is_empty() || after.starts_with([':', '/', '?', ','])) {
                return Err("after the \"]\" of an IPv6 address, \":\", \"/\", \"?\" or \",\" is expected".to_owned());
            }
            (host, rest) = (address, after);
        } else {
            (host, rest) = until(rest, &[':', '/', '?', ',']);
        }
        hosts.push_str(host);
        if let Some(after) = rest.strip_prefix(':') {
            let (port, after) = until(after, &['/', '?', ',']);
            ports.push_str(port);
            rest = after;
        }
        let Some(after) = rest.strip_prefix(',') else { break };
        rest = after;
        hosts.push(',');
        ports.push(',');
    }
    for (name, value) in [("host", hosts), ("port", ports)] {
        if !value.is_empty() {
            put(&mut values, name, decoded(&value)?)?;
        }
    }
    if let Some(after) = rest.strip_prefix('/') {
        let (database, after) = until(after, &['?']);
        if !database.is_empty() {
            put(&mut values, "dbname", decoded(database)?)?;
        }
        rest = after;
    }
    let mut query = rest.strip_prefix('?').unwrap_or_default();
    while !query.is_empty() {
        let (pair, after) = query.split_once('&').unwrap_or((query, ""));
        query = after;
        let (name, value) = pair.split_once('=').ok_or("a parameter after the \"?\" has no \"=\"")?;
        if value.contains('=') {
            return Err("a parameter after the \"?\" has two \"=\": write the second as %3D".to_owned());
        }
        let (name, value) = (decoded(name)?, decoded(value)?);
        // The spelling of JDBC.
        if (&*name, &*value) == ("ssl", "true") {
            put(&mut values, "sslmode", "require".to_owned())?;
        } else {
            put(&mut values, &name, value)?;
        }
    }
    Ok(values)
}

/// `isspace` of C; `char::is_ascii_whitespace` lacks the vertical tab.
fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

fn parse_pairs(text: &str) -> Result<Values, String> {
    let mut values = Values::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = rest.find(|c| c == '=' || is_space(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let Some(after) = after.trim_start_matches(is_space).strip_prefix('=') else {
            return Err("neither postgres://... nor a list of key=value: a key has no \"=\"".to_owned());
        };
        let after = after.trim_start_matches(is_space);
        let is_quoted = after.starts_with('\'');
        let mut value = String::new();
        let mut characters = after.chars();
        if is_quoted {
            characters.next();
        }
        loop {
            match characters.next() {
                None if is_quoted => return Err(format!("the quoted value of \"{name}\" has no end")),
                None => break,
                // A backslash at the end stands for nothing.
                Some('\\') => value.extend(characters.next()),
                Some('\'') if is_quoted => break,
                Some(space) if !is_quoted && is_space(space) => break,
                Some(other) => value.push(other),
            }
        }
        put(&mut values, name, value)?;
        rest = characters.as_str().trim_start_matches(is_space);
    }
    Ok(values)
}

/// Returns a connection string without its passwords, for messages and commands to copy.
pub fn without_password(text: &str) -> String {
    // A value of a list may contain `://` too.
    if let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        return url_without_password(scheme, rest);
    }
    let Ok(mut values) = parse(text) else {
        // A string that cannot be parsed may have a password anywhere.
        return "URL".to_owned();
    };
    values.retain(|name, _| !name.contains("password"));
    let quoted = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
    let pairs = values.iter().map(|(name, value)| {
        if value.is_empty() || value.contains(|c| is_space(c) || "'\\".contains(c)) {
            format!("{name}='{}'", quoted(value))
        } else {
            format!("{name}={value}")
        }
    });
    pairs.collect::<Vec<_>>().join(" ")
}

fn is_scheme(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

fn url_without_password(scheme: &str, rest: &str) -> String {
    // As in `parse_url`: a `?` before the `@` that ends the user is part of the password.
    let (before, after) = until(rest, &['@', '/']);
    let begin = if after.starts_with('@') { before.len() } else { 0 };
    let end = rest[begin..].find('?').map_or(rest.len(), |place| begin + place);
    let (rest, query) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    let is_shown = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
        // Names with percent-encoding are hidden too: an encoded name may mean `password`.
        !name.contains("pass") && !name.contains('%')
    };
    let query: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .filter(is_shown)
        .collect();
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("?{}", query.join("&"))
    };
    let Some((user, host)) = rest.rsplit_once('@') else {
        return format!("{scheme}://{rest}{query}");
    };
    let user = user.split_once(':').map_or(user, |(user, _)| user);
    format!("{scheme}://{user}@{host}{query}")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Parses each line of its input by libpq; without one, prints libpq's defaults.
    const LIBPQ: &str = r#"
import ctypes, json, sys
names = ("keyword", "envvar", "compiled", "val", "label", "dispchar")
class Option(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in names] + [("dispsize", ctypes.c_int)]
try:
    library = ctypes.CDLL("libpq.so.5")
except OSError:
    sys.exit(3)
library.PQconninfoParse.restype = library.PQconndefaults.restype = ctypes.POINTER(Option)
library.PQconninfoParse.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
def show(options):
    if not options:
        return print("null")
    found, index = {}, 0
    while options[index].keyword:
        if options[index].val is not None:
            found[options[index].keyword.decode()] = options[index].val.decode(errors="replace")
        index += 1
    print(json.dumps(found))
texts = [json.loads(line) for line in sys.stdin]
for text in texts:
    show(library.PQconninfoParse(text.encode(), None))
if not texts:
    show(library.PQconndefaults())
"#;

    type Answer = Option<BTreeMap<String, String>>;

    /// Returns libpq's values for each string, or its defaults in an environment; none, with a message, if it is not installed.
    pub(crate) fn libpq(texts: &[String], variables: &[(&str, &str)]) -> Option<Vec<Answer>> {
        let mut command = Command::new("python3");
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).envs(variables.iter().copied());
        let started = command
            .args(["-c", LIBPQ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut process) = started else {
            eprintln!("SKIPPED: no python3");
            return None;
        };
        let mut input = process.stdin.take().expect("is piped");
        let lines = texts.iter().map(|text| format!("{}\n", serde_json::json!(text)));
        input.write_all(lines.collect::<String>().as_bytes()).expect("is read");
        drop(input);
        let output = process.wait_with_output().expect("ends");
        if output.status.code() == Some(3) {
            eprintln!("SKIPPED: no libpq.so.5: apt-get install libpq5");
            return None;
        }
        assert!(output.status.success());
        let lines = output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        Some(
            lines
                .map(|line| serde_json::from_slice(line).expect("is JSON"))
                .collect(),
        )
    }

    #[test]
    fn every_connection_string_means_what_it_means_to_libpq() {
        const PIECES: [&str; 44] = [
            "postgres://",
            "postgresql://",
            "postgres:/",
            "user",
            ":",
            "@",
            "/",
            "?",
            "&",
            "=",
            "%20",
            "%2F",
            "%00",
            "%zz",
            "%C3%BC",
            "[::1]",
            "[",
            "]",
            ",",
            " ",
            "\t",
            "\u{b}",
            "'",
            "\\",
            "host",
            "hostaddr",
            "port",
            "dbname",
            "password",
            "sslmode",
            "ssl=true",
            "requiressl",
            "1",
            "0",
            "x",
            "\u{fc}",
            "connect_timeout=5",
            "host=",
            "user=",
            " = ",
            "db",
            "a.example",
            "5432",
            "unknown",
        ];
        let mut state = 0x5eed_u64;
        let mut roll = |sides: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 33).expect("31 bits") % sides
        };
        let texts: Vec<String> = (0..20_000)
            .map(|number| {
                // Half of the strings are URLs.
                let scheme = if number % 2 == 0 { "postgres://" } else { "" };
                let pieces = (0..roll(12)).map(|_| PIECES[roll(PIECES.len())]);
                format!("{scheme}{}", pieces.collect::<String>())
            })
            .collect();
        let Some(expected) = libpq(&texts, &[]) else { return };
        let mut accepted = 0;
        for (text, expected) in texts.iter().zip(expected) {
            let own = parse(text).ok();
            let own: Answer = own.map(|values| {
                values
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            });
            assert_eq!(own, expected, "{text:?}");
            accepted += usize::from(own.is_some_and(|values| !values.is_empty()));
        }
        assert!(accepted > 2_000, "{accepted}");
    }

    #[test]
    fn a_shown_connection_string_has_no_password() {
        for (text, shown) in [
            ("postgres://u:secret@h/d", "postgres://u@h/d"),
            (
                "postgres://u@h/d?password=secret&sslmode=require",
                "postgres://u@h/d?sslmode=require",
            ),
            ("postgres://u@h/d?%70assword=secret", "postgres://u@h/d"),
            ("host=h password='se cret' user=u", "host=h user=u"),
            ("host = h dbname='a b' sslpassword=secret", "dbname='a b' host=h"),
            ("host=h password='secret", "URL"),
            ("host=h password=secret://more user=u", "host=h user=u"),
            ("password='secret postgres://' host=h", "host=h"),
            (
                "postgres://u:sec?ret@h/d?sslmode=require",
                "postgres://u@h/d?sslmode=require",
            ),
            ("postgres://u:secret?@h", "postgres://u@h"),
            ("postgres://h/d?user=a@b", "postgres://h/d?user=a@b"),
            ("https://h:8080/?x=1", "https://h:8080/?x=1"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }
}
