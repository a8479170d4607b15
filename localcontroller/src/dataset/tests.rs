//! Datasets from the store to the outbox: what is counted, when, and what is said of it.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use skerry_edge::{
    Credential, Epoch, Object, Position, ReportPayload,
    node::{Batch, Change, Outgoing},
};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};

use super::*;
use crate::{state::Effects, store::OutboxLimits};

const OFTEN: Duration = Duration::from_millis(20);
const NEVER: Duration = Duration::from_secs(3600);

/// A node with a host's root of its own, and what looks after its Datasets.
struct Node {
    root: TempDir,
    store: Store,
    metrics: Arc<Metrics>,
    effects: JoinHandle<()>,
    version: u64,
    poll: Duration,
}

fn key() -> ObjectKey {
    ObjectKey::new("dataset", "default", "d")
}

fn dataset(url: &str, format: &str, credential: Option<&str>) -> Change {
    let mut spec = json!({"url": url, "format": format, "nodeName": "edge"});
    if let Some(name) = credential {
        spec["credentialName"] = json!(name);
    }
    Change::Put(Object {
        key: key(),
        uid: "u".to_owned(),
        generation: 1,
        body: json!({"kind": "Dataset", "spec": spec}).into(),
    })
}

fn credential(endpoint: &str) -> Change {
    let fields = [
        ("s3-endpoint", endpoint),
        ("s3-usehttps", "0"),
        ("ACCESS_KEY_ID", "id"),
        ("SECRET_ACCESS_KEY", "word"),
    ];
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Change::PutCredential(Credential {
        owner: key(),
        uid: "u".to_owned(),
        secret: "s3".to_owned(),
        fields: BTreeMap::from(fields.map(own)),
    })
}

fn samples(count: u64) -> ReportPayload {
    ReportPayload::DatasetSamples { count }
}

impl Node {
    /// A node that polls so often.
    async fn start(poll: Duration) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let root = TempDir::new().unwrap();
        let (store, metrics, effects) = Self::run(&root, poll).await;
        Self {
            root,
            store,
            metrics,
            effects,
            version: 0,
            poll,
        }
    }

    async fn run(root: &TempDir, poll: Duration) -> (Store, Arc<Metrics>, JoinHandle<()>) {
        let path = root.path().join("store.db");
        let store = Store::open(&path, OutboxLimits::default()).await.unwrap();
        let metrics = Arc::<Metrics>::default();
        let datasets = Datasets::new(
            store.clone(),
            root.path().to_owned(),
            Timing {
                poll,
                settle: Duration::from_millis(10),
            },
            metrics.clone(),
        );
        let effects = tokio::spawn(Effects::new(store.clone(), datasets).run());
        (store, metrics, effects)
    }

    async fn restart(&mut self) {
        self.effects.abort();
        self.store.close().await;
        (self.store, self.metrics, self.effects) = Self::run(&self.root, self.poll).await;
    }

    async fn apply(&mut self, changes: Vec<Change>) {
        self.version += 1;
        let epoch = Epoch {
            lease: "l".to_owned(),
            transitions: 0,
            made: None,
        };
        let position = Position {
            version: self.version,
            ..Position::start("c", epoch)
        };
        self.store.apply(Batch { changes, position }).await.unwrap();
    }

    /// Puts a file there at once, as of an hour ago.
    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        let file = fs::File::options().append(true).open(&new).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600))
            .unwrap();
        fs::rename(new, path).unwrap();
    }

    /// The next report, taken out of the outbox.
    async fn told(&self) -> ReportPayload {
        let told = async {
            loop {
                if let Some(Outgoing::Report(report)) = self.store.fetch(0, 1).await.unwrap().pop() {
                    assert_eq!((report.key, report.uid.as_str()), (key(), "u"));
                    self.store.settle(report.seq).await.unwrap().await.unwrap();
                    return report.payload;
                }
                self.store.outbox_grew().notified().await;
            }
        };
        timeout(Duration::from_secs(20), told).await.expect("nothing is told")
    }

    /// Returns once the Dataset has been looked at twice more: the second look has begun after this was asked for.
    async fn looked_at(&self) {
        let before = self.metrics.datasets_looked_at.get();
        let looked = async {
            while self.metrics.datasets_looked_at.get() < before + 2 {
                tokio::time::sleep(OFTEN).await;
            }
        };
        timeout(Duration::from_secs(20), looked).await.expect("nobody looks");
    }

    async fn told_why(&self) -> String {
        match self.told().await {
            ReportPayload::DatasetFailed { reason } => reason,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_file_is_counted_when_its_directory_says_that_it_has_changed() {
    let mut node = Node::start(NEVER).await;
    node.write("data/a.csv", "h\n1\n2\n");
    node.apply(vec![dataset("/data/a.csv", "csv", None)]).await;
    assert_eq!(node.told().await, samples(2));
    let mut file = fs::File::options()
        .append(true)
        .open(node.root.path().join("data/a.csv"))
        .unwrap();
    file.write_all(b"3\n").unwrap();
    assert_eq!(node.told().await, samples(3));
    // Another file under the same name, as editors make it.
    node.write("data/a.csv", "h\n");
    assert_eq!(node.told().await, samples(0));
}

#[tokio::test]
async fn a_file_that_has_just_changed_is_read_once_more() {
    let mut node = Node::start(OFTEN).await;
    let path = node.root.path().join("a");
    fs::write(&path, "1\n2\n").unwrap();
    node.apply(vec![dataset("/a", "txt", None)]).await;
    assert_eq!(node.told().await, samples(2));
    // As long as before and, for all that can be told, from the same moment.
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all(b"1234").unwrap();
    file.set_modified(before).unwrap();
    assert_eq!(node.told().await, samples(1));
}

#[tokio::test]
async fn what_is_wrong_is_told_and_heals() {
    let mut node = Node::start(OFTEN).await;
    node.apply(vec![dataset("/data/a.csv", "csv", None)]).await;
    let why = node.told_why().await;
    assert!(why.contains("/data/a.csv") && why.contains("No such file"), "{why}");
    // Nothing watches a directory that is not there: this is found by polling.
    node.write("data/a.csv", "h\n\"open\n");
    let why = node.told_why().await;
    assert!(why.contains("/data/a.csv") && why.contains("record 2"), "{why}");
    node.write("data/a.csv", "h\n1\n");
    assert_eq!(node.told().await, samples(1));
    fs::remove_file(node.root.path().join("data/a.csv")).unwrap();
    fs::create_dir(node.root.path().join("data/a.csv")).unwrap();
    let why = node.told_why().await;
    assert!(why.contains("/data/a.csv") && why.contains("not a file"), "{why}");
}

#[tokio::test]
async fn another_url_or_format_is_picked_up() {
    let mut node = Node::start(OFTEN).await;
    node.write("a", "h\n1\n");
    node.write("b", "h\n1\n2\n3\n4\n");
    node.apply(vec![dataset("/a", "csv", None)]).await;
    assert_eq!(node.told().await, samples(1));
    node.apply(vec![dataset("/b", "csv", None)]).await;
    assert_eq!(node.told().await, samples(4));
    node.apply(vec![dataset("/b", "txt", None)]).await;
    assert_eq!(node.told().await, samples(5));
    node.apply(vec![dataset("/b", "parquet", None)]).await;
    let why = node.told_why().await;
    assert!(why.contains("parquet") && why.contains("csv or txt"), "{why}");
    node.apply(vec![dataset("b", "csv", None)]).await;
    let why = node.told_why().await;
    assert!(why.contains("spec.url") && why.contains("absolute path"), "{why}");
}

#[tokio::test]
async fn after_a_restart_an_unchanged_file_is_not_read_and_told_once() {
    let mut node = Node::start(OFTEN).await;
    node.write("a", "1\n");
    node.apply(vec![dataset("/a", "txt", None)]).await;
    assert_eq!(node.told().await, samples(1));
    assert_eq!(node.metrics.datasets_counted.get(), 1);
    node.restart().await;
    // The store may be one of before, and the manager have been told something else since.
    assert_eq!(node.told().await, samples(1));
    node.looked_at().await;
    assert_eq!(node.metrics.datasets_counted.get(), 0);
    assert_eq!(node.store.fetch(0, 1).await.unwrap(), []);
    // The cloud has no part in this.
    node.write("a", "1\n2\n");
    assert_eq!(node.told().await, samples(2));
}

#[tokio::test]
async fn a_dataset_that_is_gone_is_let_be() {
    let mut node = Node::start(OFTEN).await;
    node.write("a", "1\n");
    node.apply(vec![dataset("/a", "txt", None)]).await;
    assert_eq!(node.told().await, samples(1));
    node.apply(vec![Change::Delete(key().into())]).await;
    assert_eq!(node.store.finding(&key()).await.unwrap(), None);
    // Another one that is looked at shows that there was time.
    let other = ObjectKey::new("dataset", "default", "other");
    let Change::Put(put) = dataset("/a", "txt", None) else {
        panic!()
    };
    node.apply(vec![Change::Put(Object {
        key: other.clone(),
        ..put
    })])
    .await;
    node.write("a", "1\n2\n");
    node.looked_at().await;
    let told = node.store.fetch(0, 10).await.unwrap();
    assert!(!told.is_empty());
    for outgoing in told {
        assert!(matches!(outgoing, Outgoing::Report(report) if report.key == other));
    }
}

/// A server of one file.
#[derive(Default)]
struct Served {
    /// What it holds, with its `ETag`.
    file: Mutex<Option<(String, String)>>,
    bodies: AtomicU64,
    requests: Mutex<Vec<(String, HeaderMap)>>,
}

impl Served {
    async fn start() -> (Arc<Self>, String) {
        let served = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = Router::new().fallback(serve).with_state(served.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (served, address)
    }

    fn hold(&self, etag: &str, text: &str) {
        *self.file.lock().unwrap() = Some((etag.to_owned(), text.to_owned()));
    }
}

async fn serve(State(served): State<Arc<Served>>, request: Request) -> Response {
    let (path, headers) = (request.uri().path().to_owned(), request.headers().clone());
    let condition = headers
        .get(header::IF_NONE_MATCH)
        .map(|etag| etag.to_str().unwrap().to_owned());
    served.requests.lock().unwrap().push((path, headers));
    match served.file.lock().unwrap().clone() {
        None => StatusCode::NOT_FOUND.into_response(),
        Some((etag, _)) if condition.as_ref() == Some(&etag) => StatusCode::NOT_MODIFIED.into_response(),
        Some((etag, text)) => {
            served.bodies.fetch_add(1, Ordering::SeqCst);
            let headers = [
                (header::ETAG, etag),
                (header::LAST_MODIFIED, "Wed, 01 Jan 2025 00:00:00 GMT".to_owned()),
            ];
            (headers, text).into_response()
        }
    }
}

#[tokio::test]
async fn an_http_resource_is_fetched_only_when_it_has_changed() {
    let mut node = Node::start(OFTEN).await;
    let (served, address) = Served::start().await;
    node.apply(vec![dataset(
        &format!("http://user:word@{address}/a.csv?sig=word"),
        "csv",
        None,
    )])
    .await;
    let why = node.told_why().await;
    assert!(
        why.contains(&format!("http://{address}/a.csv: ")) && why.contains("404"),
        "{why}"
    );
    assert!(!why.contains("word"), "{why}");
    served.hold("\"1\"", "h\n1\n2\n");
    assert_eq!(node.told().await, samples(2));
    node.looked_at().await;
    served.hold("\"2\"", "h\n");
    assert_eq!(node.told().await, samples(0));
    node.looked_at().await;
    assert_eq!(served.bodies.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_s3_object_is_fetched_with_the_credential_that_came_for_it() {
    let mut node = Node::start(OFTEN).await;
    let (served, address) = Served::start().await;
    served.hold("\"1\"", "h\n1\n2\n3\n");
    node.apply(vec![dataset("s3://bucket/dir/a.csv", "csv", None)]).await;
    let why = node.told_why().await;
    assert!(
        why.contains("s3://bucket/dir/a.csv") && why.contains("credentialName"),
        "{why}"
    );
    node.apply(vec![dataset("s3://bucket/dir/a.csv", "csv", Some("s3"))])
        .await;
    let why = node.told_why().await;
    assert!(why.contains("s3") && why.contains("has not come"), "{why}");
    node.apply(vec![credential(&address)]).await;
    assert_eq!(node.told().await, samples(3));
    node.looked_at().await;
    served.hold("\"2\"", "h\n");
    assert_eq!(node.told().await, samples(0));
    node.looked_at().await;
    assert_eq!(served.bodies.load(Ordering::SeqCst), 2);
    *served.file.lock().unwrap() = None;
    let why = node.told_why().await;
    assert_eq!(why, "s3://bucket/dir/a.csv: there is no such object");
    let requests = served.requests.lock().unwrap();
    for (path, headers) in requests.iter() {
        assert_eq!(path, "/bucket/dir/a.csv");
        let authorization = headers[header::AUTHORIZATION].to_str().unwrap();
        assert!(
            authorization.starts_with("AWS4-HMAC-SHA256 Credential=id/"),
            "{authorization}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_told_once_however_often_it_is_tried() {
    let mut node = Node::start(OFTEN).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let put = dataset("s3://bucket/a.csv", "csv", Some("s3"));
    node.apply(vec![put, credential(&address)]).await;
    let why = node.told_why().await;
    assert!(why.contains("s3://bucket/a.csv: ") && why.contains("refused"), "{why}");
    node.looked_at().await;
    assert_eq!(node.store.fetch(0, 1).await.unwrap(), []);
}
