//! The times of a cron expression in a time zone.
//!
//! A local time that a zone skips is due at the first moment after the gap; one that occurs twice is due the first time. The cron
//! expression is therefore evaluated in local time, and each of its times is converted to one moment.

use std::str::FromStr;

use chrono::{DateTime, Duration, LocalResult, NaiveDateTime, TimeZone, Timelike, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use croner::{Cron, errors::CronError};

use super::TimesFault;
use crate::Millis;
use crate::definition::nearest;

/// Minutes; no zone has ever skipped more at once.
const LONGEST_GAP: i64 = 26 * 60;

/// Minutes; no zone has gone back by more at once since 1970.
const LONGEST_FOLD: i64 = 3 * 60;

/// Last moment with a time, in milliseconds since 1970: the end of the year 9999. Local times near the end of the calendar's range
/// cannot be represented.
const LATEST: Millis = 253_402_300_799_999;

/// Times of a cron expression in a zone.
#[derive(Clone, Debug)]
pub struct Times {
    cron: Cron,
    zone: Tz,
}

impl Times {
    /// Parses a cron expression of five fields (minute, hour, day of the month, month, day of the week) or six (seconds first),
    /// and the name of a time zone: `Europe/Berlin`.
    ///
    /// # Errors
    /// Every [`TimesFault`], that of the cron expression first.
    pub fn read(cron: &str, timezone: &str) -> Result<Self, Vec<TimesFault>> {
        match (readable(cron), zone(timezone)) {
            (Ok(cron), Ok(zone)) => Ok(Self { cron, zone }),
            (cron, zone) => Err(cron.err().into_iter().chain(zone.err()).collect()),
        }
    }

    /// Returns the first time after this moment, both in milliseconds since 1970; `None` if there are no more, and after the year
    /// 9999.
    pub fn after(&self, moment: Millis) -> Option<Millis> {
        let moment = utc(moment)?;
        let mut wall = moment.with_timezone(&self.zone).naive_local();
        loop {
            wall = next_on_the_wall(&self.cron, wall)?;
            let due = self.moment_of(wall)?;
            if due > moment {
                return u64::try_from(due.timestamp_millis()).ok();
            }
        }
    }

    /// Returns the last time before this moment, both in milliseconds since 1970; `None` if there is none, and after the year 9999.
    pub fn before(&self, moment: Millis) -> Option<Millis> {
        let moment = utc(moment)?;
        // Where clocks went back, a later local time can be an earlier moment.
        let mut wall = moment.with_timezone(&self.zone).naive_local() + Duration::minutes(LONGEST_FOLD);
        loop {
            let previous = self.cron.find_previous_occurrence(&wall.and_utc(), false).ok()?;
            wall = previous.naive_utc();
            let due = self.moment_of(wall)?;
            if due < moment {
                return u64::try_from(due.timestamp_millis()).ok();
            }
        }
    }

    /// Returns a moment in local time: `2026-11-22T03:00:00+01:00`; empty after the year 9999.
    pub fn shown(&self, moment: Millis) -> String {
        utc(moment).map_or_else(String::new, |moment| moment.with_timezone(&self.zone).to_rfc3339())
    }

    /// Returns the moment of a local time.
    fn moment_of(&self, wall: NaiveDateTime) -> Option<DateTime<Utc>> {
        let at = |wall: NaiveDateTime| match self.zone.from_local_datetime(&wall) {
            LocalResult::Single(moment) | LocalResult::Ambiguous(moment, _) => Some(moment.to_utc()),
            LocalResult::None => None,
        };
        at(wall).or_else(|| {
            let minute = wall.with_second(0)?;
            (1..=LONGEST_GAP).find_map(|later| at(minute + Duration::minutes(later)))
        })
    }
}

/// Returns a moment that has a local time in every zone.
fn utc(moment: Millis) -> Option<DateTime<Utc>> {
    let moment = Some(moment).filter(|moment| *moment <= LATEST)?;
    DateTime::from_timestamp_millis(i64::try_from(moment).ok()?)
}

/// Parses a cron expression and checks that it matches at least once.
fn readable(cron: &str) -> Result<Cron, TimesFault> {
    // The parser would read a seventh field as years, and the schedule would end after the last one.
    if cron.split_whitespace().count() > 6 {
        return Err(TimesFault::Cron("it has more than six fields".to_owned()));
    }
    let cron = Cron::from_str(cron).map_err(|error| TimesFault::Cron(reason(&error)))?;
    match next_on_the_wall(&cron, DateTime::UNIX_EPOCH.naive_utc()) {
        Some(_) => Ok(cron),
        None => Err(TimesFault::Cron("it matches no date".to_owned())),
    }
}

fn zone(name: &str) -> Result<Tz, TimesFault> {
    Tz::from_str(name).map_err(|_| {
        let names = || TZ_VARIANTS.iter().map(|zone| zone.name());
        let alike = names().find(|known| known.eq_ignore_ascii_case(name));
        TimesFault::Zone(alike.or_else(|| nearest(name, names())))
    })
}

fn next_on_the_wall(cron: &Cron, after: NaiveDateTime) -> Option<NaiveDateTime> {
    let next = cron.find_next_occurrence(&after.and_utc(), false).ok()?;
    Some(next.naive_utc())
}

/// Returns the reason alone, in one sentence.
fn reason(error: &CronError) -> String {
    match error {
        CronError::InvalidPattern(why) | CronError::IllegalCharacters(why) | CronError::ComponentError(why) => {
            why.trim_end_matches('.').to_owned()
        }
        CronError::EmptyPattern => "it is empty".to_owned(),
        CronError::InvalidDate | CronError::InvalidTime | CronError::TimeSearchLimitExceeded => {
            "it matches no date".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chrono::{Datelike, NaiveDate};
    use proptest::prelude::*;

    use super::*;

    /// Minutes, hours and days of the week; `None`: every one.
    #[derive(Clone, Debug)]
    struct Pattern {
        minutes: BTreeSet<u32>,
        hours: Option<BTreeSet<u32>>,
        days: Option<BTreeSet<u32>>,
    }

    impl Pattern {
        fn text(&self) -> String {
            let list = |set: &BTreeSet<u32>| set.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let or_all = |set: &Option<BTreeSet<u32>>| set.as_ref().map_or_else(|| "*".to_owned(), list);
            format!(
                "{} {} * * {}",
                list(&self.minutes),
                or_all(&self.hours),
                or_all(&self.days)
            )
        }

        fn has(&self, wall: NaiveDateTime) -> bool {
            let or_all = |set: &Option<BTreeSet<u32>>, value| set.as_ref().is_none_or(|set| set.contains(&value));
            self.minutes.contains(&wall.minute())
                && or_all(&self.hours, wall.hour())
                && or_all(&self.days, wall.weekday().num_days_from_sunday())
        }
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        let set = |most: u32, range| prop::collection::btree_set(0..most, range);
        (
            set(60, 1..4_usize),
            prop::option::of(set(5, 1..4_usize)),
            prop::option::weighted(0.3, set(7, 1..4_usize)),
        )
            .prop_map(|(minutes, hours, days)| Pattern { minutes, hours, days })
    }

    /// Zones, and a day of each on which its clocks change; Lord Howe changes by half an hour, Samoa skipped a whole day.
    const CHANGES: [(Tz, (i32, u32, u32)); 8] = [
        (Tz::Europe__Berlin, (2026, 3, 29)),
        (Tz::Europe__Berlin, (2026, 10, 25)),
        (Tz::America__New_York, (2026, 3, 8)),
        (Tz::America__New_York, (2026, 11, 1)),
        (Tz::Australia__Lord_Howe, (2026, 4, 5)),
        (Tz::Australia__Lord_Howe, (2026, 10, 4)),
        (Tz::Pacific__Apia, (2011, 12, 30)),
        (Tz::Asia__Kolkata, (2026, 1, 1)),
    ];

    /// Evaluated minute by minute: true if the local time matches the pattern for the first time, or a matching time was skipped.
    fn is_due(pattern: &Pattern, zone: Tz, moment: DateTime<Utc>) -> bool {
        let wall = |moment: DateTime<Utc>| moment.with_timezone(&zone).naive_local();
        let (now, before) = (wall(moment), wall(moment - Duration::minutes(1)));
        let shown_before = (1..=180).any(|ago| wall(moment - Duration::minutes(ago)) == now);
        let mut passed = before + Duration::minutes(1);
        let mut is_passed = false;
        while passed < now {
            is_passed |= pattern.has(passed);
            passed += Duration::minutes(1);
        }
        is_passed || (pattern.has(now) && !shown_before)
    }

    #[test]
    fn a_moment_at_the_end_of_the_calendar_has_no_times() {
        let end = DateTime::<Utc>::MAX_UTC.timestamp_millis() as Millis;
        for zone in ["UTC", "Pacific/Kiritimati", "America/New_York"] {
            let times = Times::read("0 0 29 2 *", zone).expect("valid");
            for moment in [
                end - 20_000_000,
                end,
                end + 1,
                LATEST + 1,
                i64::MAX as Millis,
                Millis::MAX,
            ] {
                let of = (times.after(moment), times.before(moment), times.shown(moment));
                assert_eq!(of, (None, None, String::new()), "{zone} {moment}");
            }
            assert!(times.before(LATEST).is_some(), "{zone}");
            assert!(!times.shown(LATEST).is_empty(), "{zone}");
        }
    }

    proptest! {
        // The oracle visits every minute of three days.
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn due_times_match_local_time_once_each(
            pattern in pattern(),
            (zone, (year, month, day)) in prop::sample::select(&CHANGES[..]),
            minutes_before in 0..2_880_i64,
        ) {
            let day = NaiveDate::from_ymd_opt(year, month, day).expect("a day");
            let start = day.and_time(chrono::NaiveTime::MIN).and_utc() - Duration::minutes(minutes_before);
            let times = Times::read(&pattern.text(), zone.name()).expect("times");
            let minutes = (1..=4_320).map(|minute| start + Duration::minutes(minute));
            let expected: Vec<i64> = minutes
                .filter(|moment| is_due(&pattern, zone, *moment))
                .map(|moment| moment.timestamp_millis())
                .collect();
            let mut found = Vec::new();
            let mut at = start.timestamp_millis() as u64;
            while let Some(next) = times.after(at) {
                if next.cast_signed() > (start + Duration::minutes(4_320)).timestamp_millis() {
                    break;
                }
                found.push(next.cast_signed());
                at = next;
            }
            prop_assert_eq!(&found, &expected, "{} in {}", pattern.text(), zone);
            let mut back = Vec::new();
            let mut at = ((start + Duration::minutes(4_320)).timestamp_millis() + 1) as u64;
            while let Some(previous) = times.before(at) {
                if previous.cast_signed() <= start.timestamp_millis() {
                    break;
                }
                back.push(previous.cast_signed());
                at = previous;
            }
            back.reverse();
            prop_assert_eq!(back, found, "backwards, {} in {}", pattern.text(), zone);
        }
    }

    #[test]
    fn every_fault_of_a_schedule_is_reported() {
        let faults = |cron: &str, zone: &str| Times::read(cron, zone).expect_err("no schedule");
        assert_eq!(
            faults("0 3 * * *", "Europe/Berln"),
            [TimesFault::Zone(Some("Europe/Berlin"))]
        );
        assert!(matches!(
            faults("x", "Europe/Berln")[..],
            [TimesFault::Cron(_), TimesFault::Zone(Some("Europe/Berlin"))]
        ));
        for cron in [
            "",
            "0 3 * *",
            "61 * * * *",
            "0 3 31 2 *",
            "x y z a b",
            "0 0 0 1 1 * 2020",
        ] {
            assert!(matches!(faults(cron, "UTC")[..], [TimesFault::Cron(_)]), "{cron}");
        }
    }

    #[test]
    fn the_time_before_a_clock_change_is_in_the_first_repeated_hour() {
        let at = |text: &str| DateTime::parse_from_rfc3339(text).expect("a time").timestamp_millis() as u64;
        let times = Times::read("30 2 * * *", "Europe/Berlin").expect("times");
        let due = times.before(at("2026-10-25T02:10:00+01:00"));
        assert_eq!(due, Some(at("2026-10-25T02:30:00+02:00")));
    }
}
