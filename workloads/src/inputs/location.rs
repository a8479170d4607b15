//! Where a model or data set lies, and where a worker finds it in its own file system: Sedna's rules.

use skerry_crds::names::path;
use thiserror::Error;

/// Where a model or data set lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A path on the worker's node, absolute and without `.`, `..` or empty parts.
    Host(String),
    /// What the storage initializer can fetch.
    Remote {
        /// `s3`, `http` or `https`.
        scheme: String,
        /// Host and path, for a place of its own among what is fetched: `bucket/models/m.pb`.
        place: String,
    },
    /// What only the worker itself knows how to reach.
    Other,
}

/// An address without a scheme is a path, and a path has to start at the root.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is neither an absolute path nor an address with a scheme, like s3://bucket/path")]
pub(crate) struct Relative(String);

impl Location {
    /// Reads an address.
    pub(crate) fn parse(url: &str) -> Result<Self, Relative> {
        let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            return if url.starts_with('/') {
                Ok(Self::Host(clean(url)))
            } else {
                Err(Relative(url.to_owned()))
            };
        };
        let scheme = scheme.to_ascii_lowercase();
        if !matches!(scheme.as_str(), "s3" | "http" | "https") {
            return Ok(Self::Other);
        }
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit('@').next().unwrap_or_default();
        let place = format!("{host}{}", clean(path));
        Ok(Self::Remote { scheme, place })
    }

    /// Whether credentials for object storage are needed to reach it.
    pub(crate) fn is_s3(&self) -> bool {
        matches!(self, Self::Remote { scheme, .. } if scheme == "s3")
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Resolves `.`, `..` and empty parts; the result begins with `/` and ends with one only if it is the root.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The directory that a path lies in.
pub(crate) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}

/// The path in a worker's file system below which a host path is mounted.
pub(crate) fn mounted(host_path: &str) -> String {
    if host_path == "/" {
        path::DATA.to_owned()
    } else {
        format!("{}{host_path}", path::DATA)
    }
}

/// The path in a worker's file system of what the storage initializer fetches.
pub(crate) fn downloaded(place: &str) -> String {
    format!("{}/{}", path::DOWNLOADS, place.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("/models/m.pb", "/models/m.pb")]
    #[case("/models//a/./b/../m.pb", "/models/a/m.pb")]
    #[case("/models/big/", "/models/big")]
    #[case("/../../m", "/m")]
    #[case("/", "/")]
    #[case("/odd://name", "/odd:/name")]
    fn a_path_lies_on_the_host(#[case] url: &str, #[case] path: &str) {
        assert_eq!(Location::parse(url), Ok(Location::Host(path.to_owned())));
    }

    #[rstest]
    #[case("s3://bucket/models/m.pb", "s3", "bucket/models/m.pb")]
    #[case("S3://bucket/dir/", "s3", "bucket/dir")]
    #[case("s3://bucket", "s3", "bucket/")]
    #[case("http://user:secret@host:8080/a/../m.zip?token=x#y", "http", "host:8080/m.zip")]
    #[case("https://host", "https", "host/")]
    fn an_address_can_be_fetched(#[case] url: &str, #[case] scheme: &str, #[case] place: &str) {
        let expected = Location::Remote {
            scheme: scheme.to_owned(),
            place: place.to_owned(),
        };
        assert_eq!(Location::parse(url), Ok(expected));
    }

    #[rstest]
    #[case("models/m.pb")]
    #[case("")]
    #[case("://m")]
    fn what_is_neither_is_refused(#[case] url: &str) {
        assert!(Location::parse(url).is_err());
    }

    #[test]
    fn what_only_the_worker_knows_is_left_to_it() {
        assert_eq!(Location::parse("obs://bucket/m"), Ok(Location::Other));
    }

    #[rstest]
    #[case("/models/m.pb", "/models", "/home/data/models")]
    #[case("/m.pb", "/", "/home/data")]
    #[case("/", "/", "/home/data")]
    fn the_directory_of_a_path_is_mounted(#[case] path: &str, #[case] directory: &str, #[case] mount: &str) {
        assert_eq!(parent(path), directory);
        assert_eq!(mounted(parent(path)), mount);
    }

    #[rstest]
    #[case("bucket/dir", "/downloads/bucket/dir")]
    #[case("bucket/", "/downloads/bucket")]
    fn what_is_fetched_has_a_place_of_its_own(#[case] place: &str, #[case] path: &str) {
        assert_eq!(downloaded(place), path);
    }
}
