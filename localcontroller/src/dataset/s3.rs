//! Opens an object of a store that speaks S3, with what Sedna keeps in the Secret of a Dataset.

use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{
    ClientOptions, GetOptions, ObjectMeta, ObjectStore as _, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
};
use skerry_edge::Credential;

use super::{
    error::DatasetError,
    location::Location,
    source::{CONNECT, Content, Opened, READ, chain, fetch},
};

/// What went wrong, without what differs from one try to the next (times, request ids): that would be news each time.
fn problem(error: &object_store::Error) -> String {
    match error {
        object_store::Error::NotFound { .. } => "there is no such object".to_owned(),
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            "the store refuses the credential".to_owned()
        }
        error => {
            let root = chain(error).last();
            let text = root.map(ToString::to_string).unwrap_or_default();
            let sentence = text.split('<').next().unwrap_or_default();
            sentence.trim_end_matches([':', ' ']).to_owned()
        }
    }
}

/// A client of the bucket, from what Sedna keeps in the Secret of a Dataset.
fn client(bucket: &str, location: &Location, credential: Option<&Credential>) -> Result<AmazonS3, DatasetError> {
    let Some(credential) = credential else {
        return Err(DatasetError::Url {
            url: location.to_string(),
            problem: "needs spec.credentialName: the Secret says at which endpoint the bucket is",
        });
    };
    let field = |name: &str, problem| {
        let value = credential.fields.get(name).map(|value| value.trim());
        value.filter(|value| !value.is_empty()).ok_or(DatasetError::Credential {
            name: credential.secret.clone(),
            problem,
        })
    };
    let endpoint = field(
        "s3-endpoint",
        "the Secret lacks the annotation s3-endpoint, the store's host and port",
    )?;
    let scheme = match credential.fields.get("s3-usehttps").map(String::as_str) {
        Some("0") => "http",
        _ => "https",
    };
    let endpoint = if endpoint.contains("://") {
        endpoint.to_owned()
    } else {
        format!("{scheme}://{endpoint}")
    };
    // The whole request may take long: it ends with the object.
    let options = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT)
        .with_read_timeout(READ);
    // The next poll is the next try.
    let retry = RetryConfig {
        max_retries: 1,
        ..RetryConfig::default()
    };
    AmazonS3Builder::new()
        .with_client_options(options)
        .with_retry(retry)
        .with_allow_http(endpoint.starts_with("http://"))
        .with_region(region(&endpoint))
        .with_endpoint(endpoint)
        .with_bucket_name(bucket)
        .with_access_key_id(field("ACCESS_KEY_ID", "the Secret lacks ACCESS_KEY_ID")?)
        .with_secret_access_key(field("SECRET_ACCESS_KEY", "the Secret lacks SECRET_ACCESS_KEY")?)
        .build()
        .map_err(|error| fetch(location, &problem(&error)))
}

/// Amazon's endpoints name their region, others take any.
fn region(endpoint: &str) -> String {
    let host = endpoint.rsplit('/').next().unwrap_or_default();
    let region = host
        .strip_prefix("s3.")
        .and_then(|host| host.split_once(".amazonaws.com"))
        .map(|(region, _)| region);
    region.unwrap_or("us-east-1").to_owned()
}

/// Opens an object; `known` is the fingerprint that it had when it was last read to its end.
pub(super) async fn open(
    bucket: &str,
    key: &str,
    location: &Location,
    credential: Option<&Credential>,
    known: Option<&str>,
) -> Result<Opened, DatasetError> {
    let store = client(bucket, location, credential)?;
    let options = GetOptions {
        if_none_match: known
            .and_then(|known| known.strip_prefix("etag:"))
            .map(ToOwned::to_owned),
        ..GetOptions::default()
    };
    let found = match store.get_opts(&key.into(), options).await {
        Ok(found) => found,
        Err(object_store::Error::NotModified { .. }) => return Ok(Opened::Unchanged),
        Err(error) => return Err(fetch(location, &problem(&error))),
    };
    let fingerprint = object_fingerprint(&found.meta);
    if known == Some(&*fingerprint) {
        return Ok(Opened::Unchanged);
    }
    let location = location.clone();
    let bytes = found
        .into_stream()
        .map_err(move |error| fetch(&location, &problem(&error)));
    Ok(Opened::Changed(Content {
        fingerprint: Some(fingerprint),
        bytes: bytes.boxed(),
    }))
}

fn object_fingerprint(meta: &ObjectMeta) -> String {
    meta.e_tag.as_ref().map_or_else(
        || format!("object:{}:{}", meta.size, meta.last_modified.timestamp_millis()),
        |etag| format!("etag:{etag}"),
    )
}
