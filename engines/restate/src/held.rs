//! The claims of this process, as it knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pirn_store::ContentHash;
use tokio::sync::Notify;

use crate::given::KeptRun;
use crate::wire::Ticket;

/// So many runs are asked for at once: another process may be idle too.
const AT_ONCE: usize = 8;
/// So many texts are known to be kept.
const MOST_KEPT: usize = 4_096;

/// See the module.
#[derive(Default)]
pub(crate) struct Held {
    state: Mutex<State>,
    /// There is more or less to carry than there was.
    pub(crate) wake: Notify,
    /// There are many claims that are over.
    pub(crate) leaves: Notify,
}

#[derive(Default)]
struct State {
    claims: BTreeMap<String, Claim>,
    /// The promises of those that wait for what a run says, by the number of the request.
    requests: BTreeMap<u64, String>,
    last_request: u64,
    /// Runs that this process carries at once, at most; it takes none over where that is 0.
    carries: usize,
    /// Runs that the queue is still to send.
    wanted: usize,
    /// Texts that the server has.
    kept: BTreeSet<ContentHash>,
    /// The server knew then that this process lives.
    lived: Option<Instant>,
    texts: BTreeMap<ContentHash, Arc<str>>,
    text_bytes: usize,
    /// Claims that are over, and that the server still counts among those of this process.
    left: Vec<Ticketed>,
}

/// A run with the epoch of a claim on it.
type Ticketed = (String, u64);

struct Claim {
    ticket: Ticket,
    /// The run as it was claimed, until it is read or written.
    kept: Option<Box<KeptRun>>,
    /// Bytes that the server keeps of the run, about.
    bytes: usize,
    is_lost: bool,
    /// It can not go on: nobody is to try.
    is_stuck: bool,
}

/// Texts and their bytes, at most, that are in memory.
const MOST_TEXTS: usize = 1_024;
const MOST_TEXT_BYTES: usize = 8 << 20;
/// So many claims that are over are told the server at once.
const LEFT_AT_ONCE: usize = 64;

/// The bytes of a run, and those that each step is beside its own, where all of the run comes with a call.
const LITTLE: usize = 64 << 10;
pub(crate) const STEP_BYTES: usize = 100;

/// State of a claimed run in the server, by size.
pub(crate) enum Kept {
    Nothing,
    Little(Box<KeptRun>),
    Much,
}

/// A claim that is given up.
pub(crate) struct GivenUp {
    pub(crate) ticket: Ticket,
    pub(crate) is_offered: bool,
}

/// A name that no other has.
pub(crate) fn random_name() -> String {
    let word = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", word(), word())
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claim that a write for this run names; also one that is lost, so that the write is refused.
    pub(crate) fn ticket(&self, run: &str) -> Option<Ticket> {
        self.state().claims.get(run).map(|claim| claim.ticket.clone())
    }

    /// With what is known to be kept of the run.
    pub(crate) fn put(&self, run: &str, ticket: Ticket, kept: Kept) {
        let (bytes, kept) = match kept {
            Kept::Nothing => (0, None),
            Kept::Little(kept) => (kept.head.bytes as usize + kept.head.snapshot_bytes as usize, Some(kept)),
            Kept::Much => (LITTLE, None),
        };
        let claim = Claim {
            ticket,
            kept,
            bytes,
            is_lost: false,
            is_stuck: false,
        };
        self.state().claims.insert(run.to_owned(), claim);
        self.wake.notify_one();
    }

    pub(crate) fn forget(&self, run: &str) -> Option<GivenUp> {
        let claim = self.state().claims.remove(run)?;
        self.wake.notify_one();
        Some(GivenUp {
            ticket: claim.ticket,
            is_offered: !claim.is_stuck,
        })
    }

    /// A claim is over, as the server knows of the run, but not of this process.
    pub(crate) fn left(&self, run: &str, epoch: u64) {
        let mut state = self.state();
        state.left.push((run.to_owned(), epoch));
        if state.left.len() >= LEFT_AT_ONCE {
            self.leaves.notify_one();
        }
    }

    /// The server has heard a word of this time.
    pub(crate) fn lived(&self, said: Instant) {
        self.state().lived = Some(said);
    }

    /// True if no other process can have the run yet where a claim lasts so long, or nobody is to have it.
    pub(crate) fn surely_stands(&self, run: &str, lasts: Duration) -> bool {
        let state = self.state();
        let lives = || state.lived.is_some_and(|lived| lived.elapsed() < lasts / 4 * 3);
        let claim = state.claims.get(run);
        claim.is_none_or(|claim| !claim.is_lost && lives())
    }

    pub(crate) fn is_lost(&self, run: &str) -> bool {
        self.state().claims.get(run).is_some_and(|claim| claim.is_lost)
    }

    /// Marks a claim that is another's by now, and says so; true for the first who knows.
    pub(crate) fn lose(&self, run: &str) -> bool {
        let mut state = self.state();
        let claim = state.claims.get_mut(run);
        let is_first = claim.is_some_and(|claim| !std::mem::replace(&mut claim.is_lost, true));
        if is_first {
            tracing::warn!(
                run_id = run,
                "the claim on the run ran out: another worker goes on with it"
            );
        }
        is_first
    }

    /// A step of it can not be written, here or anywhere.
    pub(crate) fn is_stuck(&self, run: &str) {
        if let Some(claim) = self.state().claims.get_mut(run) {
            claim.is_stuck = true;
        }
    }

    /// The runs that are claimed.
    pub(crate) fn runs(&self) -> Vec<String> {
        self.state().claims.keys().cloned().collect()
    }

    pub(crate) fn carry(&self, at_most: usize) {
        self.state().carries = at_most;
        self.wake.notify_one();
    }

    /// So many more runs may be carried.
    pub(crate) fn room(&self) -> usize {
        let state = self.state();
        state.carries.saturating_sub(state.claims.len())
    }

    /// It takes over runs.
    pub(crate) fn takes_over(&self) -> bool {
        self.state().carries > 0
    }

    /// The number of runs to ask the queue for; none: what it was asked for is right.
    pub(crate) fn wants(&self) -> Option<usize> {
        let mut state = self.state();
        let wants = state.carries.saturating_sub(state.claims.len()).min(AT_ONCE);
        let is_told = wants >= state.wanted && wants < 2 * state.wanted.max(1) && (wants == 0) == (state.wanted == 0);
        if is_told {
            return None;
        }
        state.wanted = wants;
        Some(wants)
    }

    /// The queue has sent one.
    pub(crate) fn was_sent(&self) {
        let mut state = self.state();
        state.wanted = state.wanted.saturating_sub(1);
    }

    /// The queue knows nothing of this process.
    pub(crate) fn begin_anew(&self) {
        self.state().wanted = 0;
    }

    /// The number of a request, whose answer keeps this promise.
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

    /// True if so little is kept of the run that all of it may come with a call.
    pub(crate) fn is_little(&self, run: &str) -> bool {
        self.state().claims.get(run).is_some_and(|claim| claim.bytes < LITTLE)
    }

    /// The server keeps so many bytes more of the run.
    pub(crate) fn grew(&self, run: &str, bytes: usize) {
        if let Some(claim) = self.state().claims.get_mut(run) {
            claim.bytes = claim.bytes.saturating_add(bytes);
        }
    }

    /// The run as it was claimed, where nobody has read or written it since.
    pub(crate) fn claimed<T>(&self, run: &str, read: impl FnOnce(&KeptRun) -> T) -> Option<T> {
        let state = self.state();
        let claim = state.claims.get(run).filter(|claim| !claim.is_lost)?;
        claim.kept.as_deref().map(read)
    }

    /// From here on the run is read where it lies.
    pub(crate) fn forget_claimed(&self, run: &str) {
        if let Some(claim) = self.state().claims.get_mut(run) {
            claim.kept = None;
        }
    }

    pub(crate) fn text(&self, hash: &ContentHash) -> Option<Arc<str>> {
        self.state().texts.get(hash).cloned()
    }

    /// For a content that follows none, and that none follows: the objects remove a chain after the command that freed it was
    /// answered, so that a text of one may be read, and remembered, while it is about to go.
    pub(crate) fn remember_text(&self, hash: ContentHash, text: Arc<str>) {
        let mut state = self.state();
        if state.texts.contains_key(&hash) || text.len() > MOST_TEXT_BYTES / 8 {
            return;
        }
        if state.texts.len() >= MOST_TEXTS || state.text_bytes + text.len() > MOST_TEXT_BYTES {
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

    /// Claims that are over and that the server is still to hear of; they count as told.
    pub(crate) fn take_left(&self) -> Vec<Ticketed> {
        std::mem::take(&mut self.state().left)
    }

    /// The server has not heard of them.
    pub(crate) fn leave_again(&self, left: Vec<Ticketed>) {
        self.state().left.extend(left);
    }

    pub(crate) fn is_kept(&self, hash: &ContentHash) -> bool {
        self.state().kept.contains(hash)
    }

    pub(crate) fn kept(&self, hashes: impl IntoIterator<Item = ContentHash>) {
        let mut state = self.state();
        state.kept.extend(hashes);
        if state.kept.len() > MOST_KEPT {
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
    fn a_process_asks_for_as_many_runs_as_it_has_room_for_and_not_again_for_each() {
        let held = Held::default();
        assert_eq!(held.wants(), None, "it takes none over");
        held.carry(10);
        assert_eq!((held.wants(), held.wants()), (Some(AT_ONCE), None));
        held.was_sent();
        assert_eq!(held.wants(), None, "the queue still owes it most of them");
        (0..4).for_each(|_| held.was_sent());
        assert_eq!(held.wants(), Some(AT_ONCE));
        (0..10).for_each(|number| held.put(&number.to_string(), ticket(), Kept::Nothing));
        assert_eq!(held.room(), 0);
        assert_eq!((held.wants(), held.wants()), (Some(0), None));
        held.forget("3");
        assert_eq!(held.wants(), Some(1));
        held.carry(0);
        assert_eq!(held.wants(), Some(0));
    }

    #[test]
    fn a_run_stands_for_most_of_a_claims_time_after_the_process_said_that_it_lives() {
        let (held, lasts) = (Held::default(), Duration::from_secs(100));
        let ago = |seconds| {
            Instant::now()
                .checked_sub(Duration::from_secs(seconds))
                .expect("up for long")
        };
        assert!(held.surely_stands("nobody's", lasts));
        held.put("r", ticket(), Kept::Nothing);
        assert!(!held.surely_stands("r", lasts));
        held.lived(ago(80));
        assert!(!held.surely_stands("r", lasts));
        held.lived(ago(70));
        assert!(held.surely_stands("r", lasts));
        assert!(held.lose("r") && held.is_lost("r") && !held.surely_stands("r", lasts));
    }

    #[test]
    fn a_run_is_little_until_much_is_kept_of_it() {
        let held = Held::default();
        assert!(!held.is_little("nobody's"));
        held.put("new", ticket(), Kept::Nothing);
        held.put("old", ticket(), Kept::Much);
        assert!(held.is_little("new") && !held.is_little("old"));
        held.grew("new", LITTLE - 1);
        assert!(held.is_little("new"));
        held.grew("new", 1);
        assert!(!held.is_little("new"));
    }

    #[test]
    fn a_lost_claim_is_told_once_and_named_until_it_is_given_up() {
        let held = Held::default();
        held.put("r", ticket(), Kept::Nothing);
        assert!(held.lose("r") && !held.lose("r") && !held.lose("other"));
        assert_eq!(held.ticket("r"), Some(ticket()));
        assert!(held.forget("r").is_some_and(|given| given.is_offered));
        assert_eq!(held.ticket("r"), None);
    }
}
