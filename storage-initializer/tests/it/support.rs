//! A server of objects that does as it is told: web server and S3 (list and get) at once.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use skerry_storage_initializer::{FetchError, Patience, Settings, fetch_all};
use tokio::net::TcpListener;

/// What the next answers do instead of what they should.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Breaks off after so many bytes.
    Break(usize),
    /// The same, and from then on there is other content.
    BreakAndChange(usize, Vec<u8>),
    /// Only this status.
    Status(u16),
}

/// A request for an object, as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) range: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) token: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Path (`bucket/key` for S3) to content.
    pub(crate) content: BTreeMap<String, Vec<u8>>,
    pub(crate) faults: VecDeque<Fault>,
    /// Whether answers tell the version of the content.
    pub(crate) versions: bool,
    pub(crate) seen: Vec<Seen>,
}

/// A running server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    objects: Arc<Mutex<Objects>>,
}

impl Server {
    pub(crate) async fn start(content: &[(&str, &[u8])]) -> Self {
        // What `main` does; a second time is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let content = content
            .iter()
            .map(|(path, content)| ((*path).to_owned(), content.to_vec()))
            .collect();
        let objects = Arc::new(Mutex::new(Objects {
            content,
            versions: true,
            ..Objects::default()
        }));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&objects));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, objects }
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// The ranges that requests for objects asked for, in order.
    pub(crate) fn ranges(&self) -> Vec<Option<String>> {
        self.objects().seen.iter().map(|seen| seen.range.clone()).collect()
    }

    /// Fetches with this server as the S3 endpoint.
    pub(crate) async fn fetch(&self, args: &[&str]) -> Result<(), FetchError> {
        let endpoint = format!("http://{}", self.address);
        self.fetch_with(
            args,
            &[
                ("S3_ENDPOINT_URL", &endpoint),
                ("ACCESS_KEY_ID", "id"),
                ("SECRET_ACCESS_KEY", "key"),
            ],
        )
        .await
    }

    pub(crate) async fn fetch_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Result<(), FetchError> {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let pause = Duration::from_millis(1);
        let patience = Patience {
            attempts: 3,
            first_pause: pause,
            longest_pause: pause,
        };
        let mut settings = Settings::new(variables);
        settings.patience = patience;
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        fetch_all(&args, settings).await
    }
}

type Shared = State<Arc<Mutex<Objects>>>;
type Parameters = Query<BTreeMap<String, String>>;

async fn answer(
    State(objects): Shared,
    method: Method,
    uri: Uri,
    query: Parameters,
    headers: HeaderMap,
) -> Response<Body> {
    let mut objects = objects.lock().unwrap();
    let path = uri.path().trim_start_matches('/').to_owned();
    if query.contains_key("list-type") {
        return list(&objects, &path, &query);
    }
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    if method == Method::GET {
        let (range, authorization, token) = (text(RANGE.as_str()), text(AUTHORIZATION.as_str()), text("x-token"));
        objects.seen.push(Seen {
            path: path.clone(),
            range,
            authorization,
            token,
        });
    }
    let fault = if method == Method::GET {
        objects.faults.pop_front()
    } else {
        None
    };
    let Some(content) = objects.content.get(&path).cloned() else {
        return status(404);
    };
    if let Some(Fault::Status(code)) = fault {
        return status(code);
    }
    let version = objects
        .versions
        .then(|| format!("\"{}-{}\"", content.len(), content.first().unwrap_or(&0)));
    if text(IF_MATCH.as_str()).is_some_and(|wanted| Some(wanted) != version) {
        return status(412);
    }
    let same = text(IF_RANGE.as_str()).is_none_or(|wanted| Some(wanted) == version);
    let start = text(RANGE.as_str()).filter(|_| same).map(|range| {
        let start = range.strip_prefix("bytes=").unwrap().trim_end_matches('-');
        start.parse::<usize>().unwrap()
    });
    let body = content[start.unwrap_or(0)..].to_vec();
    let mut response = Response::builder()
        .status(if start.is_some() { 206 } else { 200 })
        .header(CONTENT_LENGTH, body.len());
    if let Some(start) = start {
        response = response.header(
            CONTENT_RANGE,
            format!("bytes {start}-{}/{}", content.len() - 1, content.len()),
        );
    }
    if let Some(version) = version {
        response = response
            .header(ETAG, version)
            .header(LAST_MODIFIED, "Wed, 21 Oct 2015 07:28:00 GMT");
    }
    if let Some(Fault::BreakAndChange(_, changed)) = &fault {
        objects.content.insert(path, changed.clone());
    }
    let chunks: Vec<Result<Bytes, std::io::Error>> = match fault {
        Some(Fault::Break(after) | Fault::BreakAndChange(after, _)) => {
            vec![Ok(body[..after].to_vec().into()), Err(std::io::Error::other("broken"))]
        }
        _ => vec![Ok(body.into())],
    };
    // A connection breaks only when what comes before has been sent; there is no event to wait for.
    let chunks = stream::iter(chunks).then(|chunk| async move {
        if chunk.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        chunk
    });
    response.body(Body::from_stream(chunks)).unwrap()
}

fn status(code: u16) -> Response<Body> {
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .body(Body::empty())
        .unwrap()
}

/// `ListObjectsV2`, two keys a page.
fn list(objects: &Objects, bucket: &str, query: &BTreeMap<String, String>) -> Response<Body> {
    let get = |name: &str| query.get(name).cloned().unwrap_or_default();
    let after = get("start-after").max(get("continuation-token"));
    let bucket = format!("{}/", bucket.trim_end_matches('/'));
    let matching: Vec<(&str, usize)> = objects
        .content
        .iter()
        .filter_map(|(path, content)| Some((path.strip_prefix(&bucket)?, content.len())))
        .filter(|(key, _)| key.starts_with(&get("prefix")) && *key > after.as_str())
        .collect();
    let page = &matching[..matching.len().min(2)];
    let contents = page.iter().map(|(key, size)| {
        format!(
            "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"e\"</ETag>\
             <LastModified>2015-10-21T07:28:00.000Z</LastModified></Contents>"
        )
    });
    let contents = contents.collect::<Vec<_>>().concat();
    let more = matching.len() > page.len();
    let next = page.last().filter(|_| more);
    let next = next
        .map(|(key, _)| format!("<NextContinuationToken>{key}</NextContinuationToken>"))
        .unwrap_or_default();
    let body = format!("<ListBucketResult>{contents}<IsTruncated>{more}</IsTruncated>{next}</ListBucketResult>");
    Response::builder().body(Body::from(body)).unwrap()
}

/// All files below a folder, by their paths in it. Links are followed.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let inner = self::files(&path).into_iter();
            files.extend(inner.map(|(inside, content)| (format!("{name}/{inside}"), content)));
        } else {
            files.insert(name, std::fs::read(path).unwrap());
        }
    }
    files
}

/// What [`files`] should be.
pub(crate) fn expected(files: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    files
        .iter()
        .map(|(path, content)| ((*path).to_owned(), content.to_vec()))
        .collect()
}
