//! Objects in S3: one by its key, or all whose keys begin alike.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ClientOptions, Error, GetOptions, GetRange, ObjectStore as _, ObjectStoreExt as _, RetryConfig};

use crate::download::{Body, Failure, Head, Remote, Resume};
use crate::error::FetchError;
use crate::http::innermost;
use crate::settings::S3;

/// A bucket.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    store: Arc<AmazonS3>,
}

impl Bucket {
    pub(crate) fn open(name: &str, settings: &S3) -> Result<Self, FetchError> {
        let S3 { endpoint, region, keys } = settings;
        let plain = endpoint
            .as_deref()
            .is_some_and(|endpoint| endpoint.starts_with("http://"));
        let client = ClientOptions::new()
            .with_allow_http(plain)
            .with_no_system_certificates(plain)
            .with_connect_timeout(Duration::from_secs(10))
            // A large object may take its time, but not be silent for long.
            .with_timeout_disabled()
            .with_read_timeout(Duration::from_secs(60));
        // Trying again is done here for all kinds of sources alike.
        let no_retry = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(name)
            .with_region(region)
            .with_client_options(client)
            .with_retry(no_retry);
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        builder = match keys {
            Some((id, secret)) => builder.with_access_key_id(id).with_secret_access_key(secret),
            None => builder.with_skip_signature(true),
        };
        let store = builder.build().map_err(|error| FetchError::Variable {
            name: "S3_ENDPOINT_URL".into(),
            problem: format!("{} (a URL, http:// or https://, is wanted)", innermost(&error)),
        })?;
        Ok(Self { store: Arc::new(store) })
    }

    /// The object that has this key; otherwise all whose keys begin with it, as Sedna takes a folder, and TensorFlow
    /// the several files of one checkpoint.
    pub(crate) async fn matching(&self, key: &str) -> Result<Vec<String>, Failure> {
        let path = parse(key)?;
        let is_key = !(key.is_empty() || key.ends_with('/'));
        if is_key {
            match self.store.head(&path).await {
                Ok(_) => return Ok(vec![key.to_owned()]),
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(failure(&error)),
            }
        }
        // The store lists whole folders; keys come in order, so all that match stand together.
        let folder = parse(key.rsplit_once('/').map_or("", |(folder, _)| folder))?;
        let listed = self
            .store
            .list_with_offset(Some(&folder), &path)
            .map_ok(|object| (object.location, object.size));
        let listed = listed.try_skip_while(|(location, _)| std::future::ready(Ok(location.as_ref() < key)));
        let listed = listed.try_take_while(|(location, _)| std::future::ready(Ok(location.as_ref().starts_with(key))));
        let objects: Vec<(Path, u64)> = listed.try_collect().await.map_err(|error| failure(&error))?;
        let is_folder = |(index, (location, size)): (usize, &(Path, u64))| {
            let next = objects.get(index + 1).map(|(next, _)| next.as_ref());
            let inside = next.and_then(|next| next.strip_prefix(location.as_ref()));
            *size == 0 && inside.is_some_and(|inside| inside.starts_with('/'))
        };
        // Tools mark folders by empty objects.
        let files = objects.iter().enumerate().filter(|object| !is_folder(*object));
        Ok(files.map(|(_, (location, _))| location.to_string()).collect())
    }

    /// The object that has this key.
    pub(crate) fn object(&self, key: &str) -> Result<S3Object, Failure> {
        Ok(S3Object {
            store: Arc::clone(&self.store),
            path: parse(key)?,
        })
    }
}

fn parse(key: &str) -> Result<Path, Failure> {
    Path::parse(key).map_err(|error| Failure::Final(error.to_string()))
}

/// An object.
pub(crate) struct S3Object {
    store: Arc<AmazonS3>,
    path: Path,
}

impl S3Object {
    async fn get(&self, resume: Option<&Resume>) -> Result<(Head, Body), Error> {
        let options = GetOptions {
            range: resume.map(|resume| GetRange::Offset(resume.offset)),
            if_match: resume.map(|resume| resume.version.clone()),
            ..GetOptions::default()
        };
        let result = self.store.get_opts(&self.path, options).await?;
        let (version, total, start) = (result.meta.e_tag.clone(), Some(result.meta.size), result.range.start);
        let body = result
            .into_stream()
            .map(|bytes| bytes.map_err(|error| innermost(&error)))
            .boxed();
        Ok((Head { version, total, start }, body))
    }
}

impl Remote for S3Object {
    async fn open(&self, resume: Option<&Resume>) -> Result<(Head, Body), Failure> {
        let opened = match self.get(resume).await {
            Err(Error::Precondition { .. }) => self.get(None).await,
            other => other,
        };
        opened.map_err(|error| failure(&error))
    }
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::NotFound { .. } => Failure::Missing,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } | Error::InvalidPath { .. } => {
            Failure::Final(innermost(error))
        }
        _ => Failure::Again(innermost(error)),
    }
}
