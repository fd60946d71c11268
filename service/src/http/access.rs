//! Access control: the token, the requested host, and the origin of the page that sends the request.
//!
//! A page that a browser has open can send requests to a service on the loopback interface, and by DNS rebinding it can even read
//! the answers: to the browser the service then is the page's own host. So a request must name one of the service's configured
//! hosts, and a request with an `Origin` must come from that host or from an allowed origin.

use axum::http::header::{AUTHORIZATION, HOST, LOCATION, ORIGIN, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use subtle::{Choice, ConstantTimeEq};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::invalid_option::InvalidOption;
use crate::http::caller::{Caller, Grant};
#[cfg(feature = "jwt")]
use crate::http::jwt::JwtVerifier;
use crate::http::problem::{Problem, ProblemCode};

/// True for a method that changes nothing.
pub(crate) fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Names of the loopback interface.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Access rules of a service.
#[derive(Clone, Debug)]
pub struct Access {
    /// Bearer tokens with every right. If there are no tokens of any kind, none is needed.
    pub tokens: Vec<String>,
    /// Bearer tokens with separate rights.
    pub grants: Vec<Grant>,
    /// Identity provider of additional accepted tokens.
    #[cfg(feature = "jwt")]
    pub jwt: Option<JwtVerifier>,
    /// Host names and addresses that requests may use, without a port. `None` allows any host, for a service behind a proxy that
    /// checks hosts.
    pub hosts: Option<Vec<String>>,
    /// Origins of pages on other hosts that may send requests: `https://app.example.com`.
    pub origins: Vec<String>,
}

impl Default for Access {
    /// Allows requests without a token, to names of the loopback interface only.
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            grants: Vec::new(),
            #[cfg(feature = "jwt")]
            jwt: None,
            hosts: Some(LOOPBACK.map(str::to_owned).to_vec()),
            origins: Vec::new(),
        }
    }
}

impl Access {
    /// Also accepts requests to this host name or address.
    #[must_use]
    pub fn host(mut self, name: &str) -> Self {
        self.hosts.get_or_insert_default().push(name.to_ascii_lowercase());
        self
    }

    /// Checks a name for [`host`](Self::host).
    ///
    /// # Errors
    /// Returns a message if no request can name a host in this form.
    pub fn check_host(name: &str) -> Result<(), InvalidOption> {
        let is_v6 = name.starts_with('[') && name.ends_with(']');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || (is_v6 && "[]:%".contains(c));
        if name.contains("://") || name.contains('/') {
            return Err("a host must not have a scheme or a path: write `pirn.example.com`".into());
        }
        if !is_v6 && name.parse::<std::net::Ipv6Addr>().is_ok() {
            return Err(format!("an IPv6 address needs brackets: write `[{name}]`").into());
        }
        if name.contains('*') {
            return Err("patterns are not supported: list each host".into());
        }
        if !is_v6 && name.contains(':') {
            return Err("a host must not have a port: it is allowed at every port".into());
        }
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err("a host is a name in ASCII or an address, such as `pirn.example.com`".into());
        }
        Ok(())
    }

    /// Returns the host of the base URL at which other services reach this one. Their requests name it, so it must be a
    /// [`host`](Self::host) of this service.
    ///
    /// # Errors
    /// Returns a message if the URL is not that of an HTTP server.
    pub fn advertised_host(url: &str) -> Result<String, InvalidOption> {
        let example = "write the URL at which other services reach this one, such as `http://svc-a:7474`";
        let invalid = |why: &str| InvalidOption::from(format!("{why}: {example}"));
        let parsed: Uri = url.parse().map_err(|_| invalid("not a URL"))?;
        if !matches!(parsed.scheme_str(), Some("http" | "https")) {
            return Err(invalid("a URL with http:// or https:// is needed"));
        }
        if url.contains(['?', '#', '@']) {
            return Err(invalid("the URL must not have a user, a query or a fragment"));
        }
        let host = parsed.host().unwrap_or_default();
        Self::check_host(host).map_err(|_| invalid("the host is not valid"))?;
        Ok(host.to_owned())
    }

    /// Checks one of the [`origins`](Self::origins).
    ///
    /// # Errors
    /// Returns a message if no browser sends such an origin.
    pub fn check_origin(origin: &str) -> Result<(), InvalidOption> {
        let example = "write `https://app.example.com`, or with its port `http://localhost:3000`";
        if origin.contains('*') {
            return Err(format!("patterns are not supported: list each origin, {example}").into());
        }
        let Some((scheme, rest)) = origin.split_once("://") else {
            return Err(format!("an origin starts with a scheme: {example}").into());
        };
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let starts_well = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_scheme);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !rest.ends_with(']') => (host, Some(port)),
            _no_port => (rest, None),
        };
        if rest.contains(['/', '?', '#', '@']) {
            return Err(format!("an origin is a scheme, a host and a port, without a path: {example}").into());
        }
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(format!("an origin's port is a number: {example}").into());
        }
        let default = match scheme.to_ascii_lowercase().as_str() {
            "http" => Some("80"),
            "https" => Some("443"),
            _other => None,
        };
        if port.is_some() && port == default {
            return Err(format!("browsers omit the default port of a scheme: write `{scheme}://{host}`").into());
        }
        if !starts_well || Self::check_host(host).is_err() {
            return Err(format!("not a valid origin: {example}").into());
        }
        Ok(())
    }

    /// Returns the sender of a request that comes from an allowed page and has an accepted token.
    pub(crate) async fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<Caller, Problem> {
        self.check_source(headers, uri)?;
        if !self.needs_token() {
            return Ok(Caller::anyone());
        }
        let token = bearer(headers).ok_or_else(|| {
            let detail = "send a token of the service: Authorization: Bearer TOKEN";
            Problem::new(ProblemCode::Unauthorized, detail)
        })?;
        if let Some(caller) = self.holder(token) {
            return Ok(caller);
        }
        #[cfg(feature = "jwt")]
        if let Some(verifier) = &self.jwt {
            let token = std::str::from_utf8(token).unwrap_or_default();
            return verifier.verify(token).await;
        }
        let detail = "the token is not one of the service's";
        Err(Problem::new(ProblemCode::Unauthorized, detail))
    }

    /// True if a request must have a token.
    pub(crate) fn needs_token(&self) -> bool {
        #[cfg(feature = "jwt")]
        if self.jwt.is_some() {
            return true;
        }
        !self.tokens.is_empty() || !self.grants.is_empty()
    }

    /// Checks the requested host and the origin only, for files that need no token.
    pub(crate) fn check_source(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let asked = asked_host(headers, uri);
        if let Some(hosts) = &self.hosts
            && !asked.as_deref().is_some_and(|asked| is_one_of(hosts, asked))
        {
            let name = asked.as_deref().unwrap_or("no host");
            let detail = format!("the request is for {name}, which is not an allowed host of this service");
            return Err(Problem::new(ProblemCode::WrongHost, detail));
        }
        // Check every `Origin` header: a proxy may have read any of them.
        let mut origins = headers.get_all(ORIGIN).iter();
        if !origins.all(|origin| self.is_own(origin, asked.as_deref())) {
            let detail = "pages of this origin may not send requests";
            return Err(Problem::new(ProblemCode::WrongOrigin, detail));
        }
        Ok(())
    }

    fn is_own(&self, origin: &HeaderValue, asked: Option<&str>) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        let host = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        let is_same = host.is_some_and(|host| asked.is_some_and(|asked| host.eq_ignore_ascii_case(asked)));
        is_same || self.origins.iter().any(|own| own.eq_ignore_ascii_case(origin))
    }

    /// Returns the holder of a static token.
    fn holder(&self, token: &[u8]) -> Option<Caller> {
        // Compare with every token, without an early exit: the response time must not reveal which token matches.
        let is_plain = self
            .tokens
            .iter()
            .fold(Choice::from(0), |found, own| found | own.as_bytes().ct_eq(token));
        let granted = self.grants.iter().fold(None, |found, own| {
            let is_own = bool::from(own.token.as_bytes().ct_eq(token));
            if is_own { Some(own) } else { found }
        });
        let all = bool::from(is_plain).then(|| Caller {
            name: "token".into(),
            ..Caller::anyone()
        });
        granted.map(Caller::from).or(all)
    }

    /// Returns the CORS layer, which allows pages of the configured origins to read answers.
    pub(crate) fn cors(&self) -> CorsLayer {
        // Filter first: the layer panics on a wildcard in the list. Other invalid values match no request.
        let origins = self.origins.iter().filter(|origin| Self::check_origin(origin).is_ok());
        let origins = origins.filter_map(|origin| HeaderValue::from_str(&origin.to_ascii_lowercase()).ok());
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods(tower_http::cors::AllowMethods::mirror_request())
            .allow_headers(AllowHeaders::mirror_request())
            // A browser's MCP client must send the id of its session with each further request.
            .expose_headers([LOCATION, RETRY_AFTER, HeaderName::from_static("mcp-session-id")])
    }
}

/// Returns the bearer token of a request with exactly one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next().map(HeaderValue::as_bytes), values.next()) else {
        return None;
    };
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Returns the requested host with its port, as the client wrote it.
fn asked_host(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let mut named = headers.get_all(HOST).iter();
    let host = match (uri.authority(), named.next(), named.next()) {
        (Some(authority), _, None) => authority.as_str(),
        (None, Some(host), None) => host.to_str().ok()?,
        _none_or_several => return None,
    };
    Some(host.to_ascii_lowercase())
}

fn is_one_of(hosts: &[String], asked: &str) -> bool {
    let without_port = match asked.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _no_port => asked,
    };
    hosts.iter().any(|host| host == without_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(access: &Access, headers: &[(&'static str, &str)]) -> Result<(), &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a header"));
        }
        let path = Uri::from_static("/v1/runs");
        let checked = futures::executor::block_on(access.check(&map, &path));
        checked.map(drop).map_err(|problem| problem.code())
    }

    #[test]
    fn an_unknown_host_is_refused_with_any_port() {
        let access = Access::default().host("Pirn.Example.com");
        for own in [
            "localhost",
            "localhost:80",
            "LOCALHOST:7474",
            "127.0.0.1:1",
            "[::1]:7474",
            "[::1]",
            "pirn.example.com",
        ] {
            assert_eq!(asked(&access, &[("host", own)]), Ok(()), "{own}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example:7474",
            "127.0.0.1.evil.example",
            "localhost@evil",
            "",
        ] {
            assert_eq!(asked(&access, &[("host", other)]), Err("WRONG_HOST"), "{other}");
        }
        assert_eq!(asked(&access, &[]), Err("WRONG_HOST"));
        assert_eq!(
            asked(&access, &[("host", "localhost"), ("host", "evil")]),
            Err("WRONG_HOST")
        );
    }

    #[test]
    fn a_cross_origin_request_is_refused_unless_its_origin_is_allowed() {
        let access = Access {
            origins: vec!["https://app.example.com".to_owned()],
            ..Access::default()
        };
        let from = |origin| asked(&access, &[("host", "localhost:7474"), ("origin", origin)]);
        let (own, evil) = (("origin", "https://app.example.com"), ("origin", "http://evil.example"));
        for several in [[own, evil], [evil, own]] {
            let headers = [("host", "localhost:7474"), several[0], several[1]];
            assert_eq!(asked(&access, &headers), Err("WRONG_ORIGIN"), "{several:?}");
        }
        assert_eq!(from("http://localhost:7474"), Ok(()));
        assert_eq!(from("https://app.example.com"), Ok(()));
        for other in [
            "http://localhost:3000",
            "http://evil.example",
            "null",
            "https://app.example.com.evil.example",
            "",
        ] {
            assert_eq!(from(other), Err("WRONG_ORIGIN"), "{other}");
        }
    }

    #[test]
    fn an_advertised_url_is_that_of_an_http_server() {
        for (url, host) in [
            ("http://svc-a:7474", "svc-a"),
            ("https://pirn.example.com/workflows/", "pirn.example.com"),
            ("http://[::1]:7474", "[::1]"),
        ] {
            assert_eq!(Access::advertised_host(url).as_deref(), Ok(host), "{url}");
        }
        for url in [
            "",
            "svc-a:7474",
            "svc-a",
            "/v1",
            "ftp://svc-a",
            "http://",
            "http://svc a:7474",
            "http://user@svc-a",
            "http://svc-a/?x=1",
            "http://svc-a/#x",
            "http://*:7474",
        ] {
            let refused = Access::advertised_host(url).expect_err(url).to_string();
            assert!(refused.contains("http://svc-a:7474"), "{refused}");
        }
    }

    #[test]
    fn origins_and_hosts_that_cannot_match_a_request_are_rejected() {
        for origin in [
            "https://app.example.com",
            "http://localhost:3000",
            "http://[::1]:3000",
            "https://APP.example.com",
            "tauri://localhost",
            "http://127.0.0.1",
        ] {
            assert_eq!(Access::check_origin(origin), Ok(()), "{origin}");
        }
        for origin in [
            "*",
            "https://*.example.com",
            "null",
            "",
            "app.example.com",
            "https://app.example.com/",
            "https://app.example.com/path",
            "https://app.example.com:443",
            "http://localhost:80",
            "http://localhost:x",
            "https://user@app.example.com",
            "https://bücher.example",
            "https://",
            "://app.example.com",
            "https://app.example.com, https://b.example.com",
        ] {
            assert!(Access::check_origin(origin).is_err(), "{origin}");
        }
        for host in ["pirn.example.com", "PIRN", "10.0.0.1", "[::1]", "my_host"] {
            assert_eq!(Access::check_host(host), Ok(()), "{host}");
        }
        for host in [
            "",
            "*",
            "*.example.com",
            "http://pirn",
            "pirn/",
            "pirn:7474",
            "::1",
            "a b",
            "bücher.example",
        ] {
            assert!(Access::check_host(host).is_err(), "{host}");
        }
        let access = Access {
            origins: vec!["*".to_owned(), "https://a.example".to_owned()],
            ..Access::default()
        };
        // Must not panic: `cors` filters out the wildcard, which the layer rejects by a panic.
        drop(access.cors());
    }

    #[test]
    fn every_configured_token_grants_access_and_others_do_not() {
        let access = Access {
            tokens: vec!["one".to_owned(), "two".to_owned()],
            ..Access::default()
        };
        let with = |value| asked(&access, &[("host", "localhost"), ("authorization", value)]);
        assert_eq!(with("Bearer one"), Ok(()));
        assert_eq!(with("bearer two"), Ok(()));
        for other in [
            "Bearer three",
            "Bearer on",
            "Bearer one ",
            "Bearer ",
            "one",
            "Basic one",
            "",
        ] {
            assert_eq!(with(other), Err("UNAUTHORIZED"), "{other}");
        }
        assert_eq!(asked(&access, &[("host", "localhost")]), Err("UNAUTHORIZED"));
        let (right, wrong) = (("authorization", "Bearer one"), ("authorization", "Bearer three"));
        for several in [[right, wrong], [wrong, right], [right, right]] {
            let headers = [("host", "localhost"), several[0], several[1]];
            assert_eq!(asked(&access, &headers), Err("UNAUTHORIZED"), "{several:?}");
        }
    }
}
