//! Access rights of the page.

use axum::http::{HeaderMap, Method};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::access::only_reads;
use crate::http::problem::{Problem, ProblemCode};

/// Header of every request that the page sends.
const FROM_PAGE: &str = "x-pirn-studio";

/// Access of the Studio. Without the feature `studio` the page is not part of the program, which has the effect of `Off`.
///
/// `Read` restricts the page and not its user: whoever has a token of the service can send any request without the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StudioMode {
    /// The page is not served.
    Off,
    /// The page shows runs. It offers no actions, and its requests that would change something are refused.
    Read,
    /// The page shows runs and can start, answer, fork, pause, resume and cancel them.
    #[default]
    Full,
}

impl StudioMode {
    /// Returns this mode, or `Off` if the page is not part of the program.
    pub(crate) fn built(self) -> Self {
        if cfg!(feature = "studio") { self } else { Self::Off }
    }

    /// Refuses a request of the page that this mode does not allow. A page that was loaded before a restart with another mode still
    /// shows its actions, so the service checks each request.
    pub(crate) fn check(self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        let changes = !only_reads(method);
        if self == Self::Full || !changes || !headers.contains_key(FROM_PAGE) {
            return Ok(());
        }
        let mode = if self == Self::Off { "off" } else { "read" };
        let detail = format!("the Studio of this service changes nothing: it was started with --studio {mode}");
        Err(Problem::new(ProblemCode::StudioReadOnly, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_the_page_that_change_something_are_refused() {
        let page = HeaderMap::from_iter([(FROM_PAGE.parse().expect("a name"), "1".parse().expect("a value"))]);
        for mode in [StudioMode::Off, StudioMode::Read] {
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
                let refused = mode.check(&method, &page).expect_err("refused");
                assert_eq!(refused.code(), "STUDIO_READ_ONLY");
                assert_eq!(mode.check(&method, &HeaderMap::new()), Ok(()));
                assert_eq!(StudioMode::Full.check(&method, &page), Ok(()));
            }
            for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
                assert_eq!(mode.check(&method, &page), Ok(()));
            }
        }
    }
}
