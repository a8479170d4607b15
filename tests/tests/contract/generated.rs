//! Generated sequences: for each kind, objects are created, changed in every way, applied by several managers, deleted,
//! listed and watched, with contents that fit and contents that do not. What fails is shrunk to the shortest sequence that
//! still differs, and its seed is kept in `regressions/`, to be tried first from then on.

use std::{fmt::Write, path::Path};

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner},
};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::{
    allowed::Allowances,
    case::{Case, Step},
    kinds::{KINDS, Kind},
    run,
    server::Pair,
    tell,
};

/// Sequences per kind, where `PROPTEST_CASES` says nothing.
const CASES: u32 = 10;

/// Steps of a sequence.
const STEPS: std::ops::Range<usize> = 6..18;

/// How often a sequence that differs is made shorter; each time it is run again.
const SHRINKS: u32 = 60;

/// What is asked in one step. Contents are indices into those of the kind.
#[derive(Clone, Debug)]
enum Op {
    Create(&'static str, Vec<usize>),
    Update(&'static str, Vec<usize>, bool),
    Patch(&'static str, &'static str, usize),
    PatchJson(&'static str, &'static str, usize),
    Apply(&'static str, &'static str, Vec<usize>, bool),
    PatchStatus(&'static str, usize),
    ApplyStatus(&'static str, &'static str, usize, bool),
    Delete(&'static str, &'static str),
    DeleteAll,
    Get(&'static str),
    List(&'static str),
}

fn ops(kind: &'static Kind) -> impl Strategy<Value = Op> {
    let name = || select(&["a", "b"][..]);
    let manager = || select(&["one", "two"][..]);
    let part = || 0..kind.parts.len();
    let parts = move || vec(part(), 0..3);
    let status = || 0..kind.status.len().max(1);
    let patch = || {
        select(if kind.custom {
            &["merge"][..]
        } else {
            &["merge", "strategic"][..]
        })
    };
    let operation = || select(&["add", "append", "replace", "remove", "test"][..]);
    let deletion = || {
        select(
            &[
                "",
                "?propagationPolicy=Foreground",
                "?propagationPolicy=Orphan",
                "?dryRun=All",
            ][..],
        )
    };
    let query = || {
        select(
            &[
                "",
                "?labelSelector=x%3D1",
                "?limit=1",
                "?fieldSelector=metadata.name%3Da",
            ][..],
        )
    };
    prop_oneof![
        4 => (name(), parts()).prop_map(|(name, parts)| Op::Create(name, parts)),
        2 => (name(), parts(), any::<bool>()).prop_map(|(name, parts, old)| Op::Update(name, parts, old)),
        4 => (name(), patch(), part()).prop_map(|(name, how, part)| Op::Patch(name, how, part)),
        2 => (name(), operation(), part()).prop_map(|(name, how, part)| Op::PatchJson(name, how, part)),
        6 => (name(), manager(), parts(), any::<bool>())
            .prop_map(|(name, manager, parts, force)| Op::Apply(name, manager, parts, force)),
        2 => (name(), status()).prop_map(|(name, part)| Op::PatchStatus(name, part)),
        2 => (name(), manager(), status(), any::<bool>())
            .prop_map(|(name, manager, part, force)| Op::ApplyStatus(name, manager, part, force)),
        2 => (name(), deletion()).prop_map(|(name, how)| Op::Delete(name, how)),
        1 => Just(Op::DeleteAll),
        1 => name().prop_map(Op::Get),
        1 => query().prop_map(Op::List),
    ]
}

impl Op {
    fn step(&self, kind: &Kind) -> Option<Step> {
        let path = kind.path;
        let step = |ask: String, how: Option<&str>, with: Option<Value>| Step {
            ask,
            with,
            media_type: how.map(str::to_owned),
            ..Step::default()
        };
        let named = |name: &str| kind.object(name);
        let status = |part: usize| kind.status.get(part).map(|part| part());
        Some(match self {
            Self::Create(name, parts) => step(format!("POST {path}"), None, Some(kind.whole(name, parts))),
            Self::Update(name, parts, old) => {
                let mut object = kind.whole(name, parts);
                if *old {
                    object["metadata"]["resourceVersion"] = "1".into();
                }
                step(format!("PUT {path}/{name}"), None, Some(object))
            }
            Self::Patch(name, how, part) => step(
                format!("PATCH {path}/{name}"),
                Some(how),
                kind.parts.get(*part).map(|part| part()),
            ),
            Self::PatchJson(name, how, part) => step(
                format!("PATCH {path}/{name}"),
                Some("json"),
                kind.parts.get(*part).map(|part| operations(how, &part())),
            ),
            Self::Apply(name, manager, parts, force) => {
                let object = kind.with_parts(named(name), parts);
                step(
                    format!("PATCH {path}/{name}?fieldManager={manager}&force={force}"),
                    Some("apply"),
                    Some(object),
                )
            }
            Self::PatchStatus(name, part) => step(
                format!("PATCH {path}/{name}/status"),
                Some("merge"),
                Some(status(*part)?),
            ),
            Self::ApplyStatus(name, manager, part, force) => {
                let mut object = named(name);
                merge(&mut object, &status(*part)?);
                let ask = format!("PATCH {path}/{name}/status?fieldManager={manager}&force={force}");
                step(ask, Some("apply"), Some(object))
            }
            Self::Delete(name, how) => step(format!("DELETE {path}/{name}{how}"), None, None),
            Self::DeleteAll => step(format!("DELETE {path}"), None, None),
            Self::Get(name) => step(format!("GET {path}/{name}"), None, None),
            Self::List(query) => step(format!("GET {path}{query}"), None, None),
        })
    }
}

impl Kind {
    fn object(&self, name: &str) -> Value {
        json!({"apiVersion": self.version, "kind": self.name, "metadata": {"name": name}})
    }

    /// An object with all that its kind asks for, and some parts.
    fn whole(&self, name: &str, parts: &[usize]) -> Value {
        let mut object = self.object(name);
        merge(&mut object, &(self.base)());
        self.with_parts(object, parts)
    }

    fn with_parts(&self, mut object: Value, parts: &[usize]) -> Value {
        let parts = parts.iter().filter_map(|part| self.parts.get(*part));
        for part in parts {
            merge(&mut object, &part());
        }
        object
    }
}

/// Lays one document over another; unlike in a merge patch, null stays.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A JSON patch that does the same to each field that a part sets: to what is right below `metadata` or `spec`, or else to
/// what is there itself.
fn operations(how: &str, part: &Value) -> Value {
    let mut operations = Vec::new();
    for (outer, value) in fields(part) {
        let inner = fields(value).map(|(inner, value)| (format!("/{outer}/{}", inner.replace('/', "~1")), value));
        let mut inner: Vec<_> = inner.collect();
        if inner.is_empty() {
            inner.push((format!("/{outer}"), value));
        }
        operations.extend(inner.into_iter().map(|(path, value)| operation(how, &path, value)));
    }
    operations.into()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn operation(how: &str, path: &str, value: &Value) -> Value {
    match (how, value.as_array().and_then(|items| items.first())) {
        ("remove", _) => json!({"op": how, "path": path}),
        ("append", Some(item)) => json!({"op": "add", "path": format!("{path}/-"), "value": item}),
        ("append", None) => json!({"op": "add", "path": path, "value": value}),
        _ => json!({"op": how, "path": path, "value": value}),
    }
}

fn case(kind: &Kind, ops: &[Op]) -> Case {
    let mut steps = vec![Step {
        ask: format!("GET {}", kind.path),
        label: Some("start".into()),
        ..Step::default()
    }];
    steps.extend(ops.iter().filter_map(|op| op.step(kind)));
    steps.push(Step {
        ask: format!(
            "GET {}?watch=1&timeoutSeconds=1&resourceVersion=${{start:/metadata/resourceVersion}}",
            kind.path
        ),
        ..Step::default()
    });
    Case {
        name: kind.name.to_owned(),
        steps,
    }
}

/// What the sequences of a kind are called.
pub fn name(kind: &Kind) -> String {
    format!("generated-{}", kind.name)
}

/// Runs the sequences of all kinds, side by side; false if any differs.
pub fn run_all(pair: &Pair, allowances: &Allowances, filter: Option<&str>) -> bool {
    let handle = Handle::current();
    let chosen = |kind: &&Kind| filter.is_none_or(|filter| name(kind).contains(filter));
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = KINDS
            .iter()
            .filter(chosen)
            .map(|kind| {
                let handle = &handle;
                scope.spawn(move || sequences(pair, allowances, kind, handle))
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a kind is run to its end"))
            .collect()
    });
    let (sequences, requests) = outcomes.iter().fold((0, 0), |(sequences, requests), outcome| {
        (sequences + outcome.sequences, requests + outcome.requests)
    });
    let mut failed = 0;
    for outcome in &outcomes {
        tell(&name(outcome.kind), outcome.failure.is_none());
        if let Some(failure) = &outcome.failure {
            failed += 1;
            println!("{failure}");
        }
    }
    println!("generated: {sequences} sequences, {requests} requests, {failed} kinds differ");
    failed == 0
}

struct Outcome {
    kind: &'static Kind,
    sequences: usize,
    requests: usize,
    failure: Option<String>,
}

fn sequences(pair: &Pair, allowances: &Allowances, kind: &'static Kind, handle: &Handle) -> Outcome {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/contract/regressions")
        .join(format!("{}.txt", kind.name.to_lowercase()));
    let seeds: &'static str = seeds.to_string_lossy().into_owned().leak();
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let config = Config {
        max_shrink_iters: SHRINKS,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(seeds))),
        ..Config::default()
    };
    let cases = if asked { config.cases } else { CASES };
    let mut runner = TestRunner::new(Config { cases, ..config });
    let (sequences, requests) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let outcome = runner.run(&vec(ops(kind), STEPS), |ops| {
        let case = case(kind, &ops);
        let outcome = handle.block_on(run::run(pair, &case));
        sequences.set(sequences.get() + 1);
        requests.set(requests.get() + outcome.requests);
        let mut told = String::new();
        for difference in outcome
            .differences
            .iter()
            .filter(|difference| !allowances.allow(difference))
        {
            let _ = write!(told, "\n  {difference}");
        }
        if told.is_empty() {
            Ok(())
        } else {
            Err(TestCaseError::fail(told))
        }
    });
    let failure = outcome.err().map(|error| match error {
        TestError::Fail(told, ops) => {
            let steps: Vec<_> = case(kind, &ops)
                .steps
                .into_iter()
                .map(|step| (step.ask, step.with))
                .collect();
            let mut text = format!("sequence of {}:", kind.name);
            for (index, (ask, with)) in steps.iter().enumerate() {
                let body = with.as_ref().map(Value::to_string).unwrap_or_default();
                // Two steps come before those of the case.
                let _ = write!(text, "\n  {} {ask} {body}", index + 2);
            }
            format!("{text}{told}")
        }
        TestError::Abort(why) => format!("sequence of {}: {why}", kind.name),
    });
    Outcome {
        kind,
        sequences: sequences.get(),
        requests: requests.get(),
        failure,
    }
}
