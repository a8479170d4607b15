//! The environment: what the manager injects into the container, with the names that Sedna gives it.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::download::Patience;
use crate::error::FetchError;

/// How to fetch.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The mark of an index's folder (`INDIRECT_URL_MARK`).
    pub mark: String,
    /// Where S3 buckets are.
    pub s3: S3,
    /// How often to try.
    pub patience: Patience,
    variables: BTreeMap<String, String>,
}

/// Where S3 buckets are, and who asks.
#[derive(Clone)]
pub struct S3 {
    /// `S3_ENDPOINT_URL`; Amazon's where it is not set.
    pub endpoint: Option<String>,
    /// `AWS_REGION`; few servers but Amazon's care.
    pub region: String,
    /// `ACCESS_KEY_ID` and `SECRET_ACCESS_KEY`; requests are not signed where they are not set.
    pub keys: Option<(String, String)>,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { endpoint, region, keys } = self;
        let keys = keys.as_ref().map(|_| "[redacted]");
        f.debug_struct("S3")
            .field("endpoint", endpoint)
            .field("region", region)
            .field("keys", &keys)
            .finish()
    }
}

impl Settings {
    /// Reads the settings of this process.
    pub fn from_env() -> Self {
        Self::new(
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    }

    /// Reads the settings from these variables. An empty one counts as not set.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let variables: BTreeMap<_, _> = variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let get = |name| variables.get(name).cloned();
        let s3 = S3 {
            // Without a scheme TLS is meant, as in the annotation that the endpoint comes from.
            endpoint: get("S3_ENDPOINT_URL").map(|e| if e.contains("://") { e } else { format!("https://{e}") }),
            region: get("AWS_REGION").unwrap_or_else(|| "us-east-1".into()),
            keys: get("ACCESS_KEY_ID").zip(get("SECRET_ACCESS_KEY")),
        };
        let mark = get("INDIRECT_URL_MARK").unwrap_or_else(|| "@".into());
        Self {
            mark,
            s3,
            patience: Patience::default(),
            variables,
        }
    }

    /// The headers for a web server: `<host>-headers`, a JSON object.
    pub(crate) fn headers(&self, host: &str) -> Result<HeaderMap, FetchError> {
        let name = format!("{host}-headers");
        let Some(text) = self.variables.get(&name) else {
            return Ok(HeaderMap::new());
        };
        let headers = serde_json::from_str::<BTreeMap<String, String>>(text)
            .ok()
            .and_then(|headers| {
                let header = |(name, value): (String, String)| {
                    Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
                };
                headers.into_iter().map(header).collect()
            });
        let problem = "a JSON object of header names and their values (text) is wanted".to_owned();
        headers.ok_or(FetchError::Variable { name, problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        Settings::new(
            variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        )
    }

    #[test]
    fn what_is_not_set_has_a_default() {
        let Settings { mark, s3, .. } = settings(&[("S3_ENDPOINT_URL", ""), ("ACCESS_KEY_ID", "only")]);
        assert_eq!(
            (mark.as_str(), s3.endpoint, s3.region.as_str(), s3.keys),
            ("@", None, "us-east-1", None)
        );
        assert_eq!(
            settings(&[("S3_ENDPOINT_URL", "h:9000")]).s3.endpoint,
            Some("https://h:9000".into())
        );
    }

    #[test]
    fn headers_are_those_of_the_host() {
        let settings = settings(&[("h.example-headers", r#"{"X-Token": "t"}"#), ("bad-headers", "t")]);
        assert_eq!(settings.headers("h.example").unwrap()["x-token"], "t");
        assert!(settings.headers("other").unwrap().is_empty());
        assert!(
            settings
                .headers("bad")
                .unwrap_err()
                .to_string()
                .starts_with("bad-headers: a JSON object")
        );
    }

    #[test]
    fn keys_are_not_printed() {
        let settings = settings(&[("ACCESS_KEY_ID", "id"), ("SECRET_ACCESS_KEY", "hunter2")]);
        assert!(!format!("{:?}", settings.s3).contains("hunter2"));
    }
}
