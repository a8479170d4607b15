//! From arguments to files: which source is fetched how, and into which place.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::fs;
use tokio::sync::OnceCell;

use crate::archive::{self, Kind};
use crate::args::{self, Index, Task};
use crate::download::{Failure, Remote, download};
use crate::error::FetchError;
use crate::http::{self, Web};
use crate::local;
use crate::s3::Bucket;
use crate::settings::Settings;
use crate::source::{Source, below, shown};

/// Files that are fetched at the same time.
const AT_ONCE: usize = 4;

/// Fetches what pairs of a source and a folder ask for, one pair after the other.
pub async fn fetch_all(args: &[String], settings: Settings) -> Result<(), FetchError> {
    let tasks = args::parse(args, &settings.mark)?;
    let fetcher = Fetcher {
        settings,
        web: OnceCell::new(),
        buckets: Mutex::default(),
    };
    for Task {
        source,
        folder,
        indirect,
    } in tasks
    {
        let folder = Path::new(&folder);
        if indirect {
            fetcher.fetch_index(&source, folder).await
        } else {
            fetcher.fetch(&source, folder).await
        }?;
    }
    Ok(())
}

struct Fetcher {
    settings: Settings,
    web: OnceCell<Web>,
    buckets: Mutex<HashMap<String, Bucket>>,
}

impl Fetcher {
    async fn fetch(&self, source: &str, folder: &Path) -> Result<(), FetchError> {
        let url = shown(source);
        fs::create_dir_all(folder)
            .await
            .map_err(FetchError::write(&url, folder))?;
        match Source::parse(source)? {
            Source::Local(path) => local::link(&url, &path, folder).await,
            Source::Http { url: address, name } => {
                let headers = self.settings.headers(address.host_str().unwrap_or_default())?;
                let failed = |problem| FetchError::Remote {
                    url: url.clone(),
                    problem,
                };
                let web = self.web.get_or_try_init(|| std::future::ready(Web::new())).await;
                let web = web.map_err(|error| failed(http::innermost(&error)))?;
                let file = web.file(address, headers).map_err(failed)?;
                self.get(&file, &url, Path::new(&name), folder).await
            }
            Source::S3 { bucket, key } => self.fetch_s3(&url, &bucket, &key, folder).await,
        }
    }

    /// Keys keep the part after the last folder of the source: `s3://b/a/m` makes `m`, or `m/…`, in the folder.
    async fn fetch_s3(&self, url: &str, bucket: &str, key: &str, folder: &Path) -> Result<(), FetchError> {
        let bucket = self.bucket(bucket)?;
        let keys = self.settings.patience.retry(url, || bucket.matching(key)).await?;
        if keys.is_empty() {
            return Err(FetchError::Missing { url: url.to_owned() });
        }
        let cut = key.trim_end_matches('/').rfind('/').map_or(0, |slash| slash + 1);
        let bucket = &bucket;
        let each = keys.into_iter().map(|key| async move {
            let name = Path::new(key.get(cut..).unwrap_or_default());
            let object = bucket.object(&key).map_err(|failure| unusable(url, &failure))?;
            self.get(&object, &format!("{url} ({key})"), name, folder).await
        });
        stream::iter(each).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// One bucket needs one client, however many objects it gives.
    fn bucket(&self, name: &str) -> Result<Bucket, FetchError> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get(name) {
            return Ok(bucket.clone());
        }
        let bucket = Bucket::open(name, &self.settings.s3)?;
        buckets.insert(name.to_owned(), bucket.clone());
        Ok(bucket)
    }

    /// Downloads to `name` in a folder, and unpacks what is an archive.
    async fn get(&self, remote: &impl Remote, url: &str, name: &Path, folder: &Path) -> Result<(), FetchError> {
        let outside = || FetchError::Source {
            url: url.to_owned(),
            problem: format!("{} is no place", name.display()),
        };
        let target = below(folder, name).ok_or_else(outside)?;
        let parent = target.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .await
            .map_err(FetchError::write(url, parent))?;
        download(remote, url, &target, &self.settings.patience).await?;
        let Some(kind) = Kind::of(&name.to_string_lossy()) else {
            return Ok(());
        };
        let (url, folder) = (url.to_owned(), folder.to_owned());
        let unpacked = tokio::task::spawn_blocking({
            let url = url.clone();
            move || archive::unpack(&url, kind, &target, &folder)
        });
        unpacked.await.unwrap_or_else(|error| {
            Err(FetchError::Archive {
                url,
                problem: error.to_string(),
            })
        })
    }

    /// Fetches an index, then what it lists. What it lists and is not there is left out, as Sedna does: samples may
    /// have been removed since the index was made. Not all of them, though.
    async fn fetch_index(&self, source: &str, folder: &Path) -> Result<(), FetchError> {
        let url = shown(source);
        let Some(Index { base, paths }) = Index::parse(&self.read_index(source, folder).await?) else {
            tracing::info!("the index {url} lists nothing");
            return Ok(());
        };
        fs::create_dir_all(folder)
            .await
            .map_err(FetchError::write(&url, folder))?;
        let listed = paths.len();
        let (index, base) = (&url, &base);
        let each = paths
            .into_iter()
            .map(|path| async move { self.fetch_listed(index, base, &path, folder).await });
        let fetched: Vec<usize> = stream::iter(each).buffer_unordered(AT_ONCE).try_collect().await?;
        match fetched.iter().sum() {
            0 => Err(FetchError::Index {
                url,
                problem: "nothing of what it lists is there".into(),
            }),
            count => {
                tracing::info!("{count} of {listed} in the index {url} fetched");
                Ok(())
            }
        }
    }

    /// One path of an index; says whether there was something.
    async fn fetch_listed(&self, index: &str, base: &str, path: &str, folder: &Path) -> Result<usize, FetchError> {
        let problem = || format!("{path:?} is no path below its base");
        let outside = || FetchError::Index {
            url: index.to_owned(),
            problem: problem(),
        };
        let place = below(folder, Path::new(path)).ok_or_else(outside)?;
        match self
            .fetch(&format!("{base}/{path}"), place.parent().unwrap_or(folder))
            .await
        {
            Err(FetchError::Missing { url }) => {
                tracing::warn!("the index {index} lists {url}, which is not there");
                Ok(0)
            }
            fetched => fetched.map(|()| 1),
        }
    }

    /// The text of an index, by way of a folder of its own: an image need not have one for temporary files.
    async fn read_index(&self, source: &str, folder: &Path) -> Result<String, FetchError> {
        let url = shown(source);
        let scratch = folder.join(".index");
        let _ = fs::remove_dir_all(&scratch).await;
        self.fetch(source, &scratch).await?;
        let text = read_only_file(&scratch).await;
        let _ = fs::remove_dir_all(&scratch).await;
        text.map_err(|error| FetchError::Index {
            url,
            problem: error.to_string(),
        })
    }
}

/// The text of the only file of a folder.
async fn read_only_file(folder: &Path) -> io::Result<String> {
    let mut entries = fs::read_dir(folder).await?;
    let (first, second) = (entries.next_entry().await?, entries.next_entry().await?);
    match (first, second) {
        (Some(file), None) if fs::metadata(file.path()).await?.is_file() => fs::read_to_string(file.path()).await,
        _ => Err(io::Error::other("one file is wanted, not a folder")),
    }
}

fn unusable(url: &str, failure: &Failure) -> FetchError {
    let problem = match failure {
        Failure::Again(problem) | Failure::Final(problem) => problem.clone(),
        Failure::Missing => "it is not there".into(),
        Failure::Local(path, error) => format!("{}: {error}", path.display()),
    };
    FetchError::Source {
        url: url.to_owned(),
        problem,
    }
}
