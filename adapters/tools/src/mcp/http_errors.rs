//! Errors of HTTP requests without the secrets that a URL may contain.

use reqwest::Url;

/// Returns the deepest cause of an error, such as `Connection refused (os error 111)`.
pub(super) fn cause(error: &reqwest::Error) -> String {
    let first: &dyn std::error::Error = error;
    let causes = std::iter::successors(Some(first), |error| error.source());
    causes.last().unwrap_or(first).to_string()
}

/// Returns a URL without its user, query and fragment, which may contain keys.
pub(super) fn shown_url(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// Returns the policy for redirects: an error with the target. A followed redirect could send secrets to another server.
pub(super) fn redirects() -> reqwest::redirect::Policy {
    reqwest::redirect::Policy::custom(|attempt| {
        let target = shown_url(attempt.url());
        attempt.error(format!("it redirects to {target}, and redirects are not followed"))
    })
}
