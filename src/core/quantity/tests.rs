use super::*;
use proptest::prelude::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn s15_values_are_exact() {
    for (text, nano) in [
        ("0", 0),
        ("-5", -5 * NANO),
        ("+5", 5 * NANO),
        ("100Mi", 100 * 1024 * 1024 * NANO),
        ("1500m", 1_500_000_000),
        ("1e3", 1000 * NANO),
        ("1E3", 1000 * NANO),
        ("1e-3", 1_000_000),
        ("1E", 1_000_000_000_000_000_000 * NANO),
        ("7Ei", 7 * (1_i128 << 60) * NANO),
        ("0.1", 100_000_000),
        (".5", 500_000_000),
        ("5.", 5 * NANO),
        ("1.5Gi", 3 * (1_i128 << 29) * NANO),
        ("1n", 1),
        ("2u", 2000),
        ("1k", 1000 * NANO),
        ("9223372036854775807", MAX_WHOLE * NANO),
        ("0.000000001", 1),
        ("0.0000000010000", 1),
        ("0000000000000000000000000000000000000000000000001", NANO),
        ("0e999999999999", 0),
    ] {
        assert_eq!(quantity(text).nano, nano, "{text}");
    }
}

#[test]
fn s15_bad_texts_are_refused_with_a_remedy() {
    for (text, part) in [
        ("", "empty"),
        ("Mi", "does not start with a number"),
        ("-", "does not start with a number"),
        (".", "does not start with a number"),
        ("1.2.3", "does not start with a number"),
        ("--1", "does not start with a number"),
        ("NaN", "does not start with a number"),
        ("1K", "for a thousand write k, for 1024 write Ki"),
        ("200MB", "for mebibytes write Mi"),
        ("80%", "write a fraction"),
        ("1 Gi", "leave out the space"),
        ("1Mi ", "unknown suffix \"Mi \""),
        ("1e", "unknown suffix"),
        ("1e+", "unknown suffix"),
        ("1e1.5", "unknown suffix"),
        ("1µ", "unknown suffix"),
        ("8Ei", "too large"),
        ("9223372036854775808", "too large"),
        ("-9223372036854775808", "too large"),
        ("10E", "too large"),
        ("1e19", "too large"),
        ("1e999999999999", "too large"),
        ("99999999999999999999999999999999999999999999", "too large"),
        ("0.1n", "finer than a billionth"),
        ("1e-10", "finer than a billionth"),
        ("1e-999999999999", "finer than a billionth"),
        ("0.1234567891", "finer than a billionth"),
        (
            "0.11111111111111111111111111111111111111111111",
            "finer than a billionth",
        ),
    ] {
        let error = Quantity::parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(
            text.is_empty() || error.contains(&format!("{text:?}")),
            "{text}: {error}"
        );
    }
    assert!(Quantity::parse(&"9".repeat(100_000)).is_err());
}

#[test]
fn the_canonical_form_is_that_of_kubernetes() {
    for (text, canonical) in [
        ("100Mi", "100Mi"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("1025", "1025"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("1e3", "1e3"),
        ("100e1", "1e3"),
        ("15e2", "1500"),
        ("1E-3", "1e-3"),
        ("1E", "1E"),
        ("-5", "-5"),
        ("-1Gi", "-1Gi"),
        ("0Mi", "0"),
        ("0e5", "0"),
    ] {
        assert_eq!(quantity(text).to_string(), canonical, "{text}");
    }
    assert_eq!(Quantity::from_bytes(200 << 20).to_string(), "200Mi");
    assert_eq!(
        Quantity::from_bytes(u64::MAX).to_string(),
        u64::MAX.to_string()
    );
}

#[test]
fn s15_samples_are_compared_exactly() {
    use Ordering::{Equal, Greater, Less};
    for (text, v, order) in [
        ("0.5", 0.5, Equal),
        ("0.5", 0.5 + f64::EPSILON, Greater),
        // The float nearest to 0.1 is a little more than 0.1.
        ("0.1", 0.1, Greater),
        ("0.3", 0.3, Less),
        ("100Mi", 104_857_600.0, Equal),
        ("100Mi", 104_857_599.999_999_99, Less),
        ("9007199254740993", 9_007_199_254_740_992.0, Less),
        ("9223372036854775807", 9_223_372_036_854_775_808.0, Greater),
        ("1", f64::INFINITY, Greater),
        ("1", f64::NEG_INFINITY, Less),
        ("-1", f64::MIN, Less),
        ("1", f64::MAX, Greater),
        ("-5", -5.0, Equal),
        ("-5", -5.1, Less),
        ("-5", -4.9, Greater),
        ("-5", 5.0, Greater),
        ("0", -0.0, Equal),
        ("0", f64::from_bits(1), Greater),
        ("0", -f64::from_bits(1), Less),
        ("1n", f64::from_bits(1), Less),
        ("5", 0.0, Less),
        ("-5", 0.0, Greater),
    ] {
        assert_eq!(quantity(text).cmp_f64(v), Some(order), "{v} against {text}");
    }
    assert_eq!(quantity("1").cmp_f64(f64::NAN), None);
}

#[test]
fn bytes_are_whole_and_not_negative() {
    assert_eq!(quantity("200Mi").to_bytes(), Some(200 << 20));
    assert_eq!(quantity("1500m").to_bytes(), None);
    assert_eq!(quantity("-1").to_bytes(), None);
    assert_eq!(Quantity::from_bytes(u64::MAX).to_bytes(), Some(u64::MAX));
    assert!(
        !quantity("0").is_positive()
            && !quantity("-1m").is_positive()
            && quantity("1n").is_positive()
    );
    assert!(quantity("1Ki") == quantity("1024") && quantity("1k") < quantity("1Ki"));
}

#[test]
fn sizes_read_well_in_a_sentence() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (200 << 20, "200 MiB"),
        (1_288_490_189, "1.2 GiB"),
        ((1 << 30) - 1, "1 GiB"),
        (2 << 30, "2 GiB"),
        (u64::MAX, "16 EiB"),
    ] {
        assert_eq!(human_bytes(bytes), text);
    }
}

proptest! {
    #[test]
    fn never_panics(text in "\\PC{0,40}") {
        let _ = Quantity::parse(&text);
    }

    #[test]
    fn round_trips(
        mantissa in -999_999_i64..999_999,
        suffix in prop::sample::select(vec!["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-3", "E2"]),
    ) {
        let parsed = quantity(&format!("{mantissa}{suffix}"));
        let printed = parsed.to_string();
        prop_assert_eq!(quantity(&printed), parsed);
        prop_assert_eq!(quantity(&printed).to_string(), printed);
    }

    #[test]
    fn bytes_round_trip(bytes in any::<u64>()) {
        prop_assert_eq!(Quantity::from_bytes(bytes).to_bytes(), Some(bytes));
        if let Ok(parsed) = Quantity::parse(&Quantity::from_bytes(bytes).to_string()) {
            prop_assert_eq!(parsed.to_bytes(), Some(bytes));
        }
    }

    #[test]
    fn whole_samples_compare_as_integers(a in -(1_i64 << 53)..(1_i64 << 53), b in -(1_i64 << 53)..(1_i64 << 53)) {
        prop_assert_eq!(quantity(&b.to_string()).cmp_f64(a as f64), Some(a.cmp(&b)));
    }

    #[test]
    fn dyadic_fractions_compare_exactly(a in -4_000_000_i64..4_000_000, b in -4_000_000_i64..4_000_000) {
        // Thousandths of 1/64 are exact in both worlds: 1/64 = 15625u.
        let q = quantity(&format!("{}u", b * 15_625));
        prop_assert_eq!(q.cmp_f64(a as f64 / 64.0), Some(a.cmp(&b)));
    }
}
