//! Reports that come together, and who is told what became of them.

use super::*;

fn key() -> ObjectKey {
    ObjectKey {
        namespace: "default".into(),
        name: "p".into(),
    }
}

fn item(generation: i64) -> Item {
    Item::Fleet(FleetReport {
        uid: "u".to_owned(),
        generation,
        unmatched: None,
    })
}

fn generations(batch: &Batch) -> Vec<i64> {
    let each = batch.items.iter().map(|item| match item {
        Item::Fleet(report) => report.generation,
        Item::On(_, report) => report.generation,
    });
    each.collect()
}

#[test]
fn whoever_has_the_turn_stores_what_all_have_brought() {
    let batches = Batches::default();
    let mut told: Vec<_> = (0..3).map(|i| batches.add(&key(), item(i))).collect();
    let batch = batches.take(&key(), &mut told[1]).unwrap();
    assert_eq!(generations(&batch), [0, 1, 2]);
    let mut later = batches.add(&key(), item(3));
    let error = HostError {
        reason: Reason::NotStored,
        message: "full".to_owned(),
    };
    batch.done(&Err(error.clone()));
    for place in [0, 2] {
        let outcome = batches.take(&key(), &mut told[place]).unwrap_err();
        assert_eq!(outcome, Err(error.clone()), "not the next batch");
    }
    let batch = batches.take(&key(), &mut later).unwrap();
    assert_eq!(generations(&batch), [3]);
}

#[test]
fn what_is_given_up_is_not_taken_for_stored() {
    let batches = Batches::default();
    let mut one = batches.add(&key(), item(1));
    let mut other = batches.add(&key(), item(2));
    drop(batches.take(&key(), &mut one).unwrap());
    let outcome = batches.take(&key(), &mut other).unwrap_err();
    assert_eq!(outcome.unwrap_err().reason, Reason::NotStored);
}

#[test]
fn what_is_given_up_is_not_taken_for_stored_with_what_came_later() {
    let batches = Batches::default();
    let mut one = batches.add(&key(), item(1));
    let mut other = batches.add(&key(), item(2));
    drop(batches.take(&key(), &mut one).unwrap());
    let mut later = batches.add(&key(), item(3));
    let outcome = batches.take(&key(), &mut other).unwrap_err();
    assert_eq!(outcome.unwrap_err().reason, Reason::NotStored);
    let batch = batches.take(&key(), &mut later).unwrap();
    assert_eq!(generations(&batch), [3], "it is left to whoever brought it");
}
