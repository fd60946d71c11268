use loom::sync::Arc;
use loom::thread;
use pirn_loom_tests::quota::Quota;

use crate::model;

#[test]
fn every_number_up_to_the_limit_is_claimed_once() {
    model(|| {
        let quota = Arc::new(Quota::new(2));
        let claims = |quota: &Quota| [quota.claim(), quota.claim()];
        let its = Arc::clone(&quota);
        let other = thread::spawn(move || claims(&its));
        let own = claims(&quota);
        let mut claimed: Vec<u64> = own.into_iter().chain(other.join().unwrap()).flatten().collect();
        claimed.sort_unstable();
        assert_eq!(claimed, [1, 2]);
    });
}

#[test]
fn a_refused_claim_is_not_counted() {
    model(|| {
        let quota = Arc::new(Quota::new(1));
        let its = Arc::clone(&quota);
        let other = thread::spawn(move || its.claim());
        let own = quota.claim();
        assert!(quota.claimed() <= 1);
        assert_eq!(
            (own.is_some(), other.join().unwrap().is_some()),
            (own.is_some(), own.is_none())
        );
        assert_eq!(quota.claimed(), 1);
    });
}
