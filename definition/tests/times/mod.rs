//! Times of cron expressions compared with those of two other implementations.

use pirn_definition::times::Times;

/// Milliseconds since 1970 of a time without a zone, in UTC.
fn millis(time: &str) -> u64 {
    let time = chrono::DateTime::parse_from_rfc3339(&format!("{time}Z")).expect("a time");
    time.timestamp_millis().cast_unsigned()
}

#[test]
fn cron_expressions_match_the_times_of_other_implementations() {
    let rows: Vec<(String, String, Vec<String>)> = serde_json::from_str(include_str!("peers.json")).expect("rows");
    assert_eq!(rows.len(), 150);
    for (cron, start, expected) in rows {
        let times = Times::read(&cron, "UTC").expect("times");
        let mut at = millis(&start);
        for expected in expected {
            at = times.after(at).expect("a further time");
            assert_eq!(at, millis(&expected), "{cron} from {start}");
        }
    }
}

#[test]
fn a_day_is_due_if_one_of_two_restricted_day_fields_matches() {
    // A step counts as a restriction: the 1st, 11th, 21st and 31st, and every Monday.
    let times = Times::read("0 0 */10 * mon", "UTC").expect("times");
    let mut at = millis("2026-11-01T00:00:00");
    for expected in ["11-02", "11-09", "11-11", "11-16", "11-21"] {
        at = times.after(at).expect("a further time");
        assert_eq!(at, millis(&format!("2026-{expected}T00:00:00")));
    }
}
