//! Where a Dataset's file is, read from its `spec.url`: a path of the host, an object in S3, or an HTTP resource.

use std::{fmt, path::PathBuf};

use reqwest::Url;

use super::error::DatasetError;

/// Where a file is. Printing it shows nothing that may be secret: neither user and password nor a query, which may be
/// a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On the host of this node, by its absolute path there.
    Host(PathBuf),
    /// In an object store that speaks S3.
    S3 {
        /// The bucket.
        bucket: String,
        /// The object's key.
        key: String,
    },
    /// Behind `http` or `https`.
    Http(Url),
}

impl Location {
    /// Reads a `spec.url`.
    pub fn parse(url: &str) -> Result<Self, DatasetError> {
        let wrong = |problem| DatasetError::Url {
            url: public(url),
            problem,
        };
        let Some((scheme, rest)) = url.split_once("://") else {
            return if url.starts_with('/') {
                Ok(Self::Host(PathBuf::from(url)))
            } else {
                Err(wrong(
                    "has to be an absolute path, or start with s3://, http:// or https://",
                ))
            };
        };
        match scheme.to_ascii_lowercase().as_str() {
            "s3" => match rest.split_once('/') {
                Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => Ok(Self::S3 {
                    bucket: bucket.to_owned(),
                    key: key.to_owned(),
                }),
                _ => Err(wrong("has to be s3://BUCKET/KEY")),
            },
            "http" | "https" => Url::parse(url).map(Self::Http).map_err(|_| wrong("is not a URL")),
            _ => Err(wrong(
                "has to be an absolute path, or start with s3://, http:// or https://",
            )),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(path) => path.display().fmt(f),
            Self::S3 { bucket, key } => write!(f, "s3://{bucket}/{key}"),
            Self::Http(url) => f.write_str(&public(url.as_str())),
        }
    }
}

/// A url without what may be secret in it, and not longer than a status bears.
fn public(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let shown = match url.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => url.to_owned(),
    };
    shown.chars().take(256).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_is_told_apart() {
        let host = Location::parse("/data/a.csv").unwrap();
        assert_eq!(host, Location::Host(PathBuf::from("/data/a.csv")));
        let s3 = Location::parse("s3://bucket/a/b.csv").unwrap();
        let (bucket, key) = ("bucket".to_owned(), "a/b.csv".to_owned());
        assert_eq!(s3, Location::S3 { bucket, key });
        assert!(matches!(Location::parse("https://h/a.csv"), Ok(Location::Http(_))));
    }

    #[test]
    fn a_wrong_url_is_named_with_what_would_be_right() {
        for (url, right) in [
            ("", "absolute path"),
            ("data/a.csv", "absolute path"),
            ("ftp://h/a.csv", "s3://"),
            ("s3://bucket", "s3://BUCKET/KEY"),
            ("s3:///key", "s3://BUCKET/KEY"),
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(error.contains(url) && error.contains(right), "{error}");
        }
    }

    #[test]
    fn secrets_in_a_url_are_not_shown() {
        let location = Location::parse("https://user:word@h:8080/a.csv?X-Amz-Signature=word").unwrap();
        assert_eq!(location.to_string(), "https://h:8080/a.csv");
        let error = Location::parse("ftp://user:word@h/a?word").unwrap_err().to_string();
        assert!(error.contains("ftp://h/a") && !error.contains("word@"), "{error}");
    }
}
