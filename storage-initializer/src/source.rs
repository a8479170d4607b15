//! What a source argument means. Pure: no environment, no network.

use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;
use reqwest::Url;

use crate::error::FetchError;

/// A place from which can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Objects whose key is `key`, or begins with it.
    S3 {
        /// The bucket.
        bucket: String,
        /// The key or the beginning of keys; empty for all of the bucket.
        key: String,
    },
    /// A file on a web server.
    Http {
        /// Where it is.
        url: Url,
        /// What it is called here: the last part of the path, decoded as in the path that the worker is told.
        name: String,
    },
    /// A file or folder that is mounted.
    Local(PathBuf),
}

impl Source {
    /// Reads `s3://`, `obs://` (S3 by another name), `http://`, `https://`, `file://` and absolute paths.
    pub(crate) fn parse(text: &str) -> Result<Self, FetchError> {
        let invalid = |problem: String| FetchError::Source {
            url: shown(text),
            problem,
        };
        if let Some(path) = text.strip_prefix("file://").or(text.starts_with('/').then_some(text)) {
            return Ok(Self::Local(PathBuf::from(path)));
        }
        if let Some(rest) = text.strip_prefix("s3://").or_else(|| text.strip_prefix("obs://")) {
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() {
                return Err(invalid("a bucket is wanted after the scheme".into()));
            }
            return Ok(Self::S3 {
                bucket: bucket.to_owned(),
                key: key.to_owned(),
            });
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            let url = Url::parse(text).map_err(|error| invalid(error.to_string()))?;
            let last = url
                .path_segments()
                .and_then(|mut segments| segments.next_back())
                .unwrap_or_default();
            let name = percent_decode_str(last).decode_utf8_lossy().into_owned();
            if name.is_empty() {
                return Err(invalid("the path must end with the name of a file".into()));
            }
            return Ok(Self::Http { url, name });
        }
        Err(invalid(
            "s3://, obs://, http://, https://, file:// or an absolute path is wanted".into(),
        ))
    }
}

/// A URL without what may be secret in it: user, password, and the query, which may be a signature.
pub(crate) fn shown(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            format!("{scheme}://{}{path}", host.rsplit('@').next().unwrap_or_default())
        }
        None => text.to_owned(),
    }
}

/// The place of `relative` below `base`; none if it would be elsewhere, or is `base` itself.
pub(crate) fn below(base: &Path, relative: &Path) -> Option<PathBuf> {
    let mut place = base.to_owned();
    for component in relative.components() {
        match component {
            Component::Normal(part) => place.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (place != base).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_source_is_known() {
        let s3 = |bucket: &str, key: &str| Source::S3 {
            bucket: bucket.into(),
            key: key.into(),
        };
        let local = |path: &str| Source::Local(path.into());
        for (text, source) in [
            ("s3://b/models/m.pb", s3("b", "models/m.pb")),
            ("obs://b/models/", s3("b", "models/")),
            ("s3://b", s3("b", "")),
            ("/data/x.csv", local("/data/x.csv")),
            ("file:///data/x.csv", local("/data/x.csv")),
        ] {
            assert_eq!(Source::parse(text).unwrap(), source, "{text}");
        }
        let Source::Http { url, name } = Source::parse("https://h:8/a/my%20model.pb?v=1").unwrap() else {
            panic!()
        };
        assert_eq!((url.host_str(), name.as_str()), (Some("h"), "my model.pb"));
    }

    #[test]
    fn what_cannot_be_fetched_is_named_without_its_secrets() {
        for (text, message) in [
            ("data/x.csv", "cannot fetch data/x.csv: s3://, obs://"),
            ("ftp://u:p@h/x", "cannot fetch ftp://h/x: s3://, obs://"),
            ("s3:///x", "cannot fetch s3:///x: a bucket"),
            ("http://u:p@h/?signature=s", "cannot fetch http://h/: the path must end"),
        ] {
            let error = Source::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn nothing_gets_out_of_its_folder() {
        let base = Path::new("/downloads/h");
        let place = |relative: &str| below(base, Path::new(relative));
        assert_eq!(place("a/./b"), Some("/downloads/h/a/b".into()));
        for relative in ["../x", "a/../../x", "/etc/passwd", "", ".", "a/../b"] {
            assert_eq!(place(relative), None, "{relative}");
        }
    }
}
