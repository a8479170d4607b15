//! Runs a case on both servers and compares what they answered.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use kube::Client;
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    case::{Case, Step},
    compare::{self, Difference},
    normal::Normal,
    server::{Ask, Pair, ask},
};

/// How long the values that a step waits for may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came of a case.
#[derive(Debug)]
pub struct Outcome {
    /// How many requests were compared.
    pub requests: usize,
    /// All that differs.
    pub differences: Vec<Difference>,
}

/// Runs a case.
pub async fn run(pair: &Pair, case: &Case) -> Outcome {
    let id = format!("r{:08x}", rand::random::<u32>());
    let steps = complete(case);
    let (real, sandbox) = tokio::join!(answers(&pair.real, &steps, &id), answers(&pair.sandbox, &steps, &id));
    give_back(pair, &id).await;
    let (real, sandbox) = (Normal::of(&real), Normal::of(&sandbox));
    let mut differences = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let found = compare::trees(&real[index], &sandbox[index]);
        differences.extend(found.into_iter().map(|found| Difference {
            step: index,
            ask: step.ask.clone(),
            ..found
        }));
    }
    Outcome {
        requests: steps.len(),
        differences,
    }
}

/// Addresses of Services are few.
async fn give_back(pair: &Pair, id: &str) {
    let step = Step {
        ask: "DELETE ~/services".to_owned(),
        ..Step::default()
    };
    let all = fill(&step, id, &BTreeMap::new());
    tokio::join!(ask(&pair.real, &all), ask(&pair.sandbox, &all));
}

/// The steps of a case, with the namespace that it needs, and at the end a look at all that was made.
fn complete(case: &Case) -> Vec<Step> {
    let made = |ask: &str, object: Value| Step {
        ask: ask.to_owned(),
        with: Some(object),
        ..Step::default()
    };
    let mut steps = vec![
        made(
            "POST /api/v1/namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "$ns"}}),
        ),
        // A controller's work; without it no pod is admitted.
        made(
            "POST ~/serviceaccounts",
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        ),
    ];
    steps.extend(case.steps.iter().cloned());
    let collections: BTreeSet<_> = case.steps.iter().filter_map(collection).collect();
    steps.extend(collections.into_iter().map(|path| Step {
        ask: format!("GET {path}"),
        ..Step::default()
    }));
    steps
}

/// The collection of the case's own namespace that a step may have written to.
fn collection(step: &Step) -> Option<String> {
    let (method, path) = step.ask.split_once(' ')?;
    if method == "GET" {
        return None;
    }
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    // Definitions may be gone by the end.
    let (version, rest) = path.split_once('~').filter(|(version, _)| !version.contains('$'))?;
    let resource = rest.split('/').nth(1)?;
    Some(format!("{version}~/{resource}"))
}

async fn answers(client: &Client, steps: &[Step], id: &str) -> Vec<Answer> {
    let mut labelled = BTreeMap::new();
    let mut answers = Vec::new();
    for step in steps {
        let wanted = fill(step, id, &labelled);
        let begun = Instant::now();
        let answer = loop {
            let answer = ask(client, &wanted).await;
            let there = |(pointer, value): (&String, &Value)| answer.body.pointer(pointer) == Some(value);
            if step.until.iter().all(there) || begun.elapsed() > PATIENCE {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        if let Some(label) = &step.label {
            labelled.insert(label.clone(), answer.body.clone());
        }
        answers.push(answer);
    }
    answers
}

fn fill(step: &Step, id: &str, labelled: &BTreeMap<String, Value>) -> Ask {
    let text = |text: &str| match filled(text, id, labelled) {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let asked = text(&step.ask);
    let (method, path) = asked.split_once(' ').expect("a step has a method and a path");
    let body = match (&step.with, &step.text) {
        (Some(object), _) => tree(object, id, labelled).to_string(),
        (None, Some(body)) => text(body),
        (None, None) => String::new(),
    };
    Ask {
        method: method.to_owned(),
        path: full_path(path, id),
        content_type: step.content_type().map(str::to_owned),
        accept: step.accept().to_owned(),
        body: body.into_bytes(),
    }
}

fn full_path(path: &str, id: &str) -> String {
    match path.split_once('~') {
        None => path.to_owned(),
        Some(("", rest)) => format!("/api/v1/namespaces/{id}{rest}"),
        Some((version, rest)) => format!("/apis/{version}/namespaces/{id}{rest}"),
    }
}

fn tree(value: &Value, id: &str, labelled: &BTreeMap<String, Value>) -> Value {
    match value {
        Value::String(text) => filled(text, id, labelled),
        Value::Array(items) => items.iter().map(|item| tree(item, id, labelled)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| {
                let name = filled(name, id, labelled);
                (name.as_str().unwrap_or_default().to_owned(), tree(value, id, labelled))
            })
            .collect(),
        other => other.clone(),
    }
}

/// A text with what it refers to; the value itself where it is nothing but a reference.
fn filled(text: &str, id: &str, labelled: &BTreeMap<String, Value>) -> Value {
    let text = text.replace("$ns", id).replace("$id", id);
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("${") {
        let (reference, after) = after.split_once('}').expect("a reference ends");
        let (label, pointer) = reference.split_once(':').expect("a reference has a label");
        let answer = labelled
            .get(label)
            .unwrap_or_else(|| panic!("no step is labelled {label}"));
        let value = answer.pointer(pointer).cloned().unwrap_or(Value::Null);
        if before.is_empty() && out.is_empty() && after.is_empty() {
            return value;
        }
        out.push_str(before);
        match value {
            Value::String(value) => out.push_str(&value),
            other => out.push_str(&other.to_string()),
        }
        rest = after;
    }
    out.push_str(rest);
    Value::String(out)
}
