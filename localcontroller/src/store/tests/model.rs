//! The store against a model of it: any order of calls, with restarts in between.

use std::{collections::BTreeMap, fs, os::unix::fs::FileExt as _};

use proptest::prelude::*;
use skerry_edge::{
    Object,
    node::{Change, Outgoing},
};

use super::{super::StoreError, batch, event, home, key, metrics, object, open, round};

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<(u8, Option<i64>)>),
    Push(u8, u8),
    Settle(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0..6_u8, prop::option::of(0..100_i64));
    prop_oneof![
        4 => prop::collection::vec(change, 0..8).prop_map(Step::Apply),
        4 => (0..6_u8, 0..3_u8).prop_map(|(name, what)| Step::Push(name, what)),
        2 => (0..4_usize).prop_map(Step::Settle),
        1 => Just(Step::Reopen),
    ]
}

/// What the store should hold, kept in the plainest way. The outbox is only counted: its order has tests of its own.
#[derive(Default)]
struct Model {
    objects: BTreeMap<String, Object>,
    version: u64,
    pushed: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn whatever_is_done_to_the_file_the_store_opens(at in 100..40_000_u64, length in 1..9_000_u64, cut in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check_damage(at, length, cut))?;
    }

    #[test]
    fn of_a_journal_that_is_torn_or_spoiled_what_came_before_is_there(at in 0.0..1.0_f64, cut in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check_torn_journal(at, cut))?;
    }

    #[test]
    fn the_store_is_as_its_model(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check_steps(steps))?;
    }
}

async fn check_steps(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let home = home();
    let (mut store, mut model) = (open(&home).await, Model::default());
    for step in steps {
        match step {
            Step::Apply(changes) => {
                model.version += 1;
                let mut batched = Vec::new();
                for (name, generation) in changes {
                    let name = name.to_string();
                    batched.push(if let Some(generation) = generation {
                        let put = object(&name, "u", generation);
                        model.objects.insert(name, put.clone());
                        Change::Put(put)
                    } else {
                        model.objects.remove(&name);
                        Change::Delete(key(&name).into())
                    });
                }
                let holds = store.apply(batch(model.version, batched)).await.unwrap();
                prop_assert_eq!(holds, model.objects.len() as u64);
            }
            Step::Push(name, what) => {
                model.pushed += 1;
                let name = name.to_string();
                let report = match what {
                    0 => metrics(&name, "w", model.pushed),
                    1 => round(&name, model.pushed),
                    _ => event(&name, "x"),
                };
                store.push(report).await.unwrap();
            }
            Step::Settle(index) => {
                let outgoing = store.fetch(0, 10).await.unwrap();
                if let Some(outgoing) = outgoing.get(index) {
                    store.settle(outgoing.seq()).await.unwrap().await.unwrap();
                }
            }
            Step::Reopen => {
                let before = (store.fetch(0, 1_000).await.unwrap(), store.outbox().await.unwrap());
                store.close().await;
                store = open(&home).await;
                let after = (store.fetch(0, 1_000).await.unwrap(), store.outbox().await.unwrap());
                prop_assert_eq!(before.0, after.0);
                prop_assert_eq!((before.1.count, before.1.bytes), (after.1.count, after.1.bytes));
            }
        }
        let mut rows = store.rows().await.unwrap();
        rows.sort();
        let expected: Vec<_> = model
            .objects
            .values()
            .filter_map(|object| Change::Put(object.clone()).row())
            .collect();
        prop_assert_eq!(rows, expected);
        let version = store.position().await.unwrap().map_or(0, |position| position.version);
        prop_assert_eq!(version, model.version);
        let seqs: Vec<_> = store.fetch(0, 1_000).await.unwrap().iter().map(Outgoing::seq).collect();
        prop_assert!(seqs.is_sorted_by(|a, b| a < b));
    }
    Ok(())
}

/// Spoils a part of the file or cuts it off, but for the header: one of another program or of a newer release is not
/// damaged.
async fn check_damage(at: u64, length: u64, cut: bool) -> Result<(), TestCaseError> {
    let home = home();
    let store = open(&home).await;
    for version in 1..40 {
        let name = version.to_string();
        let put = Change::Put(object(&name, "u", 1));
        store.apply(batch(version, vec![put])).await.unwrap();
        store.push(event(&name, &"x".repeat(300))).await.unwrap();
    }
    store.close().await;
    let file = fs::File::options().write(true).open(&home.path).unwrap();
    if cut {
        file.set_len(at).unwrap();
    } else {
        file.write_all_at(&vec![0xa5; usize::try_from(length).unwrap()], at)
            .unwrap();
    }
    let mut store = open(&home).await;
    // Each is done, or says that the store is damaged; then the next start begins with an empty one.
    for _ in 0..2 {
        let went = async {
            for row in store.rows().await? {
                store.object(&row.key.object).await?;
            }
            store.fetch(0, 100).await?;
            let put = Change::Put(object("new", "u", 1));
            store.apply(batch(99, vec![put])).await?;
            store.push(event("new", "x")).await
        };
        match went.await {
            Ok(()) => return Ok(()),
            Err(StoreError::Damaged(_)) => {
                store.failure().await;
                store = open(&home).await;
                store
                    .apply(batch(1, vec![Change::Put(object("new", "u", 1))]))
                    .await
                    .unwrap();
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
    Err(TestCaseError::fail("damaged twice"))
}

/// Copies the files of a store that is open, as a power failure leaves them, and cuts the journal off or spoils it from there on.
async fn check_torn_journal(part: f64, cut: bool) -> Result<(), TestCaseError> {
    const WRITTEN: u64 = 30;
    let (lives, died) = (home(), home());
    let store = open(&lives).await;
    for version in 1..=WRITTEN {
        let put = Change::Put(object(&version.to_string(), "u", 1));
        store.apply(batch(version, vec![put])).await.unwrap();
        store.push(event(&version.to_string(), "x")).await.unwrap();
    }
    let journal = |path: &std::path::Path| std::path::PathBuf::from(format!("{}-wal", path.display()));
    let mut torn = fs::read(journal(&lives.path)).unwrap();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    let at = (part * torn.len() as f64) as usize;
    if cut {
        torn.truncate(at);
    } else {
        torn.iter_mut().skip(at).take(300).for_each(|byte| *byte ^= 0xa5);
    }
    fs::create_dir_all(died.path.parent().unwrap()).unwrap();
    fs::copy(&lives.path, &died.path).unwrap();
    fs::write(journal(&died.path), torn).unwrap();

    let store = open(&died).await;
    prop_assert!(store.moved_aside().is_empty(), "what is there can be trusted");
    let version = store.position().await.unwrap().map_or(0, |position| position.version);
    let mut names: Vec<u64> = store
        .rows()
        .await
        .unwrap()
        .iter()
        .map(|row| row.key.object.name.parse().unwrap())
        .collect();
    names.sort_unstable();
    prop_assert_eq!(names, (1..=version).collect::<Vec<_>>());
    let owed = store.fetch(0, 1_000).await.unwrap();
    let seqs: Vec<_> = owed.iter().map(Outgoing::seq).collect();
    prop_assert_eq!(&seqs, &(1..=seqs.len() as u64).collect::<Vec<_>>());
    prop_assert!([version, version.saturating_sub(1)].contains(&(seqs.len() as u64)));
    prop_assert!(version < WRITTEN || part > 0.9, "nothing was torn");
    #[expect(clippy::cast_precision_loss)]
    let (there, least) = (version as f64, (part - 0.15) * WRITTEN as f64);
    prop_assert!(there >= least, "more is gone than what was torn");
    Ok(())
}
