//! HTTP requests to a server, with an access token where its config says how to come by one.
//!
//! A server that was started again may say of a session it does not know that the request is bad (400) in place of not found, and
//! does so without the request's id, which nobody could be waiting for. Both are told as a session that is over: a new one is
//! begun, and the request made once more there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::token::Tokens;

type Refused = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// A client of one server.
#[derive(Clone)]
pub(super) struct Authorized {
    client: Client,
    tokens: Option<Arc<Tokens>>,
    /// The server has answered the last request with 401.
    is_refused: Arc<AtomicBool>,
}

impl Authorized {
    pub(super) fn new(client: Client, tokens: Option<Arc<Tokens>>) -> Self {
        Self {
            client,
            tokens,
            is_refused: Arc::default(),
        }
    }

    /// True while the server answers 401: the errors of the library tell it as a text alone.
    pub(super) fn is_refused(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_refused)
    }

    /// Sends with a token, and notes whether the server refused the request for want of one.
    async fn send<T, F: Future<Output = Result<T, Refused>>>(
        &self,
        request: impl Fn(Option<String>) -> F,
    ) -> Result<T, Refused> {
        let answered = self.send_with_token(request).await;
        let is_refused = matches!(&answered, Err(error) if is_unauthorized(error));
        self.is_refused.store(is_refused, Ordering::Relaxed);
        answered
    }

    /// Sends with a token; once more with another one where the server refuses that.
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

/// True if the server has not let the request in.
fn is_unauthorized(error: &Refused) -> bool {
    match error {
        StreamableHttpError::AuthRequired(_) => true,
        StreamableHttpError::Client(error) => error.status() == Some(StatusCode::UNAUTHORIZED),
        StreamableHttpError::UnexpectedServerResponse(said) => said.starts_with("HTTP 401"),
        _other => false,
    }
}

/// The answer to a request, in a session or not.
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

impl StreamableHttpClient for Authorized {
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
        answered(answer.await, session_id.is_some())
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
        answered(answer.await, session_id.is_some())
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
