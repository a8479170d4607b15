//! One file from elsewhere, whole or not at all.
//!
//! Bytes go to a hidden file beside the target, which becomes the target by one rename once its length is right. What
//! was received survives a broken connection, and also an end of this process: the hidden file's name tells the
//! version that it is part of, so that the next start goes on where this one stopped. A source that has no versions is
//! begun anew each time.

use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

use crate::error::FetchError;

/// How often to try, and how long to wait in between.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Attempts in a row that bring nothing before it gives up.
    pub attempts: u32,
    /// The pause after the first of them; each next one is twice as long.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 6,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(15),
        }
    }
}

impl Patience {
    /// The pause after this many failures.
    fn pause(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_pause.saturating_mul(doubled).min(self.longest_pause)
    }

    /// Calls `attempt` until it succeeds, fails for good, or has failed too often.
    pub(crate) async fn retry<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        url: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, FetchError> {
        let mut failures = 0;
        loop {
            let failure = match attempt().await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            failures += 1;
            self.wait_or_give_up(url, failure, failures).await?;
        }
    }

    async fn wait_or_give_up(&self, url: &str, failure: Failure, failures: u32) -> Result<(), FetchError> {
        let url = url.to_owned();
        match failure {
            Failure::Missing => Err(FetchError::Missing { url }),
            Failure::Final(problem) => Err(FetchError::Remote { url, problem }),
            Failure::Local(path, source) => Err(FetchError::Write { url, path, source }),
            Failure::Again(problem) if failures >= self.attempts => Err(FetchError::Remote {
                url,
                problem: format!("{problem} ({failures} attempts)"),
            }),
            Failure::Again(problem) => {
                let pause = self.pause(failures);
                tracing::warn!("{url}: {problem}; trying again in {pause:?}");
                tokio::time::sleep(pause).await;
                Ok(())
            }
        }
    }
}

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may go better next time.
    Again(String),
    /// It will not.
    Final(String),
    /// There is nothing there.
    Missing,
    /// This machine cannot keep it.
    Local(PathBuf, std::io::Error),
}

/// From where, and in which version, to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resume {
    pub(crate) version: String,
    pub(crate) offset: u64,
}

/// What a remote answers before the content.
#[derive(Debug)]
pub(crate) struct Head {
    /// What changes when the content does, if the remote tells.
    pub(crate) version: Option<String>,
    /// The length of the whole, if the remote tells.
    pub(crate) total: Option<u64>,
    /// The offset at which the body begins.
    pub(crate) start: u64,
}

/// The content that a remote answers.
pub(crate) type Body = BoxStream<'static, Result<bytes::Bytes, String>>;

/// Where a file comes from.
pub(crate) trait Remote: Sync {
    /// Asks for the file, or for its rest. Where the version is another by now it answers with the whole of that.
    fn open(&self, resume: Option<&Resume>) -> impl Future<Output = Result<(Head, Body), Failure>> + Send;
}

/// Puts a remote file at `target`.
pub(crate) async fn download(
    remote: &impl Remote,
    url: &str,
    target: &Path,
    patience: &Patience,
) -> Result<(), FetchError> {
    let mut part = None;
    let (mut failures, mut received) = (0, 0);
    while let Err(failure) = attempt(remote, url, target, &mut part).await {
        let now = part.as_ref().map_or(0, |part| part.length);
        // An attempt that brought something further starts the count anew.
        failures = if now > received { 1 } else { failures + 1 };
        received = received.max(now);
        patience.wait_or_give_up(url, failure, failures).await?;
    }
    let Some(part) = part else {
        return Err(FetchError::Missing { url: url.to_owned() });
    };
    part.file.sync_all().await.map_err(FetchError::write(url, &part.path))?;
    fs::rename(&part.path, target)
        .await
        .map_err(FetchError::write(url, target))?;
    remove_parts(target).await;
    tracing::info!("{url}: {} bytes in {}", part.length, target.display());
    Ok(())
}

/// What has been received of a file.
struct Part {
    path: PathBuf,
    file: File,
    length: u64,
    version: Option<String>,
    total: Option<u64>,
}

async fn attempt(remote: &impl Remote, url: &str, target: &Path, part: &mut Option<Part>) -> Result<(), Failure> {
    loop {
        if part.as_ref().is_some_and(|part| part.total == Some(part.length)) {
            return Ok(());
        }
        let resume = part.as_ref().and_then(Part::resume);
        let (head, body) = remote.open(resume.as_ref()).await?;
        match (part.as_mut(), &resume) {
            (Some(part), Some(resume)) if head.start == resume.offset => return part.receive(body).await,
            (_, resume) if head.start == 0 => {
                // A first answer may be of the version that an earlier run has the beginning of.
                let fresh = part.insert(Part::open(url, target, &head, resume.is_none()).await?);
                if fresh.resume().is_none() {
                    return fresh.receive(body).await;
                }
            }
            _ => {
                return Err(Failure::Again(
                    "the answer begins at another place than was asked for".into(),
                ));
            }
        }
    }
}

impl Part {
    /// The part of the version that was answered: what an earlier run left of it, if that may be used.
    async fn open(url: &str, target: &Path, head: &Head, use_earlier: bool) -> Result<Self, Failure> {
        let Head {
            version,
            total,
            start: _,
        } = head;
        let path = part_path(url, target, version.as_deref(), *total);
        let failed = |error| Failure::Local(path.clone(), error);
        let keep = use_earlier && version.is_some();
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .write(true)
            .truncate(!keep)
            .open(&path)
            .await
            .map_err(failed)?;
        let mut length = file.metadata().await.map_err(failed)?.len();
        if total.is_some_and(|total| length > total) {
            file.set_len(0).await.map_err(failed)?;
            length = 0;
        }
        let mut part = Self {
            path: path.clone(),
            file,
            length,
            version: version.clone(),
            total: *total,
        };
        part.seek_to_end().await?;
        Ok(part)
    }

    fn resume(&self) -> Option<Resume> {
        let version = self.version.clone().filter(|_| self.length > 0)?;
        Some(Resume {
            version,
            offset: self.length,
        })
    }

    async fn seek_to_end(&mut self) -> Result<(), Failure> {
        use tokio::io::AsyncSeekExt as _;
        let sought = self.file.seek(std::io::SeekFrom::Start(self.length)).await;
        sought
            .map(drop)
            .map_err(|error| Failure::Local(self.path.clone(), error))
    }

    /// Appends what comes; right only if in the end the length is.
    async fn receive(&mut self, mut body: Body) -> Result<(), Failure> {
        let received = loop {
            match body.next().await {
                None => break Ok(()),
                Some(Err(problem)) => break Err(Failure::Again(problem)),
                Some(Ok(bytes)) => {
                    let written = self.file.write_all(&bytes).await;
                    written.map_err(|error| Failure::Local(self.path.clone(), error))?;
                    self.length += bytes.len() as u64;
                }
            }
        };
        self.file
            .flush()
            .await
            .map_err(|error| Failure::Local(self.path.clone(), error))?;
        received?;
        match self.total {
            Some(total) if total != self.length => {
                Err(Failure::Again(format!("ended after {} of {total} bytes", self.length)))
            }
            _ => Ok(()),
        }
    }
}

fn hidden_prefix(target: &Path) -> String {
    format!(".{}.", target.file_name().unwrap_or_default().to_string_lossy())
}

fn part_path(url: &str, target: &Path, version: Option<&str>, total: Option<u64>) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (url, version, total).hash(&mut hasher);
    target.with_file_name(format!("{}{:016x}.part", hidden_prefix(target), hasher.finish()))
}

/// Removes what earlier runs left of other versions.
async fn remove_parts(target: &Path) {
    let prefix = hidden_prefix(target);
    let Some(folder) = target.parent() else { return };
    let Ok(mut entries) = fs::read_dir(folder).await else {
        return;
    };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_part = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".part"));
        if is_part.is_some_and(|hash| hash.len() == 16) {
            // What cannot be removed does no harm.
            let _ = fs::remove_file(entry.path()).await;
        }
    }
}
