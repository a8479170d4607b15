//! What a full outbox gives up, and of whom: examples, and a model of the rule.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use proptest::prelude::*;
use skerry_edge::node::{Change, Outgoing};

use super::{
    super::{NewReport, OutboxLimits, Store, limits::BYTES},
    batch, event, home, metrics, object, round,
};

/// How many reports there are on each resource, by its uid.
async fn reports(store: &Store) -> BTreeMap<String, usize> {
    let mut reports = BTreeMap::new();
    for outgoing in store.fetch_homeless_too(0, 10_000).await.unwrap() {
        if let Outgoing::Report(report) = outgoing {
            *reports.entry(report.uid).or_default() += 1;
        }
    }
    reports
}

#[tokio::test]
async fn a_worker_that_runs_wild_costs_no_other_resource_its_rounds() {
    let limits = OutboxLimits::default();
    // A thousandth of a node's, and messages of a thousandth of the largest.
    let bytes = OutboxLimits {
        bytes: BYTES >> 10,
        ..limits
    };
    for limits in [bytes, OutboxLimits { count: 200, ..limits }] {
        let home = home();
        let store = Store::open(&home.path, limits).await.unwrap();
        let both = ["a", "b"].map(|name| Change::Put(object(name, name, 1)));
        store.apply(batch(1, both.into())).await.unwrap();
        for number in 0..10 {
            store.push(round("a", number)).await.unwrap();
        }
        for _ in 0..600 {
            store.push(event("b", &"x".repeat(128))).await.unwrap();
        }
        let (reports, totals) = (reports(&store).await, store.outbox().await.unwrap());
        assert!(reports["a"] == 10 && reports["b"] < 600, "{reports:?}");
        assert!(
            totals.bytes <= limits.bytes && totals.count <= limits.count,
            "{totals:?}"
        );
    }
}

#[tokio::test]
async fn names_that_are_invented_take_no_place_of_what_is_known() {
    let home = home();
    let limits = OutboxLimits {
        bytes: BYTES >> 10,
        ..OutboxLimits::default()
    };
    let store = Store::open(&home.path, limits).await.unwrap();
    store
        .apply(batch(1, vec![Change::Put(object("a", "a", 1))]))
        .await
        .unwrap();
    for number in 0..100 {
        store.push(round("a", number)).await.unwrap();
    }
    for number in 0..300 {
        store.push(event(&number.to_string(), &"x".repeat(128))).await.unwrap();
    }
    let reports = reports(&store).await;
    assert!(reports["a"] == 100 && reports[""] < 300, "{reports:?}");
}

#[tokio::test]
async fn what_one_worker_says_before_its_resource_is_told_costs_no_other_that_is_as_early() {
    let home = home();
    let limits = OutboxLimits {
        homeless: 3,
        ..OutboxLimits::default()
    };
    let store = Store::open(&home.path, limits).await.unwrap();
    store.push(round("early", 1)).await.unwrap();
    for number in 0..5 {
        store.push(event("wild", &number.to_string())).await.unwrap();
    }
    let hears = batch(1, vec![Change::Put(object("early", "early", 1))]);
    store.apply(hears).await.unwrap();
    let reports = reports(&store).await;
    assert_eq!((reports["early"], reports[""]), (1, 2));
}

const LIMITS: OutboxLimits = OutboxLimits {
    bytes: 2_000,
    count: 9,
    homeless: 5,
    metrics_age: std::time::Duration::MAX,
};

#[derive(Clone, Debug)]
enum Step {
    /// On this resource: a figure, a round or an event, so long.
    Push(u8, u8, usize),
    /// The node hears of this resource.
    Hear(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..5_u8, 0..3_u8, 0..300_usize).prop_map(|(name, class, length)| Step::Push(name, class, length)),
        1 => (0..5_u8).prop_map(Step::Hear),
    ]
}

#[derive(Clone)]
struct Kept {
    name: String,
    /// Empty where the node has not heard of it.
    uid: String,
    class: u8,
    bytes: u64,
    text: String,
}

/// The outbox, kept in the plainest way.
#[derive(Default)]
struct Model {
    known: BTreeSet<String>,
    kept: Vec<Kept>,
    given_up: u64,
}

impl Model {
    fn push(&mut self, report: &NewReport, class: u8) {
        let NewReport { key, payload, .. } = report;
        let text = serde_json::to_string(payload).unwrap();
        let texts = [&key.kind, &key.namespace, &key.name, &text];
        let name = key.name.clone();
        self.kept
            .retain(|kept| class > 0 || kept.class > 0 || kept.name != name);
        self.kept.push(Kept {
            uid: self.known.get(&name).cloned().unwrap_or_default(),
            bytes: texts.iter().map(|text| text.len() as u64).sum::<u64>() + 64,
            name,
            class,
            text,
        });
        while self.kept.iter().filter(|kept| kept.uid.is_empty()).count() as u64 > LIMITS.homeless {
            self.give_up(Self::first_homeless(&self.kept, |_| 1));
        }
        loop {
            let bytes: u64 = self.kept.iter().map(|kept| kept.bytes).sum();
            if bytes > LIMITS.bytes {
                self.give_up(self.first(|kept| kept.bytes));
            } else if self.kept.len() as u64 > LIMITS.count {
                self.give_up(self.first(|_| 1));
            } else {
                break;
            }
        }
    }

    fn give_up(&mut self, at: usize) {
        self.kept.remove(at);
        self.given_up += 1;
    }

    fn first(&self, cost: fn(&Kept) -> u64) -> usize {
        if let Some(figure) = self.kept.iter().position(|kept| kept.class == 0) {
            return figure;
        }
        let mut shares = BTreeMap::<_, u64>::new();
        for kept in &self.kept {
            *shares.entry(&kept.uid).or_default() += cost(kept);
        }
        let (most, _) = shares.into_iter().max_by_key(|(_, cost)| *cost).unwrap();
        if most.is_empty() {
            return Self::first_homeless(&self.kept, cost);
        }
        let of_it = self.kept.iter().enumerate().filter(|(_, kept)| kept.uid == *most);
        of_it.min_by_key(|(_, kept)| kept.class).unwrap().0
    }

    fn first_homeless(kept: &[Kept], cost: fn(&Kept) -> u64) -> usize {
        let homeless = || kept.iter().enumerate().filter(|(_, kept)| kept.uid.is_empty());
        let share = |name: &str| -> u64 {
            let of_it = homeless().filter(|(_, kept)| kept.name == name);
            of_it.map(|(_, kept)| cost(kept)).sum()
        };
        let first = homeless().min_by_key(|(_, kept)| match kept.class {
            0 => (false, Reverse(0), 0),
            class => (true, Reverse(share(&kept.name)), class),
        });
        first.unwrap().0
    }

    fn hear(&mut self, name: &str) {
        self.known.insert(name.to_owned());
        let (mut housed, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|kept| kept.name == name && kept.uid.is_empty());
        for kept in &mut housed {
            name.clone_into(&mut kept.uid);
        }
        self.kept = [rest, housed].concat();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_given_up_is_as_in_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(steps))?;
    }
}

async fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let home = home();
    let store = Store::open(&home.path, LIMITS).await.unwrap();
    let mut model = Model::default();
    for (number, step) in (1..).zip(steps) {
        match step {
            Step::Push(name, class, length) => {
                let name = name.to_string();
                let report = match class {
                    0 => metrics(&name, "w", number),
                    1 => round(&name, number),
                    _ => event(&name, &format!("{number}{}", "x".repeat(length))),
                };
                model.push(&report, class);
                store.push(report).await.unwrap();
            }
            Step::Hear(name) => {
                let name = name.to_string();
                model.hear(&name);
                let hears = vec![Change::Put(object(&name, &name, 1))];
                store.apply(batch(number, hears)).await.unwrap();
            }
        }
        let (mut texts, mut given_up) = (Vec::new(), 0);
        for outgoing in store.fetch_homeless_too(0, 1_000).await.unwrap() {
            match outgoing {
                Outgoing::Report(report) => texts.push(serde_json::to_string(&report.payload).unwrap()),
                Outgoing::Gap { count, .. } => given_up += count,
            }
        }
        let expected: Vec<_> = model.kept.iter().map(|kept| kept.text.clone()).collect();
        prop_assert_eq!(texts, expected);
        prop_assert_eq!(given_up, model.given_up);
    }
    Ok(())
}
