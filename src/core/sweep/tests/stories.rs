//! Whole runs as golden text.

use super::*;
use crate::core::rule::{Percent, Rule};

macro_rules! golden {
    ($name:ident, $script:expr) => {
        #[test]
        fn $name() {
            insta::assert_snapshot!($script.text());
        }
    };
}

golden!(
    r03_r05_followers_by_gain_then_the_leader_after_a_transfer,
    {
        let mut script = Script::new(fragmented(), RunSpec::default());
        script.run(all_done);
        script
    }
);

golden!(
    r31_r32_a_full_unfragmented_cluster_is_left_alone_with_advice,
    {
        let mut sim = Sim::new(&[(7900, 7890), (7900, 7890), (7900, 7890)]);
        sim.alarms.insert(Alarm {
            member: MemberId(0xa1),
            kind: AlarmKind::NoSpace,
        });
        sim.quota = Quota::Known {
            bytes: 7900 * MIB,
            source: QuotaSource::Status,
        };
        let rule = Rule::Threshold {
            free_space_above: Some(200 * MIB),
            quota_usage_above: Some(Percent::parse("80%").unwrap()),
            min_reclaim: 32 * MIB,
        };
        let mut script = Script::new(
            sim,
            RunSpec {
                rule,
                ..RunSpec::default()
            },
        );
        script.run(all_done);
        script
    }
);

golden!(
    r38_r41_nospace_admits_and_is_disarmed_by_id_after_the_sweep,
    {
        let mut sim = fragmented();
        sim.quota = Quota::Known {
            bytes: 1100 * MIB,
            source: QuotaSource::Status,
        };
        for member in [0xa0, 0xa2, 0xdead] {
            // 0xdead left the cluster and its alarm still blocks writes.
            sim.alarms.insert(Alarm {
                member: MemberId(member),
                kind: AlarmKind::NoSpace,
            });
        }
        let mut script = Script::new(sim, RunSpec::default());
        script.run(all_done);
        script
    }
);

golden!(r18_r76_a_lost_answer_is_observed_until_it_is_known, {
    let mut script = Script::new(fragmented(), RunSpec::default());
    script.run(|member| {
        if member == MemberId(0xa2) {
            Fate::Lost(40)
        } else {
            Fate::Done(2)
        }
    });
    script
});

golden!(r18_without_metrics_the_size_tells, {
    let mut sim = fragmented();
    sim.metrics = false;
    let mut script = Script::new(sim, RunSpec::default());
    script.run(|member| {
        if member == MemberId(0xa2) {
            Fate::Lost(40)
        } else {
            Fate::Done(2)
        }
    });
    script
});

golden!(a_call_that_never_arrived_gets_one_more_turn, {
    let mut script = Script::new(fragmented(), RunSpec::default());
    let mut first = true;
    script.run(|_| {
        if std::mem::take(&mut first) {
            Fate::LostUnsent
        } else {
            Fate::Done(2)
        }
    });
    script
});

golden!(r52_a_second_failed_member_stops_the_sweep, {
    let mut script = Script::new(fragmented(), RunSpec::default());
    script.run(|_| Fate::Refused);
    script
});

golden!(r39_one_member_failed_and_sizes_decide_about_the_alarm, {
    let mut sim = fragmented();
    sim.quota = Quota::Known {
        bytes: 1250 * MIB,
        source: QuotaSource::Status,
    };
    sim.alarms.insert(Alarm {
        member: MemberId(0xa2),
        kind: AlarmKind::NoSpace,
    });
    let mut script = Script::new(sim, RunSpec::default());
    // a1 fails, but its 1100 MiB are below the quota.
    script.run(|member| {
        if member == MemberId(0xa1) {
            Fate::Refused
        } else {
            Fate::Done(2)
        }
    });
    script
});

golden!(
    r39_a_sweep_that_leaves_a_full_member_fails_with_nospace_armed,
    {
        let mut sim = Sim::new(&[(1200, 100), (1100, 1090), (1300, 100)]);
        sim.quota = Quota::Known {
            bytes: 1050 * MIB,
            source: QuotaSource::Status,
        };
        sim.alarms.insert(Alarm {
            member: MemberId(0xa1),
            kind: AlarmKind::NoSpace,
        });
        let mut script = Script::new(sim, RunSpec::default());
        script.run(all_done);
        script
    }
);

golden!(r59_a_member_killed_in_its_turn_stops_the_sweep, {
    let mut script = Script::new(fragmented(), RunSpec::default());
    script.run(|_| Fate::Killed);
    script
});

golden!(r61_a_member_down_defers_until_the_deadline, {
    let mut sim = fragmented();
    sim.member(1).up = false;
    let mut script = Script::new(sim, RunSpec::default());
    script.run(all_done);
    script
});

golden!(r11b_a_single_member_is_refused, {
    let mut script = Script::new(Sim::new(&[(1200, 100)]), RunSpec::default());
    script.run(all_done);
    script
});

golden!(a_single_member_is_swept_when_that_is_accepted, {
    let spec = RunSpec {
        allow_single_member: true,
        ..RunSpec::default()
    };
    let mut script = Script::new(Sim::new(&[(1200, 100)]), spec);
    script.run(all_done);
    script
});

golden!(r29_a_compaction_is_waited_for_before_the_first_member, {
    let spec = RunSpec {
        keep_revisions: Some(100),
        ..RunSpec::default()
    };
    let mut script = Script::new(fragmented(), spec);
    script.run(all_done);
    script
});

golden!(a_dry_run_touches_nothing, {
    let spec = RunSpec {
        dry_run: true,
        ..RunSpec::default()
    };
    let mut sim = fragmented();
    sim.alarms.insert(Alarm {
        member: MemberId(0xa2),
        kind: AlarmKind::NoSpace,
    });
    let mut script = Script::new(sim, spec);
    script.run(all_done);
    assert!(script.sim.members.iter().all(|m| m.begun == 0));
    script
});

golden!(r62_a_learner_is_skipped_and_counts_for_nothing, {
    let mut sim = fragmented();
    let mut learner = sim.members[1].clone();
    learner.id = MemberId(0xb0);
    learner.name = "learner".to_owned();
    learner.learner = true;
    learner.up = false;
    sim.members.push(learner);
    let mut script = Script::new(sim, RunSpec::default());
    script.run(all_done);
    script
});

golden!(r82_a_member_that_left_is_skipped_not_failed, {
    let mut script = Script::new(
        Sim::new(&[(1200, 100), (1100, 100), (1300, 100), (1000, 100)]),
        RunSpec::default(),
    );
    while script.sim.member(2).begun == 0 {
        script.step(Fate::Done(2));
    }
    script.sim.members.remove(1);
    script.run(all_done);
    script
});

golden!(
    a_leader_that_cannot_be_moved_is_not_defragmented_in_place,
    {
        let mut script = Script::new(fragmented(), RunSpec::default());
        while script.sim.members.iter().filter(|m| m.begun > 0).count() < 2 {
            script.step(Fate::Done(2));
        }
        while script.step(Fate::Refused) {}
        script
    }
);

golden!(leader_skip_leaves_the_leader_alone, {
    let spec = RunSpec {
        leader: LeaderMode::Skip,
        ..RunSpec::default()
    };
    let mut script = Script::new(fragmented(), spec);
    script.run(all_done);
    script
});

golden!(leader_in_place_asks_for_no_transfer, {
    let spec = RunSpec {
        leader: LeaderMode::InPlace,
        ..RunSpec::default()
    };
    let mut script = Script::new(fragmented(), spec);
    script.run(all_done);
    script
});
