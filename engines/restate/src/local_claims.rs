//! Local view of this process's claims, and its caches.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pirn_store::ContentHash;
use tokio::sync::Notify;

use crate::process_messages::{ClaimedRun, RunSnapshot};
use crate::wire::{CommitContent, Ticket};

/// Maximum number of runs requested from the queue at a time. The rest stays for other idle processes.
const AT_ONCE: usize = 8;
/// Maximum number of hashes remembered as stored on the server.
const MOST_KEPT: usize = 4_096;

/// Claims and caches of this process.
#[derive(Default)]
pub(crate) struct LocalClaims {
    state: Mutex<State>,
    /// Notified when the number of claims or the limit of runs changes.
    pub(crate) wake: Notify,
    /// Notified when at least [`LEFT_AT_ONCE`] claims are over and not yet reported.
    pub(crate) leaves: Notify,
}

#[derive(Default)]
struct State {
    claims: BTreeMap<String, Claim>,
    /// Promises to resolve with the answers of runs, by request number.
    requests: BTreeMap<u64, String>,
    last_request: u64,
    /// Maximum number of runs owned by this process. At 0 the process takes over no runs.
    carries: usize,
    /// Number of requested runs that the queue has not sent yet.
    wanted: usize,
    /// Hashes of contents that are stored on the server.
    kept: BTreeSet<ContentHash>,
    /// Time at which the last successful heartbeat was sent.
    lived: Option<Instant>,
    texts: BTreeMap<ContentHash, Arc<str>>,
    text_bytes: usize,
    /// Claims that are over but still listed in the process object.
    left: Vec<ClaimId>,
}

/// Run id and epoch of a claim.
type ClaimId = (String, u64);

struct Claim {
    ticket: Ticket,
    /// State of the run at the time of the claim, until it is read or written.
    kept: Option<Box<RunSnapshot>>,
    /// Approximate size of the run's state on the server.
    bytes: usize,
    is_lost: bool,
    /// The run cannot continue and is not offered to other processes.
    is_stuck: bool,
}

/// Limits of the content cache: number of contents and their bytes.
const MOST_TEXTS: usize = 1_024;
const MOST_TEXT_BYTES: usize = 8 << 20;
/// Number of ended claims that are reported before the next heartbeat.
const LEFT_AT_ONCE: usize = 64;

/// Size up to which a call is sent with the run's whole state, and estimated overhead of one step.
const LITTLE: usize = 64 << 10;
pub(crate) const STEP_BYTES: usize = 100;

/// State of a claimed run on the server, by size.
pub(crate) enum ClaimedState {
    Nothing,
    Little(Box<RunSnapshot>),
    Much,
}

/// Released claim.
pub(crate) struct ReleasedClaim {
    pub(crate) ticket: Ticket,
    pub(crate) is_offered: bool,
}

/// Returns a random 128-bit name in hexadecimal.
pub(crate) fn random_name() -> String {
    // `RandomState` has random keys, which saves a dependency on a random number generator.
    let word = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", word(), word())
}

impl LocalClaims {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the claim of a write. A lost claim is returned too, so that the server refuses the write.
    pub(crate) fn ticket(&self, run: &str) -> Option<Ticket> {
        self.state().claims.get(run).map(|claim| claim.ticket.clone())
    }

    /// Records a claim, with the available part of the run's state.
    pub(crate) fn put(&self, run: &str, ticket: Ticket, kept: ClaimedState) {
        let (bytes, kept) = match kept {
            ClaimedState::Nothing => (0, None),
            ClaimedState::Little(kept) => (kept.head.bytes as usize + kept.head.snapshot_bytes as usize, Some(kept)),
            // Large enough that calls are sent without the run's state.
            ClaimedState::Much => (LITTLE, None),
        };
        let claim = Claim {
            ticket,
            kept,
            bytes,
            is_lost: false,
            is_stuck: false,
        };
        self.state().claims.insert(run.to_owned(), claim);
        // The number of claims changes how many runs the queue may send.
        self.wake.notify_one();
    }

    /// Records a claim that the server granted, and caches the contents sent with it.
    pub(crate) fn has(&self, process: &str, given: ClaimedRun) {
        for CommitContent { hash, text, follows } in given.kept.iter().flat_map(|kept| &kept.texts) {
            // See `remember_text`: contents of a chain are not cached.
            if let Some(hash) = ContentHash::parse(hash).filter(|_| follows.is_none()) {
                self.remember_text(hash, text.as_str().into());
            }
        }
        let ticket = Ticket {
            process: process.to_owned(),
            epoch: given.epoch,
        };
        let kept = given.kept;
        self.put(
            &given.run,
            ticket,
            kept.map_or(ClaimedState::Much, |kept| ClaimedState::Little(Box::new(kept))),
        );
    }

    pub(crate) fn forget(&self, run: &str) -> Option<ReleasedClaim> {
        let claim = self.state().claims.remove(run)?;
        self.wake.notify_one();
        Some(ReleasedClaim {
            ticket: claim.ticket,
            is_offered: !claim.is_stuck,
        })
    }

    /// Records that a claim is over. The run object has dropped it; the process object still lists it until the next report.
    pub(crate) fn left(&self, run: &str, epoch: u64) {
        let mut state = self.state();
        state.left.push((run.to_owned(), epoch));
        // In batches, because each report is a call of the process object.
        if state.left.len() >= LEFT_AT_ONCE {
            self.leaves.notify_one();
        }
    }

    /// Records a successful heartbeat, by the time at which it was sent.
    pub(crate) fn lived(&self, said: Instant) {
        self.state().lived = Some(said);
    }

    /// True if the claim is certainly valid without a request to the server: a heartbeat is younger than three quarters of a claim
    /// time, before which the server expires no claim. Also true for a run that this process has not claimed.
    pub(crate) fn is_surely_valid(&self, run: &str, lasts: Duration) -> bool {
        let state = self.state();
        // One heartbeat extends all claims of the process, so no time is stored for each claim.
        let lives = || state.lived.is_some_and(|lived| lived.elapsed() < lasts / 4 * 3);
        let claim = state.claims.get(run);
        claim.is_none_or(|claim| !claim.is_lost && lives())
    }

    pub(crate) fn is_lost(&self, run: &str) -> bool {
        self.state().claims.get(run).is_some_and(|claim| claim.is_lost)
    }

    /// Marks a claim as lost and logs it. Returns true on the first call for the claim.
    pub(crate) fn lose(&self, run: &str) -> bool {
        let mut state = self.state();
        let claim = state.claims.get_mut(run);
        // Both a refused commit and the death of the process report the loss.
        let is_first = claim.is_some_and(|claim| !std::mem::replace(&mut claim.is_lost, true));
        if is_first {
            tracing::warn!(
                run_id = run,
                "the claim on the run expired: another worker continues it"
            );
        }
        is_first
    }

    /// Marks a run as stuck: one of its steps is too large to be written by any process.
    pub(crate) fn is_stuck(&self, run: &str) {
        if let Some(claim) = self.state().claims.get_mut(run) {
            claim.is_stuck = true;
        }
    }

    /// Returns the ids of all claimed runs.
    pub(crate) fn runs(&self) -> Vec<String> {
        self.state().claims.keys().cloned().collect()
    }

    pub(crate) fn carry(&self, at_most: usize) {
        self.state().carries = at_most;
        self.wake.notify_one();
    }

    /// Returns the number of further runs that this process may own.
    pub(crate) fn room(&self) -> usize {
        let state = self.state();
        // There may be more claims than the limit: explicit resumes do not ask for it.
        state.carries.saturating_sub(state.claims.len())
    }

    /// True if this process takes over runs.
    pub(crate) fn takes_over(&self) -> bool {
        self.state().carries > 0
    }

    /// Returns the number of runs to request from the queue; none if the last request is still adequate. A small deficit is not
    /// requested again: one call for several runs is cheaper than one for each.
    pub(crate) fn wants(&self) -> Option<usize> {
        let mut state = self.state();
        let wants = state.carries.saturating_sub(state.claims.len()).min(AT_ONCE);
        // A request stays unless it is for more runs than there is room, for less than half, or for none while there is room.
        let is_told = wants >= state.wanted && wants < 2 * state.wanted.max(1) && (wants == 0) == (state.wanted == 0);
        if is_told {
            return None;
        }
        state.wanted = wants;
        Some(wants)
    }

    /// Counts a run, or its replacement, that arrived from the queue.
    pub(crate) fn was_sent(&self) {
        let mut state = self.state();
        // Zero already, if the request was replaced while the run was on its way.
        state.wanted = state.wanted.saturating_sub(1);
    }

    /// Forgets what was requested: the queue has no entry for this process.
    pub(crate) fn begin_anew(&self) {
        self.state().wanted = 0;
    }

    /// Registers the promise of a request and returns the request's number.
    pub(crate) fn request(&self, promise: String) -> u64 {
        let mut state = self.state();
        state.last_request += 1;
        let number = state.last_request;
        state.requests.insert(number, promise);
        number
    }

    pub(crate) fn answer(&self, request: u64) -> Option<String> {
        self.state().requests.remove(&request)
    }

    /// True if the run is small enough for its whole state to be sent with a call.
    pub(crate) fn is_little(&self, run: &str) -> bool {
        self.state().claims.get(run).is_some_and(|claim| claim.bytes < LITTLE)
    }

    /// Adds to the estimated size of the run's state.
    pub(crate) fn grew(&self, run: &str, bytes: usize) {
        if let Some(claim) = self.state().claims.get_mut(run) {
            // Only an estimate. A wrong one costs bytes or round trips, and never correctness.
            claim.bytes = claim.bytes.saturating_add(bytes);
        }
    }

    /// Reads the state received with the claim, if the run was not read or written since.
    pub(crate) fn claimed<T>(&self, run: &str, read: impl FnOnce(&RunSnapshot) -> T) -> Option<T> {
        let state = self.state();
        // The state of a lost claim may be outdated by its new owner.
        let claim = state.claims.get(run).filter(|claim| !claim.is_lost)?;
        claim.kept.as_deref().map(read)
    }

    /// Drops the state received with the claim: later reads go to the server.
    pub(crate) fn forget_claimed(&self, run: &str) {
        if let Some(claim) = self.state().claims.get_mut(run) {
            claim.kept = None;
        }
    }

    pub(crate) fn text(&self, hash: &ContentHash) -> Option<Arc<str>> {
        self.state().texts.get(hash).cloned()
    }

    /// Caches a content that is in no chain. Contents of a chain are not cached: the objects free a chain asynchronously, after the
    /// call that released it has returned, so one may be read while it is about to be deleted.
    pub(crate) fn remember_text(&self, hash: ContentHash, text: Arc<str>) {
        let mut state = self.state();
        // A large text would evict everything else.
        if state.texts.contains_key(&hash) || text.len() > MOST_TEXT_BYTES / 8 {
            return;
        }
        if state.texts.len() >= MOST_TEXTS || state.text_bytes + text.len() > MOST_TEXT_BYTES {
            // Emptied as a whole: an order of use would cost more than reading a few contents again.
            state.texts.clear();
            state.text_bytes = 0;
        }
        state.text_bytes += text.len();
        state.texts.insert(hash, text);
    }

    pub(crate) fn forget_texts(&self) {
        let mut state = self.state();
        state.texts.clear();
        state.text_bytes = 0;
    }

    /// Takes the ended claims that were not reported yet.
    pub(crate) fn take_left(&self) -> Vec<ClaimId> {
        std::mem::take(&mut self.state().left)
    }

    /// Puts back ended claims after a failed report.
    pub(crate) fn leave_again(&self, left: Vec<ClaimId>) {
        self.state().left.extend(left);
    }

    pub(crate) fn is_kept(&self, hash: &ContentHash) -> bool {
        self.state().kept.contains(hash)
    }

    pub(crate) fn kept(&self, hashes: impl IntoIterator<Item = ContentHash>) {
        let mut state = self.state();
        state.kept.extend(hashes);
        if state.kept.len() > MOST_KEPT {
            // Only a cache: contents that are sent again although they are stored cost bytes.
            state.kept.clear();
        }
    }

    pub(crate) fn forget_kept(&self) {
        self.state().kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            process: "p".to_owned(),
            epoch: 1,
        }
    }

    #[test]
    fn a_process_requests_runs_for_its_free_capacity_in_batches() {
        let held = LocalClaims::default();
        assert_eq!(held.wants(), None, "it takes none over");
        held.carry(10);
        assert_eq!((held.wants(), held.wants()), (Some(AT_ONCE), None));
        held.was_sent();
        assert_eq!(held.wants(), None, "the queue still owes it most of them");
        (0..4).for_each(|_| held.was_sent());
        assert_eq!(held.wants(), Some(AT_ONCE));
        (0..10).for_each(|number| held.put(&number.to_string(), ticket(), ClaimedState::Nothing));
        assert_eq!(held.room(), 0);
        assert_eq!((held.wants(), held.wants()), (Some(0), None));
        held.forget("3");
        assert_eq!(held.wants(), Some(1));
        held.carry(0);
        assert_eq!(held.wants(), Some(0));
    }

    #[test]
    fn a_claim_is_valid_for_most_of_its_duration_after_a_heartbeat() {
        let (held, lasts) = (LocalClaims::default(), Duration::from_secs(100));
        let ago = |seconds| {
            Instant::now()
                .checked_sub(Duration::from_secs(seconds))
                .expect("up for long")
        };
        assert!(held.is_surely_valid("nobody's", lasts));
        held.put("r", ticket(), ClaimedState::Nothing);
        assert!(!held.is_surely_valid("r", lasts));
        held.lived(ago(80));
        assert!(!held.is_surely_valid("r", lasts));
        held.lived(ago(70));
        assert!(held.is_surely_valid("r", lasts));
        assert!(held.lose("r") && held.is_lost("r") && !held.is_surely_valid("r", lasts));
    }

    #[test]
    fn a_run_is_small_until_its_stored_bytes_reach_the_limit() {
        let held = LocalClaims::default();
        assert!(!held.is_little("nobody's"));
        held.put("new", ticket(), ClaimedState::Nothing);
        held.put("old", ticket(), ClaimedState::Much);
        assert!(held.is_little("new") && !held.is_little("old"));
        held.grew("new", LITTLE - 1);
        assert!(held.is_little("new"));
        held.grew("new", 1);
        assert!(!held.is_little("new"));
    }

    #[test]
    fn a_lost_claim_is_reported_once_and_its_ticket_remains_until_release() {
        let held = LocalClaims::default();
        held.put("r", ticket(), ClaimedState::Nothing);
        assert!(held.lose("r") && !held.lose("r") && !held.lose("other"));
        assert_eq!(held.ticket("r"), Some(ticket()));
        assert!(held.forget("r").is_some_and(|given| given.is_offered));
        assert_eq!(held.ticket("r"), None);
    }
}
