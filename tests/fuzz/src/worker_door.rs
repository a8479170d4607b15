//! All that can come to the port of the workers, from this node or from elsewhere.

use std::{
    collections::BTreeSet,
    fs,
    future::Future,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

use serde_json::json;
use skerry_edge::{
    Epoch, Object, ObjectKey, Position, Upstream,
    node::{Batch, Change, Outgoing, State},
};
use skerry_localcontroller::{
    metrics::Metrics,
    store::{OutboxLimits, Store},
    worker_api::{Api, Origin, Port, router},
};
use tokio::{
    io::duplex,
    sync::watch,
    task::{spawn_blocking, yield_now},
    time::advance,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Came,
    node::memory,
    visits::{ANSWER, BUFFER, each_once, on_paused_time, visit_for},
};

/// What is asked for in a few bytes may be answered with all metrics.
const ANSWER_PER_BYTE: usize = 512;

/// Between two parts of an input.
const PART: &[u8] = b"\n--\n";

/// What comes; before it, where there is more, who comes and the host's routes: an address, and what the kernel has in `route`,
/// `ipv6_route` and `fib_trie`.
struct Input<'a> {
    from: IpAddr,
    routes: [&'a [u8]; 3],
    came: &'a [u8],
}

impl<'a> Input<'a> {
    fn read(data: &'a [u8]) -> Self {
        let mut parts = Vec::new();
        let mut rest = data;
        while parts.len() < 4
            && let Some(at) = rest.windows(PART.len()).position(|bytes| bytes == PART)
        {
            let (part, after) = rest.split_at(at);
            parts.push(part);
            rest = after.get(PART.len()..).unwrap_or_default();
        }
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        match parts[..] {
            [from, v4, v6, own] => Self {
                from: String::from_utf8_lossy(from).trim().parse().unwrap_or(loopback),
                routes: [v4, v6, own],
                came: rest,
            },
            _ => Self {
                from: loopback,
                routes: [b""; 3],
                came: data,
            },
        }
    }
}

/// Whatever comes is answered, its connection ends by itself, and what was taken of it can be sent.
pub(crate) fn worker_door(data: &[u8]) -> Came {
    let Input { from, routes, came } = Input::read(data);
    on_paused_time(async {
        let folder = memory();
        for (file, text) in ["route", "ipv6_route", "fib_trie"].into_iter().zip(routes) {
            fs::write(folder.path().join(file), text).unwrap();
        }
        // A bridge of no links but those of pods.
        fs::create_dir_all(folder.path().join("cni0/brif")).unwrap();
        let store = store(folder.path()).await;
        let (metrics, (_state, link)) = (Arc::<Metrics>::default(), watch::channel(State::Connecting));
        let api = Api {
            store: store.clone(),
            link,
            metrics: metrics.clone(),
        };
        let origin = Origin::of(folder.path(), folder.path(), Vec::new());
        let port = Port::new(router(api), origin, metrics.clone());
        let (here, there) = duplex(BUFFER);
        let at = Ipv4Addr::new(192, 0, 2, 1);
        let connection = port.take(
            there,
            (from, 40_000).into(),
            (at, 9100).into(),
            CancellationToken::new(),
        );
        let visiting = visit_for(here, came, ANSWER + ANSWER_PER_BYTE * came.len());
        let (answer, ()) = while_the_store_works(&store, async { tokio::join!(visiting, connection.unwrap()) }).await;
        let taken = can_be_sent(&store).await;
        let words = format!("{} {}", statuses(&answer), outcomes(&metrics));
        if taken {
            Came::taken(words)
        } else {
            Came::refused(words)
        }
    })
}

/// The store of a node that has one worker.
async fn store(folder: &Path) -> Store {
    let path = folder.join("store.db");
    let store = Store::open(&path, OutboxLimits::default()).await.unwrap();
    let job = Object {
        key: ObjectKey::new("federatedlearningjob", "default", "o"),
        uid: "uid".to_owned(),
        generation: 1,
        body: json!({"workers": ["w"]}).into(),
    };
    let epoch = Epoch {
        lease: "lease".to_owned(),
        transitions: 0,
        made: None,
    };
    let batch = Batch {
        changes: vec![Change::Put(job)],
        position: Position::start("cluster", epoch),
    };
    store.apply(batch).await.unwrap();
    store
}

/// Has time pass only where the store has nothing to do: paused time waits for no thread of its own accord, and whoever waits
/// for the store would always be late.
async fn while_the_store_works<T>(store: &Store, run: impl Future<Output = T>) -> T {
    // While this one blocks, tokio lets no time pass.
    let (release, released) = mpsc::channel::<()>();
    spawn_blocking(move || released.recv());
    let passing = async {
        loop {
            store.holds().await.unwrap();
            for _ in 0..8 {
                yield_now().await;
            }
            advance(Duration::from_secs(1)).await;
        }
    };
    let ran = tokio::select! {
        ran = run => ran,
        () = passing => unreachable!(),
    };
    drop(release);
    ran
}

/// Whether there is anything to be sent. What there is the manager can read.
async fn can_be_sent(store: &Store) -> bool {
    let kept = store.fetch_homeless_too(0, 1_000_000).await.unwrap();
    for outgoing in &kept {
        let Outgoing::Report(report) = outgoing else {
            panic!("something was given up: {outgoing:?}")
        };
        let frame = Upstream::Report {
            settled: u64::MAX,
            after: None,
            report: report.clone(),
        };
        let text = frame.encode().unwrap();
        assert!(Upstream::decode(&text).is_ok(), "taken, and cannot be sent: {text}");
    }
    !kept.is_empty()
}

/// In which ways requests were answered.
fn statuses(answer: &[u8]) -> String {
    let answer = String::from_utf8_lossy(answer);
    let words = answer.split("HTTP/1.1 ").skip(1);
    each_once(
        words
            .map(|word| word.lines().next().unwrap_or_default().to_owned())
            .collect(),
    )
}

/// What operators see of workers' messages.
fn outcomes(metrics: &Metrics) -> String {
    let text = metrics.text().unwrap();
    let counted = text.lines().filter(|line| line.contains("worker_messages_total{"));
    let words: BTreeSet<_> = counted.filter_map(|line| line.split('"').nth(1)).collect();
    words.into_iter().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_may_say_who_comes_and_by_which_routes() {
        let input = Input::read(b"10.244.1.9\n--\na\n--\nb\n--\nc\n--\nGET / HTTP/1.1\n--\n");
        assert_eq!(input.from, IpAddr::from([10, 244, 1, 9]));
        assert_eq!(
            (input.routes, input.came),
            ([&b"a"[..], b"b", b"c"], &b"GET / HTTP/1.1\n--\n"[..])
        );
        assert_eq!(Input::read(b"a\n--\nb").came, b"a\n--\nb");
    }
}
