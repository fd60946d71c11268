//! The files of the page, as parts of the program.

use std::sync::LazyLock;

use axum::extract::OriginalUri;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use pirn::store::ContentHash;

/// Paths that are answered without a token: the page must be able to ask for one.
const OPEN: [&str; 6] = [
    "/",
    "/studio",
    "/studio/",
    "/studio/studio.js",
    "/studio/more.js",
    "/studio/studio.css",
];

pub(crate) const HTML: &str = include_str!("../../studio/index.html");
pub(crate) const SCRIPT: &str = include_str!("../../studio/studio.js");
/// Views and forms that the page loads when they are first needed. The file of an exported run has none of them.
const MORE: &str = include_str!("../../studio/more.js");
pub(crate) const STYLE: &str = include_str!("../../studio/studio.css");

/// The page loads only its own files, and sends requests to this service only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

static PAGE: LazyLock<Asset> = LazyLock::new(|| Asset::new("text/html; charset=utf-8", versioned(HTML)));
static SCRIPT_FILE: LazyLock<Asset> = LazyLock::new(|| Asset::new("text/javascript; charset=utf-8", SCRIPT.to_owned()));
static MORE_FILE: LazyLock<Asset> = LazyLock::new(|| Asset::new("text/javascript; charset=utf-8", MORE.to_owned()));
static STYLE_FILE: LazyLock<Asset> = LazyLock::new(|| Asset::new("text/css; charset=utf-8", STYLE.to_owned()));

/// A file with its version.
struct Asset {
    media_type: &'static str,
    text: String,
    version: String,
}

/// Returns the version of a file: a hash of its contents.
fn version(text: &str) -> String {
    let hash = ContentHash::of(text).to_string();
    hash[..16].to_owned()
}

/// Names the versions of the script and the style in the page, so that a browser never combines files of two builds.
fn versioned(page: &str) -> String {
    let mut page = page.to_owned();
    for (name, text) in [("studio.js", SCRIPT), ("studio.css", STYLE)] {
        page = page.replace(&format!("{name}\""), &format!("{name}?v={}\"", version(text)));
    }
    page
}

/// True if the path belongs to the page.
pub(crate) fn is_page(path: &str) -> bool {
    OPEN.contains(&path)
}

/// Returns the routes of the page. Every redirect is relative: the router may be nested under a path, also by a proxy.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> axum::Router<S> {
    axum::Router::new()
        .route("/", get(root))
        .route("/studio", get(async || redirect("studio/")))
        .route("/studio/", get(async |uri, headers| PAGE.response(&uri, &headers)))
        .route(
            "/studio/studio.js",
            get(async |uri, headers| SCRIPT_FILE.response(&uri, &headers)),
        )
        .route(
            "/studio/more.js",
            get(async |uri, headers| MORE_FILE.response(&uri, &headers)),
        )
        .route(
            "/studio/studio.css",
            get(async |uri, headers| STYLE_FILE.response(&uri, &headers)),
        )
}

/// Redirects from the service's root to the page. The root of a nested router may have no slash at its end, so a relative address
/// starts at the segment before.
async fn root(OriginalUri(uri): OriginalUri) -> Response {
    match uri.path().rsplit('/').next() {
        Some(last) if !last.is_empty() => redirect(&format!("./{last}/studio/")),
        _ends_with_a_slash => redirect("studio/"),
    }
}

fn redirect(to: &str) -> Response {
    let Ok(location) = HeaderValue::from_str(to) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // Not permanent: a browser would remember it for a service without the page.
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::TEMPORARY_REDIRECT, headers).into_response()
}

impl Asset {
    fn new(media_type: &'static str, text: String) -> Self {
        Self {
            media_type,
            version: version(&text),
            text,
        }
    }

    fn response(&'static self, uri: &axum::http::Uri, request: &HeaderMap) -> Response {
        let tag = format!("\"{}\"", self.version);
        // Only an address that contains this version is immutable. Any other is validated on each use: after an update the same
        // address has other contents.
        let names_version = uri.query().is_some_and(|query| query == format!("v={}", self.version));
        let caching = if names_version {
            "public, max-age=31536000, immutable"
        } else {
            "no-cache"
        };
        let mut response = if is_known(request, &tag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            self.text.as_str().into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}

/// True if the client has the file with this tag.
fn is_known(request: &HeaderMap, tag: &str) -> bool {
    let known = request.get_all(header::IF_NONE_MATCH).iter();
    let known = known
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    known
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_the_versions_of_its_files() {
        for (name, text) in [("studio.js", SCRIPT), ("studio.css", STYLE)] {
            let named = format!("{name}?v={}\"", version(text));
            assert_eq!(PAGE.text.matches(&named).count(), 1, "{name}");
            assert!(!PAGE.text.contains(&format!("{name}\"")), "{name}");
        }
    }

    #[test]
    fn the_script_names_the_version_of_the_script_that_it_loads() {
        let named = format!("more.js?v={}", version(MORE));
        assert_eq!(SCRIPT.matches(&named).count(), 1);
    }

    #[test]
    fn the_page_needs_no_inline_script_or_style() {
        for forbidden in ["<style", " style=", "javascript:", " onclick=", " onload="] {
            assert!(!HTML.contains(forbidden), "{forbidden}");
        }
        let scripts = HTML.matches("<script").count();
        assert_eq!(HTML.matches("<script ").count(), scripts);
        assert_eq!(HTML.matches("></script>").count(), scripts);
        for attribute in ["src=\"", "href=\""] {
            let mut addresses = HTML.split(attribute).skip(1);
            assert!(addresses.all(|address| address.starts_with("studio.") || address.starts_with("data:")));
        }
    }
}
