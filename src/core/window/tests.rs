use std::collections::BTreeSet;
use std::time::Duration;

use jiff::civil::{Weekday, date};
use proptest::prelude::*;

use super::*;

mod walk;

fn at(text: &str) -> Timestamp {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn weekly(days: &[&str], start: &str, length: &str, zone: &str) -> Window {
    Window::weekly(days, start, length, zone).unwrap_or_else(|error| panic!("{error}"))
}

fn cron(expression: &str, length: &str, zone: &str) -> Window {
    Window::cron(expression, length, zone).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn t69_a_window_over_midnight_belongs_to_the_day_it_starts() {
    let by_day = weekly(&["Fri"], "22:00", "6h", "");
    let by_cron = cron("0 22 * * FRI", "6h", "UTC");
    for window in [&by_day, &by_cron] {
        // 2026-06-05 is a Friday.
        for (t, inside) in [
            ("2026-06-05T01:00:00Z", false),
            ("2026-06-05T21:59:59.999999999Z", false),
            ("2026-06-05T22:00:00Z", true),
            ("2026-06-06T01:00:00Z", true),
            ("2026-06-06T03:59:59.999999999Z", true),
            ("2026-06-06T04:00:00Z", false),
        ] {
            assert_eq!(window.contains(at(t)), inside, "{window} at {t}");
        }
        let friday = at("2026-06-05T22:00:00Z");
        assert_eq!(
            window.opening_after(at("2026-06-05T00:00:00Z")),
            Some(friday)
        );
        assert_eq!(
            window.opening_after(friday),
            Some(at("2026-06-12T22:00:00Z"))
        );
        assert_eq!(window.current_end(friday), Some(at("2026-06-06T04:00:00Z")));
        assert_eq!(window.current_end(at("2026-06-06T04:00:00Z")), None);
    }
}

#[test]
fn t71_a_skipped_start_opens_at_the_jump() {
    // Berlin jumps from 02:00 to 03:00 at 01:00Z on 2026-03-29.
    let jump = at("2026-03-29T01:00:00Z");
    for window in [
        weekly(&["Sun"], "02:30", "1h", "Europe/Berlin"),
        weekly(&["Sunday"], "02:00", "1h", "Europe/Berlin"),
        cron("30 2 * * *", "1h", "Europe/Berlin"),
        // Four skipped starts are one opening.
        cron("*/15 2 * * *", "1h", "Europe/Berlin"),
    ] {
        assert_eq!(
            window.opening_after(at("2026-03-28T12:00:00Z")),
            Some(jump),
            "{window}"
        );
        assert!(!window.contains(at("2026-03-29T00:59:59Z")), "{window}");
        assert!(window.contains(jump), "{window}");
        assert_eq!(
            window.current_end(jump),
            Some(at("2026-03-29T02:00:00Z")),
            "{window}"
        );
    }
    // A whole day that a zone skipped: Samoa had no 30 December 2011.
    let window = weekly(&["Fri"], "12:00", "1h", "Pacific/Apia");
    assert_eq!(
        window.opening_after(at("2011-12-30T00:00:00Z")),
        Some(at("2011-12-30T10:00:00Z"))
    );
}

#[test]
fn t71_a_repeated_start_opens_once_and_lasts_its_elapsed_time() {
    // Berlin goes from 03:00 back to 02:00 at 01:00Z on 2026-10-25.
    let first = at("2026-10-25T00:30:00Z");
    for window in [
        weekly(&["sun"], "02:30", "45m", "Europe/Berlin"),
        cron("30 2 * * *", "45m", "Europe/Berlin"),
    ] {
        assert_eq!(
            window.opening_after(at("2026-10-24T12:00:00Z")),
            Some(first)
        );
        assert_eq!(window.current_end(first), Some(at("2026-10-25T01:15:00Z")));
        // 02:20 for the second time is inside, 02:30 for the second time is no start.
        assert!(window.contains(at("2026-10-25T01:14:59Z")));
        assert!(!window.contains(at("2026-10-25T01:15:00Z")));
        assert!(!window.contains(at("2026-10-25T01:30:00Z")));
    }
    // Over the change, six hours are six hours.
    let long = weekly(&["Sat"], "23:00", "6h", "Europe/Berlin");
    assert_eq!(
        long.current_end(at("2026-10-25T00:00:00Z")),
        Some(at("2026-10-25T03:00:00Z"))
    );
}

#[test]
fn t73_wrong_fields_are_refused_with_a_remedy() {
    let week = |days: &[&str], start, length, zone| Window::weekly(days, start, length, zone);
    for (result, field, part) in [
        (
            week(&["Fri"], "22:00", "1h", "Local"),
            "timeZone",
            "want an IANA name such as \"Europe/Berlin\"",
        ),
        (
            week(&["Fri"], "22:00", "1h", "localtime"),
            "timeZone",
            "\"localtime\" is unknown",
        ),
        (
            week(&["Fri"], "22:00", "1h", "Europe/Atlantis"),
            "timeZone",
            "\"Europe/Atlantis\" is unknown",
        ),
        (
            week(&["Fri"], "22:00", "1h", "+02:00"),
            "timeZone",
            "\"+02:00\" is unknown",
        ),
        (
            week(&["Fri"], "22:00", "1h", "../../etc/passwd"),
            "timeZone",
            "is unknown",
        ),
        (week(&["Fri"], "22:00", "1h", " "), "timeZone", "is unknown"),
        (
            week(&["Fri", "Freitag"], "22:00", "1h", ""),
            "days",
            "\"Freitag\" is unknown",
        ),
        (week(&["Mon-Fri"], "22:00", "1h", ""), "days", "\"Mon-Fri\""),
        (week(&[""], "22:00", "1h", ""), "days", "English weekday"),
        (
            week(&[], "24:00", "1h", ""),
            "start",
            "\"24:00\" is not a time of day",
        ),
        (week(&[], "9:00", "1h", ""), "start", "HH:MM"),
        (week(&[], "22:60", "1h", ""), "start", "HH:MM"),
        (week(&[], "22:00:00", "1h", ""), "start", "HH:MM"),
        (week(&[], "10pm", "1h", ""), "start", "HH:MM"),
        (week(&[], "22:00", "0s", ""), "length", "empty window"),
        (week(&[], "22:00", "0", ""), "length", "empty window"),
        (week(&[], "22:00", "-1h", ""), "length", "has a sign"),
        (week(&[], "22:00", "", ""), "length", "is empty"),
        (
            week(&[], "22:00", "7d1s", ""),
            "length",
            "want at most \"1w\"",
        ),
        (
            Window::cron("0 22 * * 5", "367d", ""),
            "length",
            "want at most \"366d\"",
        ),
        (Window::cron("", "1h", ""), "cron", "has 0 fields"),
        (Window::cron("0 22 * *", "1h", ""), "cron", "has 4 fields"),
        (
            Window::cron("0 0 22 * * 5", "1h", ""),
            "cron",
            "has 6 fields",
        ),
        (
            Window::cron("61 22 * * 5", "1h", ""),
            "cron",
            "does not parse",
        ),
        (
            Window::cron("0 22 * * FOO", "1h", ""),
            "cron",
            "does not parse",
        ),
        (Window::cron("@never", "1h", ""), "cron", "does not parse"),
        (
            Window::cron("0 0 30 2 *", "1h", ""),
            "cron",
            "never matches",
        ),
    ] {
        let error = result.expect_err(part);
        assert_eq!(error.field(), field, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    for zone in [
        "",
        "UTC",
        "Etc/UTC",
        "Europe/Berlin",
        "America/Argentina/Buenos_Aires",
    ] {
        assert!(week(&[], "00:00", "7d", zone).is_ok(), "{zone}");
    }
}

#[test]
fn windows_say_what_they_are() {
    assert_eq!(
        weekly(&["friday", "MON"], "22:00", "6h", "Europe/Berlin").to_string(),
        "Mon,Fri 22:00 for 6h (Europe/Berlin)"
    );
    assert_eq!(
        weekly(&[], "01:05", "90m", "").to_string(),
        "every day 01:05 for 1h30m (UTC)"
    );
    assert_eq!(
        cron("@daily", "1h", "").to_string(),
        "cron \"@daily\" for 1h (UTC)"
    );
}

#[test]
fn openings_that_touch_or_overlap_are_one() {
    let now = at("2026-06-03T12:00:00Z");
    let around_the_clock = weekly(&[], "00:00", "1d", "");
    assert!(around_the_clock.contains(now));
    assert_eq!(around_the_clock.current_end(now), None);
    let overlapping = cron("0 8-17 * * *", "90m", "");
    assert_eq!(
        overlapping.current_end(now),
        Some(at("2026-06-03T18:30:00Z"))
    );
    assert_eq!(
        overlapping.opening_after(now),
        Some(at("2026-06-03T13:00:00Z"))
    );
}

#[test]
fn rare_openings_are_found_and_the_calendars_ends_are_no_trap() {
    let leap = cron("0 0 29 2 *", "1d", "");
    assert_eq!(
        leap.opening_after(at("2026-01-01T00:00:00Z")),
        Some(at("2028-02-29T00:00:00Z"))
    );
    assert!(
        leap.contains(at("2028-02-29T23:59:59Z")) && !leap.contains(at("2027-02-28T23:59:59Z"))
    );
    for window in [weekly(&["Fri"], "22:00", "6h", "America/New_York"), leap] {
        for t in [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH] {
            let _ = (
                window.contains(t),
                window.opening_after(t),
                window.current_end(t),
            );
            let schedule = Schedule {
                windows: vec![window.clone()],
                blackouts: vec![window.clone()],
            };
            let _ = schedule.at(t);
        }
    }
}

fn open(closes: &str) -> Gate {
    Gate::Open {
        closes: Some(at(closes)),
    }
}

fn closed(reason: ClosedBy, opens: &str) -> Gate {
    Gate::Closed {
        reason,
        opens: Some(at(opens)),
    }
}

#[test]
fn t74_any_window_opens_and_a_blackout_wins() {
    use ClosedBy::{Blackout, OutsideWindows};
    let schedule = Schedule {
        windows: vec![
            weekly(&[], "22:00", "2h", ""),
            weekly(&["Sat"], "23:00", "5h", ""),
        ],
        blackouts: vec![weekly(&["Sat"], "23:30", "1h", "")],
    };
    // 2026-06-06 is a Saturday.
    for (t, gate) in [
        (
            "2026-06-05T12:00:00Z",
            closed(OutsideWindows, "2026-06-05T22:00:00Z"),
        ),
        ("2026-06-05T22:00:00Z", open("2026-06-06T00:00:00Z")),
        ("2026-06-06T22:30:00Z", open("2026-06-06T23:30:00Z")),
        (
            "2026-06-06T23:30:00Z",
            closed(Blackout, "2026-06-07T00:30:00Z"),
        ),
        ("2026-06-07T00:30:00Z", open("2026-06-07T04:00:00Z")),
        (
            "2026-06-07T04:00:00Z",
            closed(OutsideWindows, "2026-06-07T22:00:00Z"),
        ),
    ] {
        assert_eq!(schedule.at(at(t)), gate, "at {t}");
    }
}

#[test]
fn t74_the_edges_of_a_schedule() {
    let now = at("2026-06-06T12:00:00Z");
    assert_eq!(Schedule::default().at(now), Gate::Open { closes: None });

    let noon = || weekly(&["Sat"], "11:00", "2h", "");
    let only_blackouts = Schedule {
        windows: vec![],
        blackouts: vec![noon(), weekly(&["Sat"], "13:00", "1h", "")],
    };
    // Two blackouts in a row are one, and it opens at the end of the second.
    assert_eq!(
        only_blackouts.at(now),
        closed(ClosedBy::Blackout, "2026-06-06T14:00:00Z")
    );
    assert_eq!(
        only_blackouts.at(at("2026-06-06T14:00:00Z")),
        open("2026-06-13T11:00:00Z")
    );

    // Windows that a blackout always covers never open.
    let covered = Schedule {
        windows: vec![noon()],
        blackouts: vec![weekly(&["Sat"], "10:00", "1d", "")],
    };
    assert_eq!(
        covered.at(now),
        Gate::Closed {
            reason: ClosedBy::Blackout,
            opens: None
        }
    );
    let shut = Schedule {
        windows: vec![],
        blackouts: vec![weekly(&[], "00:00", "1d", "")],
    };
    assert_eq!(
        shut.at(now),
        Gate::Closed {
            reason: ClosedBy::Blackout,
            opens: None
        }
    );

    // Further away than a year and a few days.
    let leap = Schedule {
        windows: vec![cron("0 0 29 2 *", "1d", "")],
        blackouts: vec![],
    };
    assert_eq!(
        leap.at(now),
        Gate::Closed {
            reason: ClosedBy::OutsideWindows,
            opens: None
        }
    );
    let yearly = Schedule {
        windows: vec![cron("0 0 1 6 *", "1d", "")],
        blackouts: vec![],
    };
    assert_eq!(
        yearly.at(now),
        closed(ClosedBy::OutsideWindows, "2027-06-01T00:00:00Z")
    );

    // Windows of different zones that hand over to each other.
    let relay = Schedule {
        windows: vec![noon(), weekly(&["Sat"], "15:00", "1h", "Europe/Berlin")],
        blackouts: vec![],
    };
    assert_eq!(relay.at(now), open("2026-06-06T14:00:00Z"));
}

/// Zones and days on which their clocks jump: an hour, half an hour, a day.
const JUMPS: [(&str, (i16, i8, i8)); 12] = [
    ("Europe/Berlin", (2026, 3, 29)),
    ("Europe/Berlin", (2026, 10, 25)),
    ("America/New_York", (2026, 3, 8)),
    ("America/New_York", (2026, 11, 1)),
    ("Australia/Lord_Howe", (2026, 4, 5)),
    ("Australia/Lord_Howe", (2026, 10, 4)),
    ("America/St_Johns", (2026, 3, 8)),
    ("Atlantic/Azores", (2026, 10, 25)),
    ("Africa/Cairo", (2026, 4, 24)),
    ("America/Havana", (2026, 11, 1)),
    ("Pacific/Apia", (2011, 12, 30)),
    ("Asia/Kathmandu", (2026, 6, 1)),
];

const MINUTE: SignedDuration = SignedDuration::from_secs(60);

/// The openings around a day, found by watching the wall clock minute by minute:
/// a start opens when the clock has reached it for the first time. It knows
/// nothing of gaps, folds, or searches.
fn watch_the_clock(
    zone: &TimeZone,
    (year, month, day): (i16, i8, i8),
    is_start: impl Fn(DateTime) -> bool,
) -> (Timestamp, Timestamp, BTreeSet<Timestamp>) {
    let noon = TimeZone::UTC
        .to_timestamp(date(year, month, day).at(12, 0, 0, 0))
        .expect("a date");
    let (from, to) = (
        noon - Duration::from_secs(4 * 86_400),
        noon + Duration::from_secs(3 * 86_400),
    );
    let mut openings = BTreeSet::new();
    let mut reached = zone.to_datetime(from);
    let mut now = from;
    while now < to {
        now += MINUTE;
        let shown = zone.to_datetime(now);
        while reached < shown {
            reached = reached.checked_add(MINUTE).expect("a date");
            if is_start(reached) {
                openings.insert(now);
            }
        }
    }
    (from, to, openings)
}

fn check(
    window: &Window,
    zone: &str,
    day: (i16, i8, i8),
    minutes: i64,
    is_start: impl Fn(DateTime) -> bool,
) -> Result<(), TestCaseError> {
    let zone = TimeZoneDatabase::bundled().get(zone).expect(zone);
    let (from, to, openings) = watch_the_clock(&zone, day, is_start);
    let length = SignedDuration::from_mins(minutes);
    let is_inside = |t: Timestamp| {
        openings
            .range(..=t)
            .next_back()
            .is_some_and(|start| t < *start + length)
    };

    // Before `from` nothing was watched, and what began there may last this long.
    let mut probes: BTreeSet<Timestamp> = BTreeSet::new();
    let mut t = from + length;
    while t < to {
        probes.insert(t);
        t += SignedDuration::from_mins(97);
    }
    // Edges far from the jump are like any other.
    let middle = from + SignedDuration::from_hours(4 * 24);
    let near = openings
        .iter()
        .filter(|start| start.duration_since(middle).abs() < SignedDuration::from_hours(30));
    for edge in near.flat_map(|start| [*start, *start + length]) {
        probes.extend([
            edge - MINUTE,
            edge - SignedDuration::from_nanos(1),
            edge,
            edge + MINUTE,
        ]);
    }
    for t in probes.range(from + length..to) {
        prop_assert_eq!(
            window.contains(*t),
            is_inside(*t),
            "{} contains {}",
            window,
            t
        );
        if let Some(next) = openings.range(*t + SignedDuration::from_nanos(1)..).next() {
            prop_assert_eq!(
                window.opening_after(*t),
                Some(*next),
                "{} opens after {}",
                window,
                t
            );
        }
        if is_inside(*t) {
            let mut end = *t;
            while is_inside(end) {
                end = *openings.range(..=end).next_back().expect("inside") + length;
            }
            if end < to {
                prop_assert_eq!(
                    window.current_end(*t),
                    Some(end),
                    "{} ends after {}",
                    window,
                    t
                );
            }
        } else {
            prop_assert_eq!(window.current_end(*t), None, "{} ends after {}", window, t);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn t71_weekly_windows_agree_with_watching_the_clock(
        (zone, day) in prop::sample::select(JUMPS.to_vec()),
        days in prop::collection::btree_set(0_usize..7, 0..=7),
        // Around the jumps most of the time.
        hour in prop_oneof![3 => 0_i8..4, 1 => 0_i8..24],
        minute in prop::sample::select(vec![0_i8, 1, 15, 30, 45, 59]),
        minutes in prop_oneof![1_i64..180, 1_i64..2000],
    ) {
        let names = ["mon", "Tue", "WED", "Thursday", "friday", "Sat", "SUNDAY"];
        let chosen: Vec<_> = days.iter().map(|index| names[*index]).collect();
        let window = weekly(&chosen, &format!("{hour:02}:{minute:02}"), &format!("{minutes}m"), zone);
        let is_day = |weekday: Weekday| {
            days.is_empty() || days.contains(&usize::try_from(weekday.to_monday_zero_offset()).expect("a day"))
        };
        check(&window, zone, day, minutes, |t| t.hour() == hour && t.minute() == minute && is_day(t.weekday()))?;
    }

    #[test]
    fn t71_cron_windows_agree_with_watching_the_clock(
        (zone, day) in prop::sample::select(JUMPS.to_vec()),
        step in prop::sample::select(vec![15_i8, 20, 25]),
        hours in prop::sample::select(vec![(0_i8, 3_i8), (1, 2), (2, 2), (20, 23)]),
        minutes in prop_oneof![1_i64..60, 1_i64..200],
    ) {
        let window = cron(&format!("*/{step} {}-{} * * *", hours.0, hours.1), &format!("{minutes}m"), zone);
        check(&window, zone, day, minutes, |t| t.minute() % step == 0 && (hours.0..=hours.1).contains(&t.hour()))?;
    }

    #[test]
    fn t74_a_gate_keeps_its_promise(
        windows in prop::collection::vec((0_u8..24, 1_u32..40), 0..3),
        blackouts in prop::collection::vec((0_u8..24, 1_u32..40), 0..3),
        now in 0_i64..2_000_000,
    ) {
        let build = |list: &[(u8, u32)], days: &[&str]| -> Vec<Window> {
            list.iter().map(|(hour, hours)| weekly(days, &format!("{hour:02}:00"), &format!("{hours}h"), "Europe/Berlin")).collect()
        };
        let schedule = Schedule { windows: build(&windows, &["Sat", "Sun", "Tue"]), blackouts: build(&blackouts, &["Sun", "Wed"]) };
        // From a week before Berlin's spring change.
        let now = at("2026-03-22T00:00:00Z") + SignedDuration::from_secs(now);
        let is_open = |t| matches!(schedule.at(t), Gate::Open { .. });
        let (edge, open_now) = match schedule.at(now) {
            Gate::Open { closes } => (closes, true),
            Gate::Closed { opens, .. } => (opens, false),
        };
        let Some(edge) = edge else { return Ok(()) };
        prop_assert!(edge > now);
        prop_assert_eq!(is_open(edge), !open_now, "at the edge {}", edge);
        // Nothing changes on the way there: every edge lies on a whole hour.
        let mut t = now;
        while t < edge {
            prop_assert_eq!(is_open(t), open_now, "on the way, at {}", t);
            t += SignedDuration::from_mins(30);
        }
        prop_assert_eq!(is_open(edge - SignedDuration::from_nanos(1)), open_now);
    }
}
