//! Tools that are HTTP requests. A call's arguments fill templates in the URL's path and query and in the body; they cannot change
//! the host.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::current_call::idempotency_key;
use pirn_actors::host::WorkClock;
use pirn_actors::ports::{Tool, ToolSpec};
use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Client, Method, Request, Response, Url};
use serde_json::{Map, Value};

use super::config::{Body, HttpConfig};
use super::output::TruncatedOutput;
use super::template::Template;
use pirn_models::error_chain::with_causes;
use pirn_models::headers::Secrets;

/// Maximum number of redirects, each to the original host only.
const MOST_REDIRECTS: usize = 5;

/// Timeout of the connection, independent of the tool's timeout.
const CONNECT: Duration = Duration::from_secs(20);

/// Maximum bytes of an error's body in a message.
const SHOWN: usize = 4 * 1024;

/// Result for a response without a body: providers reject empty results.
const EMPTY: &str = "(no content)";

/// HTTP client shared by the tools of one engine, created for the first call.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedClient {
    client: Arc<OnceLock<Result<Client, String>>>,
}

impl SharedClient {
    fn client(&self) -> Result<&Client, String> {
        self.client.get_or_init(client).as_ref().map_err(Clone::clone)
    }
}

/// A tool that sends an HTTP request.
pub(super) struct HttpTool {
    spec: ToolSpec,
    config: Arc<HttpConfig>,
    limit: usize,
    shared: SharedClient,
}

impl HttpTool {
    /// Creates the tool `spec`, with results of at most `limit` bytes.
    pub(super) fn new(spec: ToolSpec, config: HttpConfig, limit: usize, shared: SharedClient) -> Self {
        Self {
            spec,
            config: Arc::new(config),
            limit,
            shared,
        }
    }
}

impl Tool for HttpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, arguments: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let (config, limit, shared) = (Arc::clone(&self.config), self.limit, self.shared.clone());
        async move {
            let (request, secrets) = request(&config, &arguments)?;
            let host = request.url().host_str().unwrap_or_default().to_owned();
            // Remove the URL from the error, because it may contain secrets.
            let broken =
                |error: reqwest::Error| format!("{host} did not answer: {}", with_causes(&error.without_url()));
            let response = shared.client()?.execute(request).await.map_err(broken)?;
            read(response, limit, &secrets).await
        }
        .boxed()
    }
}

fn client() -> Result<Client, String> {
    let stay = reqwest::redirect::Policy::custom(|attempt| {
        let is_same = attempt
            .previous()
            .last()
            .is_some_and(|before| before.origin() == attempt.url().origin());
        if is_same && attempt.previous().len() <= MOST_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    Client::builder()
        .redirect(stay)
        .connect_timeout(CONNECT)
        .user_agent(concat!("pirn/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| format!("cannot create an HTTP client: {}", with_causes(&error)))
}

/// Returns the request and its secrets from the environment, which servers may repeat in their answers.
fn request(config: &HttpConfig, arguments: &Value) -> Result<(Request, Secrets), String> {
    let mut request = Request::new(config.method.clone(), url(config, arguments)?);
    let variable = |name: &str| std::env::var(name).ok();
    let headers = pirn_models::headers::build_headers(&config.headers, &config.headers_env, variable);
    let headers = headers.map_err(|error| error.to_string())?;
    let secrets = Secrets::of(headers.iter().skip(config.headers.len()).map(|(_, value)| value));
    for (name, value) in headers {
        request.headers_mut().insert(name, value);
    }
    pirn_models::headers::add_idempotency_key(request.headers_mut(), idempotency_key());
    if let Some((kind, bytes)) = body(config, arguments)? {
        let kind = HeaderValue::from_static(kind);
        request.headers_mut().entry(CONTENT_TYPE).or_insert(kind);
        *request.body_mut() = Some(bytes.into());
    }
    Ok((request, secrets))
}

/// Returns the URL. Values are percent-encoded completely, so they cannot add a segment, a parameter or a fragment, or climb to a
/// parent path.
fn url(config: &HttpConfig, arguments: &Value) -> Result<Url, String> {
    let mut text = config.url.render_required("the URL", arguments, encoded)?;
    let path_end = text.find('?').unwrap_or(text.len());
    if text[..path_end].split('/').any(is_climb) {
        return Err("an argument makes the URL climb with `.` or `..`".to_owned());
    }
    let mut sign = if text.contains('?') { '&' } else { '?' };
    for (name, template) in &config.query {
        if let Some(value) = template.render(arguments) {
            text.push(sign);
            text.push_str(&encoded(Cow::Borrowed(name)));
            text.push('=');
            text.push_str(&encoded(Cow::Owned(value)));
            sign = '&';
        }
    }
    Url::parse(&text).map_err(|error| format!("invalid URL: {error}"))
}

/// Returns whether URL parsers treat the segment as `.` or `..`.
fn is_climb(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

/// Percent-encodes all characters except those without a meaning in URLs.
fn encoded(value: Cow<'_, str>) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    if value.bytes().all(is_plain) {
        return value;
    }
    let mut text = String::with_capacity(value.len() * 3);
    for byte in value.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            text.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    Cow::Owned(text)
}

/// Returns the digit of a number below 16.
fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16)
        .unwrap_or('0')
        .to_ascii_uppercase()
}

/// Returns the request body with its media type: the configured body, or, for methods with a body, the arguments that occur nowhere
/// else.
///
/// # Errors
/// A sentence, if a body of text refers to an absent argument.
fn body(config: &HttpConfig, arguments: &Value) -> Result<Option<(&'static str, Vec<u8>)>, String> {
    const JSON: &str = "application/json";
    Ok(match &config.body {
        Some(Body::Text(template)) => {
            let text = template.render_required("the body", arguments, |value| value)?;
            Some(("text/plain; charset=utf-8", text.into_bytes()))
        }
        Some(Body::Json(shape)) => Some((
            JSON,
            filled(shape, arguments).unwrap_or_default().to_string().into_bytes(),
        )),
        None if [Method::POST, Method::PUT, Method::PATCH].contains(&config.method) => {
            let is_used = |name: &str| {
                let names = |template: &Template| template.names().any(|used| used == name);
                names(&config.url) || config.query.values().any(names)
            };
            let rest: Map<String, Value> = arguments
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(name, _)| !is_used(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            Some((JSON, Value::Object(rest).to_string().into_bytes()))
        }
        None => None,
    })
}

/// Returns the JSON body with filled templates; a field or item that refers to an absent argument is omitted.
fn filled(shape: &super::config::Shape, arguments: &Value) -> Option<Value> {
    use super::config::Shape;
    Some(match shape {
        Shape::Text(template) => template.value(arguments)?,
        Shape::List(items) => items.iter().filter_map(|item| filled(item, arguments)).collect(),
        Shape::Table(fields) => {
            let fields = fields.iter();
            Value::Object(
                fields
                    .filter_map(|(name, shape)| Some((name.clone(), filled(shape, arguments)?)))
                    .collect(),
            )
        }
        Shape::Plain(value) => value.clone(),
    })
}

async fn read(mut response: Response, limit: usize, secrets: &Secrets) -> Result<String, String> {
    let status = response.status();
    let limit = if status.is_success() { limit } else { limit.min(SHOWN) };
    let elsewhere = response.headers().get(LOCATION).filter(|_| status.is_redirection());
    let elsewhere = elsewhere.map(|place| secrets.redact(String::from_utf8_lossy(place.as_bytes()).into_owned()));
    let mut body = TruncatedOutput::new(limit.saturating_add(secrets.longest()));
    let is_whole = loop {
        // Do not wait for data beyond the limit: dropping the response closes it.
        if body.is_cut() {
            break false;
        }
        match response.chunk().await {
            Ok(Some(chunk)) => body.push(&chunk),
            Ok(None) => break true,
            Err(error) => {
                return Err(format!("HTTP {status}, then: {}", with_causes(&error.without_url())));
            }
        }
    };
    let text = body.without(secrets, limit).into_text(is_whole);
    if status.is_success() {
        return Ok(if text.is_empty() { EMPTY.to_owned() } else { text });
    }
    let elsewhere = elsewhere.map_or_else(String::new, |place| {
        format!("; it points to {place}, which is not followed")
    });
    Err(format!("HTTP {status}{elsewhere}\n{text}").trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_encoded_as_one_url_segment() {
        assert_eq!(encoded("a/b?c#d&e=f g%é".into()), "a%2Fb%3Fc%23d%26e%3Df%20g%25%C3%A9");
        assert_eq!(encoded("plain-1.0_~".into()), "plain-1.0_~");
        for (segment, climbs) in [
            ("..", true),
            (".", true),
            ("%2e.", true),
            ("...", false),
            ("a..", false),
        ] {
            assert_eq!(is_climb(segment), climbs, "{segment}");
        }
    }
}
