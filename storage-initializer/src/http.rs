//! Files on web servers: GET, and GET of the rest where the server names a version.

use std::time::Duration;

use futures::StreamExt as _;
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, RANGE};
use reqwest::{Client, Response, StatusCode, Url};

use crate::download::{Body, Failure, Head, Remote, Resume};

const CONNECT: Duration = Duration::from_secs(10);
/// A server that sends nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// The client for all web servers.
#[derive(Debug, Clone)]
pub(crate) struct Web {
    client: Client,
    /// Why TLS cannot be spoken.
    no_tls: Option<String>,
}

impl Web {
    /// A client. TLS needs the machine's certificates, which an image that fetches in plain need not have.
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        let builder = || Client::builder().connect_timeout(CONNECT).read_timeout(SILENCE);
        match builder().build() {
            Ok(client) => Ok(Self { client, no_tls: None }),
            Err(error) => Ok(Self {
                client: builder().tls_certs_only([]).build()?,
                no_tls: Some(innermost(&error)),
            }),
        }
    }

    /// A file, with the headers that its server wants.
    pub(crate) fn file(&self, url: Url, headers: HeaderMap) -> Result<HttpFile, String> {
        match &self.no_tls {
            Some(problem) if url.scheme() == "https" => Err(problem.clone()),
            _ => Ok(HttpFile {
                client: self.client.clone(),
                url,
                headers,
            }),
        }
    }
}

/// A file on a web server.
pub(crate) struct HttpFile {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl Remote for HttpFile {
    async fn open(&self, resume: Option<&Resume>) -> Result<(Head, Body), Failure> {
        let mut request = self.client.get(self.url.clone()).headers(self.headers.clone());
        if let Some(Resume { version, offset }) = resume {
            request = request
                .header(RANGE, format!("bytes={offset}-"))
                .header(IF_RANGE, version);
        }
        // The URL is left out: it is named elsewhere, without its secrets.
        let response = request
            .send()
            .await
            .map_err(|error| Failure::Again(innermost(&error.without_url())))?;
        let start = match response.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT => {
                range_start(&response).ok_or_else(|| Failure::Final("a partial answer without its range".into()))?
            }
            status => return Err(failure(status)),
        };
        let length = response.content_length();
        let head = Head {
            version: version(response.headers()).or_else(|| resume.map(|resume| resume.version.clone())),
            total: length.map(|length| start + length),
            start,
        };
        Ok((
            head,
            response
                .bytes_stream()
                .map(|bytes| bytes.map_err(|error| innermost(&error)))
                .boxed(),
        ))
    }
}

/// What `If-Range` accepts: a strong entity tag, or a date.
fn version(headers: &HeaderMap) -> Option<String> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    text(ETAG)
        .filter(|tag| tag.starts_with('"'))
        .or_else(|| text(LAST_MODIFIED))
}

fn range_start(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

fn failure(status: StatusCode) -> Failure {
    let again = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Failure::Missing,
        status if status.is_server_error() || again.contains(&status) => Failure::Again(format!("it answers {status}")),
        status => Failure::Final(format!("it answers {status}")),
    }
}

/// The cause at the end of the chain says what happened; those before it, that something did.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
