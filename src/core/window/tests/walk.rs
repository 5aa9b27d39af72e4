//! Windows against a second computation that shares nothing with the first: a walk over
//! the clock, minute by minute, that only reads what the clock shows.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};
use proptest::prelude::*;

use super::super::{ClosedBy, Gate, Schedule, Window};

/// Half an hour (Lord Howe), negative summer time (Dublin), skipped days (Apia, Kwajalein), two
/// hours (Troll), a minute past midnight (St John's), around Ramadan (Casablanca), and plain ones.
const ZONES: [&str; 18] = [
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Antarctica/Troll",
    "America/St_Johns",
    "Africa/Casablanca",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Tehran",
    "Asia/Gaza",
    "Pacific/Chatham",
    "America/Caracas",
    "Asia/Kathmandu",
    "Africa/Cairo",
    "America/Havana",
    "UTC",
];

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Longest window drawn here.
const LONGEST_MINUTES: i64 = 2 * 24 * 60;
/// How long before and after the interesting moment is walked over.
const BEFORE: SignedDuration = SignedDuration::from_hours(4 * 24);
const AFTER: SignedDuration = SignedDuration::from_hours(2 * 24);

/// A window in words of this test.
#[derive(Clone, Debug)]
struct Drawn {
    /// Monday is 0; empty is every day.
    days: BTreeSet<i8>,
    hours: BTreeSet<i8>,
    minutes: BTreeSet<i8>,
    length: i64,
    cron: bool,
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl Drawn {
    fn window(&self, zone: &str) -> Window {
        let length = format!("{}m", self.length);
        if self.cron {
            let list = |set: &BTreeSet<i8>| {
                let items: Vec<String> = set.iter().map(ToString::to_string).collect();
                if items.is_empty() {
                    "*".to_owned()
                } else {
                    items.join(",")
                }
            };
            // Cron's week begins on Sunday.
            let days = self.days.iter().map(|day| (day + 1) % 7).collect();
            let cron = format!(
                "{} {} * * {}",
                list(&self.minutes),
                list(&self.hours),
                list(&days)
            );
            return Window::cron(&cron, &length, zone).unwrap();
        }
        let days: Vec<&str> = self.days.iter().map(|day| DAYS[*day as usize]).collect();
        let hour = self.hours.first().copied().unwrap_or(0);
        let minute = self.minutes.first().copied().unwrap_or(0);
        Window::weekly(&days, &format!("{hour:02}:{minute:02}"), &length, zone).unwrap()
    }

    fn starts_at(&self, clock: DateTime) -> bool {
        let day = clock.weekday().to_monday_zero_offset();
        let only_first = |set: &BTreeSet<i8>, value: i8| {
            if self.cron {
                set.is_empty() || set.contains(&value)
            } else {
                set.first().copied().unwrap_or(0) == value
            }
        };
        (self.days.is_empty() || self.days.contains(&day))
            && only_first(&self.hours, clock.hour())
            && only_first(&self.minutes, clock.minute())
    }

    /// The minutes at which it opens: a time of the clock counts when the clock first shows it
    /// or has gone past it.
    fn openings(&self, minutes: &[Timestamp], zone: &TimeZone) -> BTreeSet<Timestamp> {
        let mut openings = BTreeSet::new();
        let mut latest: Option<DateTime> = None;
        for &minute in minutes {
            let clock = zone.to_datetime(minute);
            let mut next = match latest {
                Some(latest) => latest.checked_add(1.minute()).unwrap(),
                None => clock,
            };
            while next <= clock {
                if self.starts_at(next) {
                    openings.insert(minute);
                }
                latest = Some(next);
                next = next.checked_add(1.minute()).unwrap();
            }
        }
        openings
    }

    fn is_open(&self, openings: &BTreeSet<Timestamp>, at: Timestamp) -> bool {
        let last = openings.range(..=at).next_back();
        last.is_some_and(|opening| at.duration_since(*opening) < MINUTE * self.length as i32)
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let few = |max: i8, most: usize| prop::collection::btree_set(0..max, 1..=most);
    // Around midnight and the small hours, where clocks change.
    let hours = prop_oneof![3 => prop::collection::btree_set(0_i8..5, 1..3), 1 => few(24, 3)];
    let minutes = prop_oneof![2 => prop::sample::select(vec![0_i8, 1, 15, 30, 45]).prop_map(|m| BTreeSet::from([m])), 1 => few(60, 3)];
    let days = prop_oneof![1 => Just(BTreeSet::new()), 2 => few(7, 3)];
    (days, hours, minutes, 1..LONGEST_MINUTES, any::<bool>()).prop_map(
        |(days, hours, minutes, length, cron)| Drawn {
            days,
            hours,
            minutes,
            // Short ones are the more telling.
            length: if length % 3 == 0 {
                length
            } else {
                length % 300 + 1
            },
            cron,
        },
    )
}

fn zone_of(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap()
}

/// A whole minute at or near a change of the zone's clock.
fn moment(zone: &TimeZone, second: i64, away: i64) -> Timestamp {
    let some = Timestamp::from_second(second).unwrap();
    let change = zone
        .following(some)
        .next()
        .map_or(some, |change| change.timestamp());
    let at = change + MINUTE * away as i32;
    Timestamp::from_second(at.as_second().div_euclid(60) * 60).unwrap()
}

fn compare(zone: &str, windows: &[Drawn], blackouts: &[Drawn], at: Timestamp) {
    let tz = zone_of(zone);
    let first = at - BEFORE;
    let count = (BEFORE + AFTER).as_mins();
    let minutes: Vec<Timestamp> = (0..count).map(|i| first + MINUTE * i as i32).collect();
    let walk = |drawn: &Drawn| drawn.openings(&minutes, &tz);
    let all: Vec<(&Drawn, BTreeSet<Timestamp>)> = windows
        .iter()
        .chain(blackouts)
        .map(|d| (d, walk(d)))
        .collect();
    let (open, dark) = all.split_at(windows.len());
    let is_in = |list: &[(&Drawn, BTreeSet<Timestamp>)], t| {
        list.iter()
            .any(|(drawn, openings)| drawn.is_open(openings, t))
    };
    let may_run = |t| !is_in(dark, t) && (open.is_empty() || is_in(open, t));
    let schedule = Schedule {
        windows: windows.iter().map(|d| d.window(zone)).collect(),
        blackouts: blackouts.iter().map(|d| d.window(zone)).collect(),
    };
    // What opened before the walk is not known, so its first days are not compared.
    let from = first + MINUTE * LONGEST_MINUTES as i32 + SignedDuration::from_hours(24);
    for (i, &t) in minutes.iter().enumerate().filter(|(_, t)| **t >= from) {
        for ((drawn, openings), window) in open.iter().zip(&schedule.windows) {
            let expected = drawn.is_open(openings, t);
            assert_eq!(window.contains(t), expected, "{window} at {t} in {zone}");
        }
        if i % 17 != 0 && t.duration_since(at).abs() > SignedDuration::from_hours(1) {
            continue;
        }
        for ((_, openings), window) in open.iter().zip(&schedule.windows) {
            if let Some(next) = openings.range(t + SignedDuration::from_nanos(1)..).next() {
                assert_eq!(
                    window.opening_after(t),
                    Some(*next),
                    "{window} at {t} in {zone}"
                );
            }
        }
        match schedule.at(t) {
            Gate::Open { closes } => {
                assert!(may_run(t), "{schedule:?} at {t} in {zone}");
                let end = minutes[i..].iter().find(|t| !may_run(**t));
                if let (Some(closes), Some(end)) = (closes, end) {
                    assert_eq!(closes, *end, "{schedule:?} at {t} in {zone}");
                }
            }
            Gate::Closed { reason, opens } => {
                let expected = if is_in(dark, t) {
                    ClosedBy::Blackout
                } else {
                    ClosedBy::OutsideWindows
                };
                assert!(!may_run(t), "{schedule:?} at {t} in {zone}");
                assert_eq!(reason, expected, "{schedule:?} at {t} in {zone}");
                if let Some(next) = minutes[i..].iter().find(|t| may_run(**t)) {
                    assert_eq!(opens, Some(*next), "{schedule:?} at {t} in {zone}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn t71_t74_windows_are_what_a_walk_over_the_clock_says(
        zone in prop::sample::select(&ZONES[..]),
        windows in prop::collection::vec(drawn(), 0..3),
        blackouts in prop::collection::vec(drawn(), 0..2),
        second in 631_152_000_i64..1_900_000_000,
        away in -200_i64..200,
    ) {
        let tz = zone_of(zone);
        compare(zone, &windows, &blackouts, moment(&tz, second, away));
    }
}

/// The changes that are hardest, each with windows that begin in it.
#[test]
fn t71_the_odd_changes_one_by_one() {
    let drawn = |hour: i8, minute: i8, length: i64, cron: bool| Drawn {
        days: BTreeSet::new(),
        hours: BTreeSet::from([hour]),
        minutes: BTreeSet::from([minute]),
        length,
        cron,
    };
    for (zone, at, hour, minute) in [
        // Half an hour forth and back.
        ("Australia/Lord_Howe", "2025-10-04T15:30:00Z", 2, 15),
        ("Australia/Lord_Howe", "2026-04-04T15:00:00Z", 1, 45),
        // Winter is the exception there.
        ("Europe/Dublin", "2026-03-29T01:00:00Z", 1, 30),
        ("Europe/Dublin", "2026-10-25T01:00:00Z", 1, 30),
        // 30 December 2011 and 21 August 1993 did not exist.
        ("Pacific/Apia", "2011-12-30T10:00:00Z", 12, 0),
        ("Pacific/Kwajalein", "1993-08-21T12:00:00Z", 12, 0),
        // Two hours at once.
        ("Antarctica/Troll", "2026-03-29T01:00:00Z", 2, 30),
        // At midnight, and a minute past it.
        ("America/Sao_Paulo", "2018-11-04T03:00:00Z", 0, 0),
        ("America/Havana", "2026-03-08T05:00:00Z", 0, 30),
        ("America/St_Johns", "2006-10-29T02:31:00Z", 23, 30),
    ] {
        let at: Timestamp = at.parse().unwrap();
        for length in [1, 29, 45, 90, 24 * 60] {
            for cron in [false, true] {
                compare(zone, &[drawn(hour, minute, length, cron)], &[], at);
                compare(zone, &[], &[drawn(hour, minute, length, cron)], at);
            }
        }
    }
}
