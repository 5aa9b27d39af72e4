use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn known(bytes: u64) -> Quota {
    Quota::Known {
        bytes,
        source: QuotaSource::Status,
    }
}

fn numbers(size: u64, in_use: u64, quota: Quota) -> Numbers {
    Numbers {
        db_size: Some(size * MIB),
        db_size_in_use: Some(in_use * MIB),
        quota,
    }
}

fn thresholds(free_space_above: Option<u64>, percent: Option<&str>) -> Rule {
    Rule::Threshold {
        free_space_above: free_space_above.map(|mib| mib * MIB),
        quota_usage_above: percent.map(|text| Percent::parse(text).expect(text)),
        min_reclaim: DEFAULT_MIN_RECLAIM,
    }
}

fn expression(text: &str) -> Rule {
    Rule::Expression(Expression::parse(text).expect(text))
}

/// A verdict in short: what it is, what decided, and the sentence.
fn short(verdict: &Verdict) -> (&'static str, &'static str, &str) {
    match verdict {
        Verdict::Due { why, .. } => ("due", why.arm.as_str(), &why.message),
        Verdict::NotDue { why } => ("not due", why.arm.as_str(), &why.message),
        Verdict::Unknown { missing, message } => ("unknown", missing, message),
    }
}

#[test]
fn thresholds_decide() {
    let quota = known(1000 * MIB);
    for (case, rule, numbers, kind, decided, part) in [
        (
            "default above",
            Rule::default(),
            numbers(500, 299, quota),
            "due",
            "FreeSpace",
            "201 MiB can be given back",
        ),
        (
            "strictly above",
            Rule::default(),
            numbers(500, 300, quota),
            "not due",
            "BelowThresholds",
            "not more than",
        ),
        (
            "small file",
            Rule::default(),
            numbers(20, 1, quota),
            "not due",
            "BelowThresholds",
            "19 MiB",
        ),
        (
            "quota arm",
            thresholds(Some(200), Some("80%")),
            numbers(801, 701, quota),
            "due",
            "QuotaUsage",
            "above 80%",
        ),
        (
            "at the share",
            thresholds(Some(200), Some("80%")),
            numbers(800, 700, quota),
            "not due",
            "BelowThresholds",
            "",
        ),
        (
            "at the floor",
            thresholds(Some(200), Some("80%")),
            numbers(900, 868, quota),
            "due",
            "QuotaUsage",
            "32 MiB",
        ),
        (
            "R31 full",
            thresholds(Some(200), Some("80%")),
            numbers(900, 869, quota),
            "not due",
            "FullButNotFragmented",
            "raise the quota, delete keys, or compact",
        ),
        (
            "R32 full, no arm",
            Rule::default(),
            numbers(990, 989, quota),
            "not due",
            "FullButNotFragmented",
            "raise",
        ),
        (
            "fragmented, no arm",
            Rule::default(),
            numbers(990, 850, quota),
            "not due",
            "BelowThresholds",
            "140 MiB",
        ),
        (
            "R31 full by free space",
            Rule::default(),
            numbers(990, 700, quota),
            "due",
            "FreeSpace",
            "290 MiB",
        ),
        (
            "no quota",
            thresholds(None, Some("80%")),
            numbers(900, 1, Quota::None),
            "not due",
            "BelowThresholds",
            "no quota",
        ),
        (
            "quota unknown",
            thresholds(Some(200), Some("80%")),
            numbers(900, 800, Quota::Unknown),
            "unknown",
            "dbQuota",
            "quotaBytes",
        ),
        (
            "quota zero",
            thresholds(Some(200), Some("80%")),
            numbers(900, 800, known(0)),
            "unknown",
            "dbQuota",
            "quotaBytes",
        ),
        (
            "other arm decides",
            thresholds(Some(50), Some("80%")),
            numbers(900, 800, Quota::Unknown),
            "due",
            "FreeSpace",
            "",
        ),
        (
            "nothing to gain",
            thresholds(Some(200), Some("80%")),
            numbers(900, 899, Quota::Unknown),
            "not due",
            "BelowThresholds",
            "",
        ),
        (
            "R34",
            Rule::default(),
            numbers(600, 590, known(8000 * MIB)),
            "not due",
            "BelowThresholds",
            "without compaction",
        ),
        (
            "in use above size",
            Rule::default(),
            numbers(600, 700, known(8000 * MIB)),
            "not due",
            "BelowThresholds",
            "0 B",
        ),
    ] {
        let verdict = rule.judge(&numbers);
        let (seen_kind, seen_decided, message) = short(&verdict);
        assert_eq!(
            (seen_kind, seen_decided),
            (kind, decided),
            "{case}: {message}"
        );
        assert!(message.contains(part), "{case}: {message}");
    }
}

#[test]
fn t93_unknown_sizes_are_unknown_and_never_zero() {
    let mut member = numbers(900, 100, known(1000 * MIB));
    member.db_size_in_use = None;
    let quota_arm = thresholds(Some(200), Some("80%"));
    let rules = [
        Rule::default(),
        quota_arm,
        expression("dbSizeFree > 1"),
        expression("dbSizeInUse < 1"),
    ];
    for rule in &rules {
        let verdict = rule.judge(&member);
        assert_eq!(short(&verdict).0, "unknown", "{verdict:?}");
        assert!(short(&verdict).1.starts_with("dbSize"), "{verdict:?}");
    }
    let nothing = Numbers {
        db_size: None,
        db_size_in_use: None,
        quota: Quota::Unknown,
    };
    for rule in &rules {
        assert_eq!(short(&rule.judge(&nothing)).0, "unknown");
    }
    for member in [member, nothing] {
        let verdict = Rule::All.judge(&member);
        assert!(
            matches!(
                verdict,
                Verdict::Due {
                    reclaimable: None,
                    ..
                }
            ),
            "{verdict:?}"
        );
    }
}

#[test]
fn expressions_see_the_members_numbers() {
    let rule = expression("dbQuotaUsage > 0.8 || dbSize - dbSizeInUse > 200*1024*1024");
    for (member, kind, decided, part) in [
        (
            numbers(900, 890, known(1000 * MIB)),
            "due",
            "Expression",
            "holds (900 MiB with 890 MiB in use, quota 1000 MiB)",
        ),
        (
            numbers(500, 299, known(1000 * MIB)),
            "due",
            "Expression",
            "holds",
        ),
        (
            numbers(500, 300, known(1000 * MIB)),
            "not due",
            "Expression",
            "does not hold",
        ),
        (
            numbers(500, 300, Quota::Unknown),
            "unknown",
            "dbQuotaUsage",
            "hangs on dbQuotaUsage",
        ),
        (
            numbers(500, 299, Quota::Unknown),
            "due",
            "Expression",
            "quota unknown",
        ),
        (
            numbers(900, 890, Quota::None),
            "not due",
            "Expression",
            "no quota",
        ),
        (
            numbers(
                2000,
                1990,
                Quota::Known {
                    bytes: 2048 * MIB,
                    source: QuotaSource::Default,
                },
            ),
            "due",
            "Expression",
            "etcd's default of 2 GiB",
        ),
    ] {
        let verdict = rule.judge(&member);
        let (seen_kind, seen_decided, message) = short(&verdict);
        assert_eq!((seen_kind, seen_decided), (kind, decided), "{message}");
        assert!(message.contains(part), "{message}");
    }
    let without_value = expression("0/0 < dbSize").judge(&numbers(1, 1, Quota::None));
    assert_eq!(short(&without_value).1, "expression");
}

#[test]
fn the_whole_sentence_reads_well() {
    let verdict = thresholds(Some(200), Some("80%")).judge(&numbers(1900, 1890, known(2048 * MIB)));
    assert_eq!(
        short(&verdict).2,
        "the file is full but not fragmented (1.9 GiB with 1.8 GiB in use, quota 2 GiB): defragmenting would give back \
         only 10 MiB, less than minReclaim 32 MiB; raise the quota, delete keys, or compact old revisions"
    );
}

fn any_numbers() -> impl Strategy<Value = Numbers> {
    let size = || prop::option::weighted(0.8, 0_u64..4000);
    let quota = prop_oneof![
        Just(Quota::None),
        Just(Quota::Unknown),
        (0_u64..4000).prop_map(|mib| known(mib * MIB))
    ];
    (size(), size(), quota).prop_map(|(size, in_use, quota)| Numbers {
        db_size: size.map(|mib| mib * MIB),
        db_size_in_use: in_use.map(|mib| mib * MIB),
        quota,
    })
}

fn any_thresholds() -> impl Strategy<Value = (Option<u64>, Option<u8>)> {
    (prop::option::of(1_u64..1000), prop::option::of(1_u8..=99))
}

proptest! {
    #[test]
    fn a_member_with_nothing_to_give_back_is_never_due(
        (free, percent) in any_thresholds(), size in 0_u64..4000, quota in 1_u64..4000,
    ) {
        let percent = percent.map(|n| format!("{n}%"));
        let verdict = thresholds(free, percent.as_deref()).judge(&numbers(size, size, known(quota * MIB)));
        prop_assert!(matches!(verdict, Verdict::NotDue { .. }), "{:?}", verdict);
    }

    #[test]
    fn thresholds_equal_the_expression_that_says_the_same((free, percent) in any_thresholds(), member in any_numbers()) {
        let text = percent.map(|n| format!("{n}%"));
        let mut arms = Vec::new();
        if let Some(free) = free {
            arms.push(format!("dbSizeFree > {}", free * MIB));
        }
        if let Some(percent) = percent {
            arms.push(format!("(dbSize * 100 > {percent} * dbQuota && dbSizeFree >= {DEFAULT_MIN_RECLAIM})"));
        }
        if arms.is_empty() {
            arms.push("dbSizeFree < 0".to_owned());
        }
        let by_thresholds = thresholds(free, text.as_deref()).judge(&member);
        let by_expression = expression(&arms.join(" || ")).judge(&member);
        // Without sizes the thresholds do not even try.
        if member.reclaimable().is_some() {
            prop_assert_eq!(short(&by_thresholds).0, short(&by_expression).0, "{:?} {:?}", by_thresholds, by_expression);
        }
    }

    #[test]
    fn knowing_more_never_turns_a_decision_around((free, percent) in any_thresholds(), member in any_numbers(), quota in 1_u64..4000) {
        let percent = percent.map(|n| format!("{n}%"));
        let rule = thresholds(free, percent.as_deref());
        let blind = Numbers { quota: Quota::Unknown, ..member };
        let seeing = Numbers { quota: known(quota * MIB), ..member };
        let (before, after) = (rule.judge(&blind), rule.judge(&seeing));
        if !matches!(before, Verdict::Unknown { .. }) {
            prop_assert_eq!(short(&before).0, short(&after).0);
        }
    }
}
