//! Access control: the token, the host that was meant, and the origin of the page that asks.
//!
//! A page that a browser has open can send requests to a service on the loopback interface, and by DNS rebinding it can even
//! read the answers: to the browser the service then is the page's own host. So a request must name a host that the service
//! knows as its own, and one with an `Origin` must come from the same host or from an origin that is allowed.

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::{Choice, ConstantTimeEq};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::problem::{Problem, ProblemCode};
use super::state::Service;

/// Names of the loopback interface.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Paths that whoever watches over the process asks for: they say nothing of its work.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The access rules.
#[derive(Clone, Debug)]
pub struct Access {
    /// Bearer tokens, any of which lets in; none: no token is needed.
    pub tokens: Vec<String>,
    /// Names and addresses that the service is asked by, without a port; none: any, for a service behind something that
    /// checks them.
    pub hosts: Option<Vec<String>>,
    /// Origins of pages on other hosts that may ask: `https://app.example.com`.
    pub origins: Vec<String>,
}

impl Default for Access {
    /// Without a token, from the loopback interface.
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            hosts: Some(LOOPBACK.map(str::to_owned).to_vec()),
            origins: Vec::new(),
        }
    }
}

impl Access {
    /// Also asked by this name or address.
    #[must_use]
    pub fn host(mut self, name: &str) -> Self {
        self.hosts.get_or_insert_default().push(name.to_ascii_lowercase());
        self
    }

    fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let asked = asked_host(headers, uri);
        if let Some(hosts) = &self.hosts
            && !asked.as_deref().is_some_and(|asked| is_one_of(hosts, asked))
        {
            let name = asked.as_deref().unwrap_or("no host");
            let detail = format!("the request is for {name}, which this service is not told to answer for");
            return Err(Problem::new(ProblemCode::WrongHost, detail));
        }
        if let Some(origin) = headers.get(ORIGIN)
            && !self.is_own(origin, asked.as_deref())
        {
            let detail = "pages of this origin may not send requests";
            return Err(Problem::new(ProblemCode::WrongOrigin, detail));
        }
        if self.tokens.is_empty() || self.has_token(headers) {
            Ok(())
        } else {
            let detail = "send a token of the service: Authorization: Bearer TOKEN";
            Err(Problem::new(ProblemCode::Unauthorized, detail))
        }
    }

    fn is_own(&self, origin: &HeaderValue, asked: Option<&str>) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        let host = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        let is_same = host.is_some_and(|host| asked.is_some_and(|asked| host.eq_ignore_ascii_case(asked)));
        is_same || self.origins.iter().any(|own| own.eq_ignore_ascii_case(origin))
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        let Some((scheme, token)) = value.split_at_checked("Bearer ".len()) else {
            return false;
        };
        // Every token is looked at, so that the time says nothing of them.
        let found = self
            .tokens
            .iter()
            .fold(Choice::from(0), |found, own| found | own.as_bytes().ct_eq(token));
        scheme.eq_ignore_ascii_case(b"Bearer ") && found.into()
    }

    /// The layer that tells browsers that pages of the allowed origins may read answers.
    pub(super) fn cors(&self) -> CorsLayer {
        let origins = self
            .origins
            .iter()
            .filter_map(|origin| HeaderValue::from_str(origin).ok());
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods(tower_http::cors::AllowMethods::mirror_request())
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers([axum::http::header::LOCATION, axum::http::header::RETRY_AFTER])
    }
}

/// The host with its port, as the client named it.
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

/// Lets a request through, or answers it.
pub(super) async fn check(State(service): State<Service>, request: Request, next: Next) -> Response {
    if OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let access = service.access();
    match access.check(request.headers(), request.uri()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
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
        access.check(&map, &path).map_err(|problem| problem.code())
    }

    #[test]
    fn a_host_that_is_not_the_services_is_refused_with_any_port() {
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
    fn a_page_of_another_origin_is_refused_unless_it_is_allowed() {
        let access = Access {
            origins: vec!["https://app.example.com".to_owned()],
            ..Access::default()
        };
        let from = |origin| asked(&access, &[("host", "localhost:7474"), ("origin", origin)]);
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
    fn any_of_the_tokens_lets_in_and_nothing_else() {
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
    }
}
