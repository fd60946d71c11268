//! HTTP requests to an MCP server, with an access token if the server's config has `oauth`.
//!
//! A restarted server may answer a request of an unknown session with 400 instead of 404, or with an error that has no request
//! id, so that no caller receives it. Both are reported as an expired session: the client then opens a new session and repeats
//! the request there.
//!
//! Errors contain no URL, because its query may contain a key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::BoxStream;
use pirn_models::headers::Secrets;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::http_errors::cause;
use super::token::Tokens;

/// Error of a request.
pub(super) type Refused = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// HTTP client of one server.
#[derive(Clone)]
pub(super) struct OAuthHttpClient {
    client: Client,
    tokens: Option<Arc<Tokens>>,
    /// Values of `headersEnv` and of the URL that the server receives and may repeat.
    secrets: Arc<[HeaderValue]>,
    /// Reason that the last message was not accepted; empty if it was.
    last_failure: Arc<Mutex<String>>,
}

impl OAuthHttpClient {
    /// Creates a client of the server at `url`. `secrets` are the values of `headersEnv`.
    pub(super) fn new(client: Client, tokens: Option<Arc<Tokens>>, url: &str, mut secrets: Vec<HeaderValue>) -> Self {
        secrets.extend(secrets_of(url, &client));
        Self {
            client,
            tokens,
            secrets: secrets.into(),
            last_failure: Arc::default(),
        }
    }

    /// Returns the secrets that the server has received, including access tokens.
    pub(super) fn secrets(&self) -> Secrets {
        let tokens = self.tokens.as_ref().map(|tokens| tokens.recent()).unwrap_or_default();
        Secrets::of(self.secrets.iter().chain(&tokens))
    }

    /// Returns the reason of a failed request. An error without details is described by the last failure of a message.
    pub(super) fn reason(&self, error: &Refused) -> String {
        match error {
            StreamableHttpError::TransportChannelClosed | StreamableHttpError::SessionExpired => {
                self.last_failure().unwrap_or_else(|| error.to_string())
            }
            error => self.described(error),
        }
    }

    /// Returns the reason that the last message was not accepted; `None` if it was.
    pub(super) fn last_failure(&self) -> Option<String> {
        let failure = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(failure).filter(|failure| !failure.is_empty())
    }

    /// Describes an error without the names of rmcp's types.
    fn described(&self, error: &Refused) -> String {
        if is_unauthorized(error) {
            let advice = if self.tokens.is_some() {
                "it refuses the token of `oauth` (401): check `scope` and `resource`"
            } else {
                "it requires a key (401): set one in `headersEnv`, such as { Authorization = \"Bearer ${TOKEN}\" }, or \
                 set `oauth`, which fetches tokens"
            };
            return advice.to_owned();
        }
        match error {
            StreamableHttpError::Client(error) => cause(error),
            StreamableHttpError::Io(error) => error.to_string(),
            // The rest of this message quotes the parser and a part of the body, which may cut a secret.
            StreamableHttpError::UnexpectedServerResponse(said) if said.starts_with("could not parse") => {
                "its answer is not a message of the protocol".to_owned()
            }
            StreamableHttpError::UnexpectedServerResponse(said) => said.trim_end_matches([':', ' ']).to_owned(),
            StreamableHttpError::UnexpectedContentType(kind) => format!(
                "its answer is {} instead of JSON or an event stream",
                kind.as_deref().unwrap_or("of unknown type")
            ),
            StreamableHttpError::InsufficientScope(error) => match &error.required_scope {
                Some(scope) => format!("HTTP 403 Forbidden: it requires the scope `{scope}`"),
                None => "HTTP 403 Forbidden".to_owned(),
            },
            other => other.to_string(),
        }
    }

    /// Sends a request with a token.
    async fn send<T, F: Future<Output = Result<T, Refused>>>(
        &self,
        request: impl Fn(Option<String>) -> F,
    ) -> Result<T, Refused> {
        // Without the URL also for rmcp, which logs errors.
        self.send_with_token(request).await.map_err(|error| match error {
            StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
            other => other,
        })
    }

    /// Returns the result of a sent message, and records it as the last failure if it is one.
    fn posted(
        &self,
        answer: Result<StreamableHttpPostResponse, Refused>,
        has_session: bool,
    ) -> Result<StreamableHttpPostResponse, Refused> {
        let answer = answered(answer, has_session);
        let failure = answer.as_ref().err().map(|error| self.described(error));
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure.unwrap_or_default();
        answer
    }

    /// Sends a request with a token. If the server refuses the token, sends the request once more with another one.
    async fn send_with_token<T, F: Future<Output = Result<T, Refused>>>(
        &self,
        request: impl Fn(Option<String>) -> F,
    ) -> Result<T, Refused> {
        let Some(tokens) = &self.tokens else {
            return request(None).await;
        };
        let no_token = |why: String| StreamableHttpError::Io(std::io::Error::other(why));
        let token = tokens.token().await.map_err(no_token)?;
        match request(Some(token.clone())).await {
            Err(error) if is_unauthorized(&error) => {
                let other = tokens.instead_of(&token).await.map_err(no_token)?;
                if other == token {
                    return Err(error);
                }
                request(Some(other)).await
            }
            answered => answered,
        }
    }
}

/// Returns the secrets in a URL: the password and values of the query and of the user, as written and decoded, and the header with the
/// user and the password.
fn secrets_of(url: &str, client: &Client) -> Vec<HeaderValue> {
    let Ok(url) = Url::parse(url) else {
        return Vec::new();
    };
    let forms_of = |text: &str| {
        // Decodes the text as a value of a query.
        let mut url = url.clone();
        url.set_query(Some(&format!("value={text}")));
        let decoded = url.query_pairs().next().map(|(_, value)| value.into_owned());
        [Some(text.to_owned()), decoded].into_iter().flatten()
    };
    let has_digit = |value: &&str| value.bytes().any(|byte| byte.is_ascii_digit());
    let written = url.query().unwrap_or_default().split('&');
    let written = written.filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or(("", pair));
        // A value without a digit is rather a word, such as `production`, which must stay in results.
        (names_secret(name) || has_digit(&value)).then_some(value)
    });
    let user = Some(url.username()).filter(has_digit);
    let values = written.chain(user).flat_map(forms_of);
    let all = values.chain(url.password().into_iter().flat_map(forms_of));
    let mut secrets: Vec<HeaderValue> = all.filter_map(|text| HeaderValue::try_from(text).ok()).collect();
    let request = client.get(url.clone()).build().ok();
    secrets.extend(request.and_then(|request| request.headers().get(AUTHORIZATION).cloned()));
    secrets
}

/// Returns true if a parameter with this name has a secret.
fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "passwd", "auth", "signature"]
        .iter()
        .any(|word| name.contains(word))
}

/// Returns true if the server answered 401.
fn is_unauthorized(error: &Refused) -> bool {
    match error {
        StreamableHttpError::AuthRequired(_) => true,
        StreamableHttpError::Client(error) => error.status() == Some(StatusCode::UNAUTHORIZED),
        StreamableHttpError::UnexpectedServerResponse(said) => said.starts_with("HTTP 401"),
        _other => false,
    }
}

/// Converts the answers of a restarted server (see the module docs) into an expired session, or into an error outside a
/// session.
fn answered(
    answer: Result<StreamableHttpPostResponse, Refused>,
    has_session: bool,
) -> Result<StreamableHttpPostResponse, Refused> {
    let refused = match &answer {
        Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _)) if error.id.is_none() => {
            error.error.message.to_string()
        }
        Err(StreamableHttpError::UnexpectedServerResponse(said)) if said.starts_with("HTTP 400") => said.to_string(),
        Ok(_) | Err(_) => return answer,
    };
    Err(if has_session {
        StreamableHttpError::SessionExpired
    } else {
        StreamableHttpError::UnexpectedServerResponse(refused.into())
    })
}

impl StreamableHttpClient for OAuthHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Refused> {
        let answer = self.send(|token| {
            let (uri, message) = (Arc::clone(&uri), message.clone());
            self.client
                .post_message(uri, message, session_id.clone(), token, headers.clone())
        });
        self.posted(answer.await, session_id.is_some())
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Refused> {
        let answer = self.send(|token| {
            let (uri, message, session) = (Arc::clone(&uri), message.clone(), session_id.clone());
            self.client
                .post_message_with_max_sse_event_size(uri, message, session, token, headers.clone(), most)
        });
        self.posted(answer.await, session_id.is_some())
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), Refused> {
        self.send(|token| {
            self.client
                .delete_session(Arc::clone(&uri), Arc::clone(&session_id), token, headers.clone())
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Refused> {
        self.send(|token| {
            let (uri, session, last) = (Arc::clone(&uri), session_id.clone(), last_event_id.clone());
            self.client.get_stream(uri, session, last, token, headers.clone())
        })
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Refused> {
        self.send(|token| {
            let (uri, session, last) = (Arc::clone(&uri), session_id.clone(), last_event_id.clone());
            self.client
                .get_stream_with_max_sse_event_size(uri, session, last, token, headers.clone(), most)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_url_are_secret_by_their_digits_or_their_names() {
        let url = "https://user-without:pass%20word@host/mcp?stage=production&apiKey=abcdefgh&id=s3cret%2Fvalue";
        let secrets = Secrets::of(secrets_of(url, &Client::new()).iter());
        let text = "production abcdefgh s3cret/value s3cret%2Fvalue user-without".to_owned();
        assert_eq!(secrets.redact(text), "production *** *** *** user-without");
    }
}
