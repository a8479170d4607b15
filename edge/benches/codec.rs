//! What a frame and a digest cost: they are most of what the manager and a node do for each other.

// A set-up that fails is the bench's verdict.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use serde_json::json;
use skerry_edge::{
    Downstream, Item, Object, ObjectKey, Row,
    digest::{answer, chunk_count, chunk_hashes},
};

/// What a full node holds.
const OBJECTS: usize = 10_000;

/// A Dataset as the manager places it.
fn object(number: usize) -> Object {
    Object {
        key: ObjectKey::new("dataset", "default", format!("dataset-{number}")),
        uid: format!("0b2c7f3e-9d41-4a86-8c55-{number:012}"),
        generation: 3,
        body: json!({
            "apiVersion": "sedna.io/v1alpha1",
            "kind": "Dataset",
            "metadata": {"name": format!("dataset-{number}"), "namespace": "default", "generation": 3},
            "spec": {"url": format!("/data/{number}/train.csv"), "format": "csv", "nodeName": "edge-1"},
        })
        .into(),
    }
}

fn frames(criterion: &mut Criterion) {
    let frame = Downstream::Put {
        version: 4_711,
        object: object(1),
    };
    let text = frame.encode().unwrap();
    let mut group = criterion.benchmark_group("frame of an object");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("encode", |bencher| bencher.iter(|| black_box(&frame).encode().unwrap()));
    group.bench_function("decode", |bencher| {
        bencher.iter(|| Downstream::decode(black_box(&text)).unwrap());
    });
    group.finish();
}

fn digests(criterion: &mut Criterion) {
    let rows = |edited: usize| -> Vec<Row> {
        let edit = |number| Object {
            generation: if number < edited { 4 } else { 3 },
            ..object(number)
        };
        (0..OBJECTS).map(|number| Item::Object(edit(number)).row()).collect()
    };
    let (held, edited) = (rows(0), rows(100));
    let chunks = chunk_hashes(&held, chunk_count(OBJECTS));
    let mut group = criterion.benchmark_group("digest of 10,000 objects");
    group.throughput(Throughput::Elements(OBJECTS as u64));
    group.bench_function("hashes", |bencher| {
        bencher.iter(|| chunk_hashes(black_box(&held), chunks.len()));
    });
    for (name, rows) in [("answer, all the same", &held), ("answer, 100 differ", &edited)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| answer(black_box(&chunks), black_box(rows)));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    frames(&mut criterion);
    digests(&mut criterion);
    criterion.final_summary();
}
