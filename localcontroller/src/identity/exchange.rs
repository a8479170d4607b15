//! Asks the manager for a certificate, over a connection of its own.

use std::{error::Error as _, sync::Arc, time::Duration};

use reqwest::{Client, StatusCode, header::CONTENT_TYPE, redirect::Policy};
use rustls::ClientConfig;
use serde::Serialize;
use skerry_edge::identity::Issued;

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of an answer: two certificates have about 2,000.
const MOST: usize = 64 * 1024;

/// What the manager says.
pub(super) enum Answer {
    /// Here it is.
    Issued(Issued),
    /// The present one is young.
    NotDue,
    /// No, and asking again in the same way does not help.
    Refused(String),
}

/// Asks the manager at `host:port`; an error, one sentence, where there is no answer for now.
pub(super) async fn ask(
    manager: &str,
    config: Arc<ClientConfig>,
    path: &str,
    question: &impl Serialize,
) -> Result<Answer, String> {
    let client = Client::builder()
        .tls_backend_preconfigured(Arc::unwrap_or_clone(config))
        .no_proxy()
        .http1_only()
        .redirect(Policy::none())
        .timeout(PATIENCE)
        .build()
        .map_err(|error| sentence(&error))?;
    let question = serde_json::to_vec(question).map_err(|error| error.to_string())?;
    let asked = client
        .post(format!("https://{manager}{path}"))
        .header(CONTENT_TYPE, "application/json")
        .body(question);
    let mut answer = asked.send().await.map_err(|error| sentence(&error))?;
    let status = answer.status();
    let mut body = vec![];
    while let Some(chunk) = answer.chunk().await.map_err(|error| sentence(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > MOST {
            return Err(format!("the manager's answer is longer than {MOST} bytes"));
        }
    }
    if status == StatusCode::NO_CONTENT {
        return Ok(Answer::NotDue);
    }
    if status.is_success() {
        let issued = serde_json::from_slice(&body);
        return issued
            .map(Answer::Issued)
            .map_err(|error| format!("the manager's answer is none: {error}"));
    }
    let said = String::from_utf8_lossy(&body).trim().to_owned();
    if status.is_client_error() {
        Ok(Answer::Refused(said))
    } else {
        Err(format!("the manager answers {status}: {said}"))
    }
}

/// An error with what caused it.
fn sentence(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
