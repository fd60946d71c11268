//! Paginated lists of a server, with limits that do not depend on the server.

use rmcp::model::PaginatedRequestParams;
use serde::Serialize;

/// Maximum number of entries of a list.
const MOST_ENTRIES: usize = 10_000;

/// Maximum size of a list as JSON in bytes. Schemas of tools account for most of it.
const MOST_BYTES: usize = 16 << 20;

/// Maximum number of pages of a list. Pages without entries count, so that every list ends.
const MOST_PAGES: usize = 1_000;

/// Entries of a page, and the cursor of the next one.
pub(super) type Page<T> = Result<(Vec<T>, Option<String>), String>;

/// Returns the entries of all pages; `page` fetches one.
///
/// # Errors
/// Returns a message if a page cannot be fetched or the list exceeds a limit.
pub(super) async fn every_page<T: Serialize, P: Future<Output = Page<T>>>(
    what: &str,
    page: impl Fn(Option<PaginatedRequestParams>) -> P,
) -> Result<Vec<T>, String> {
    let (mut all, mut bytes, mut next) = (Vec::new(), 0_usize, None);
    for _ in 0..MOST_PAGES {
        let (entries, after) = page(next)
            .await
            .map_err(|error| format!("listing its {what} failed: {error}"))?;
        for entry in &entries {
            let size = serde_json::to_vec(entry).map_or(0, |text| text.len());
            bytes = bytes.saturating_add(size);
        }
        all.extend(entries);
        if all.len() > MOST_ENTRIES || bytes > MOST_BYTES {
            return Err(format!(
                "its list of {what} is too long: {MOST_ENTRIES} entries and {MOST_BYTES} bytes are taken"
            ));
        }
        let Some(after) = after else { return Ok(all) };
        next = Some(PaginatedRequestParams::default().with_cursor(Some(after)));
    }
    Err(format!(
        "its list of {what} does not end: it has more than {MOST_PAGES} pages"
    ))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn listed(entries: &[&str], pages: usize) -> Result<Vec<String>, String> {
        let given = std::cell::Cell::new(0);
        let page = |_: Option<PaginatedRequestParams>| {
            given.set(given.get() + 1);
            let entries = entries.iter().map(|&entry| entry.to_owned()).collect();
            std::future::ready(Ok((entries, (given.get() < pages).then(|| "more".to_owned()))))
        };
        every_page("things", page).now_or_never().expect("nothing waits")
    }

    #[test]
    fn a_paged_list_is_bounded() {
        assert_eq!(listed(&["a", "b"], 3).map(|all| all.len()), Ok(6));
        for (entries, part) in [
            (vec![], "does not end"),
            (vec!["a"; 20], "too long"),
            (vec!["a".repeat(1 << 16).leak() as &str], "too long"),
        ] {
            let error = listed(&entries, usize::MAX).expect_err("endless");
            assert!(error.contains(part), "{error}");
        }
    }
}
