//! Opens a Dataset's file wherever it is, as a stream of bytes, or says that it has not changed since it was last read.

use std::{
    error::Error,
    fs::Metadata,
    io,
    iter::successors,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use axum::body::Bytes;
use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use reqwest::{StatusCode, Url, header};
use skerry_edge::Credential;
use tokio::{fs::File, io::AsyncReadExt as _};

use super::{
    error::DatasetError,
    hostpath,
    location::Location,
    s3,
    turns::{Turn, Turns},
};

/// Bytes that are read of a file at once.
const CHUNK: usize = 64 * 1024;

/// How long after a change a file may look as before that change, on any file system.
const FRESH: Duration = Duration::from_secs(2);

/// How long a server may take to be reached, and then to send anything at all.
pub(super) const CONNECT: Duration = Duration::from_secs(10);
pub(super) const READ: Duration = Duration::from_secs(30);

/// A file that was opened.
pub(super) enum Opened {
    /// It is what it was when it had this fingerprint.
    Unchanged,
    /// It has to be read.
    Changed(Content),
}

/// What a file holds.
pub(super) struct Content {
    /// What it looks like from outside, where that tells whether it has changed.
    pub(super) fingerprint: Option<String>,
    pub(super) bytes: BoxStream<'static, Result<Bytes, DatasetError>>,
}

/// Opens files.
#[derive(Debug)]
pub struct Sources {
    rootfs: PathBuf,
    files: Turns,
    servers: Turns,
    http: OnceLock<reqwest::Client>,
}

impl Sources {
    /// Files of the host are looked up under `rootfs`.
    pub fn new(rootfs: PathBuf) -> Self {
        Self {
            rootfs,
            files: Turns::default(),
            servers: Turns::default(),
            http: OnceLock::new(),
        }
    }

    /// A turn to open this.
    pub(super) async fn turn(&self, url: &str) -> Turn<'_> {
        let turns = if url.starts_with('/') {
            &self.files
        } else {
            &self.servers
        };
        turns.take().await
    }

    /// The directory that a file of the host is in, as it is seen from here.
    pub(super) async fn directory(&self, path: &Path) -> Option<PathBuf> {
        let resolved = self.resolve(path).await.ok()?;
        resolved.parent().map(Path::to_owned)
    }

    async fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let (rootfs, path) = (self.rootfs.clone(), path.to_owned());
        tokio::task::spawn_blocking(move || hostpath::resolve(&rootfs, &path))
            .await
            .map_err(io::Error::other)?
    }

    /// Opens the file; `known` is the fingerprint that it had when it was last read to its end.
    pub(super) async fn open(
        &self,
        location: &Location,
        credential: Option<&Credential>,
        known: Option<&str>,
    ) -> Result<Opened, DatasetError> {
        match location {
            Location::Host(path) => self.open_file(path, known).await,
            Location::S3 { bucket, key } => s3::open(bucket, key, location, credential, known).await,
            Location::Http(url) => self.open_http(url, location, known).await,
        }
    }

    async fn open_file(&self, path: &Path, known: Option<&str>) -> Result<Opened, DatasetError> {
        let shown = path.display().to_string();
        let failed = |error| DatasetError::File {
            path: shown.clone(),
            error,
        };
        let resolved = self.resolve(path).await.map_err(failed)?;
        let mut file = File::open(resolved).await.map_err(failed)?;
        let metadata = file.metadata().await.map_err(failed)?;
        if !metadata.is_file() {
            return Err(DatasetError::NotAFile { path: shown });
        }
        let fingerprint = file_fingerprint(&metadata);
        if known.is_some() && known == fingerprint.as_deref() {
            return Ok(Opened::Unchanged);
        }
        file.set_max_buf_size(CHUNK);
        let bytes = stream::try_unfold(file, move |mut file| {
            let path = shown.clone();
            async move {
                let mut chunk = Vec::with_capacity(CHUNK);
                let read = file.read_buf(&mut chunk).await;
                let read = read.map_err(|error| DatasetError::File { path, error })?;
                Ok((read > 0).then(|| (Bytes::from(chunk), file)))
            }
        });
        Ok(Opened::Changed(Content {
            fingerprint,
            bytes: bytes.boxed(),
        }))
    }

    async fn open_http(&self, url: &Url, location: &Location, known: Option<&str>) -> Result<Opened, DatasetError> {
        let failed = |problem: &str| fetch(location, problem);
        let mut request = self.http(location)?.get(url.clone());
        match known.and_then(|known| known.split_once(':')) {
            Some(("etag", etag)) => request = request.header(header::IF_NONE_MATCH, etag),
            Some(("modified", date)) => request = request.header(header::IF_MODIFIED_SINCE, date),
            _ => {}
        }
        let response = request.send().await.map_err(|error| failed(&http_problem(error)))?;
        match response.status() {
            StatusCode::NOT_MODIFIED => return Ok(Opened::Unchanged),
            status if !status.is_success() => return Err(failed(&format!("the server answers {status}"))),
            _ => {}
        }
        let named = |name, prefix: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(format!("{prefix}:{value}"))
        };
        let fingerprint = named(header::ETAG, "etag").or_else(|| named(header::LAST_MODIFIED, "modified"));
        if known.is_some() && known == fingerprint.as_deref() {
            return Ok(Opened::Unchanged);
        }
        let location = location.clone();
        let bytes = response
            .bytes_stream()
            .map_err(move |error| fetch(&location, &http_problem(error)));
        Ok(Opened::Changed(Content {
            fingerprint,
            bytes: bytes.boxed(),
        }))
    }

    /// The client is made when it is first needed: it loads the system's certificates.
    fn http(&self, location: &Location) -> Result<&reqwest::Client, DatasetError> {
        if let Some(client) = self.http.get() {
            return Ok(client);
        }
        let client = reqwest::Client::builder()
            .user_agent(concat!("skerry-localcontroller/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .read_timeout(READ)
            .build()
            .map_err(|error| fetch(location, &http_problem(error)))?;
        Ok(self.http.get_or_init(|| client))
    }
}

/// What a file looks like from outside; none while it may still change without looking otherwise, since the time of a
/// change is only known to a few milliseconds.
fn file_fingerprint(metadata: &Metadata) -> Option<String> {
    let modified = metadata.modified().ok()?;
    let age = SystemTime::now()
        .duration_since(modified)
        .unwrap_or_else(|error| error.duration());
    (age > FRESH).then(|| {
        format!(
            "file:{}:{}:{}.{}",
            metadata.ino(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec()
        )
    })
}

pub(super) fn fetch(location: &Location, problem: &str) -> DatasetError {
    DatasetError::Fetch {
        url: location.to_string(),
        problem: problem.chars().take(512).collect(),
    }
}

/// What went wrong, with its causes, without the url: that may hold a secret, and is shown without one.
fn http_problem(error: reqwest::Error) -> String {
    causes(&error.without_url())
}

fn causes(error: &(dyn Error + 'static)) -> String {
    let causes: Vec<_> = chain(error).map(ToString::to_string).collect();
    causes.join(": ")
}

/// An error, its cause, the cause of that, …
pub(super) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}
