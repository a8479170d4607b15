//! The cloud worker of joint inference: the large model behind the REST interface of Sedna's worker library.
//!
//! `GET /{name}` lists the routes; `POST /{name}/predict` with `{"data": [64 pixels]}` answers
//! `{"result": [10 probabilities]}`. Errors have the form that the library's framework gives them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::data::PIXELS;
use crate::env::{Env, EnvError};
use crate::model::{self, ModelError};
use crate::network::Network;

/// An image is 64 small numbers.
const BODY_LIMIT: usize = 64 * 1024;

/// What the cloud worker is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `BIG_MODEL_BIND_IP` and `BIG_MODEL_BIND_PORT`.
    pub bind: SocketAddr,
    /// `JOB_NAME` or `SERVICE_NAME`: the first part of the routes.
    pub name: String,
    /// `MODEL_URL`.
    pub model: PathBuf,
}

/// Why the cloud worker ends.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The environment does not do.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The model cannot be read.
    #[error("MODEL_URL: {0}")]
    Model(#[from] ModelError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address} (BIG_MODEL_BIND_IP, BIG_MODEL_BIND_PORT): {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The server broke.
    #[error("the inference server failed: {0}")]
    Serve(#[source] std::io::Error),
}

impl Settings {
    /// Reads the settings.
    pub fn from_env(env: &Env) -> Result<Self, EnvError> {
        let name = env.owner_name()?.to_owned();
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
            let wanted = "a name that can be part of a route (letters, digits, '-', '.', '_')".into();
            return Err(EnvError::Invalid {
                name: "JOB_NAME",
                value: name,
                wanted,
            });
        }
        Ok(Self {
            bind: env.bind_address("BIG_MODEL_BIND_IP", "BIG_MODEL_BIND_PORT", 5000)?,
            name,
            model: env.file("MODEL_URL")?,
        })
    }
}

/// Serves until `stop`.
pub async fn run(settings: Settings, stop: CancellationToken) -> Result<(), CloudError> {
    let network = model::load(&settings.model)?;
    let listener = TcpListener::bind(settings.bind).await;
    let listener = listener.map_err(|source| CloudError::Bind {
        address: settings.bind,
        source,
    })?;
    tracing::info!(
        "serving {} at {}/{}",
        settings.model.display(),
        settings.bind,
        settings.name
    );
    let serving = axum::serve(listener, router(&settings.name, network)).with_graceful_shutdown(stop.cancelled_owned());
    serving.await.map_err(CloudError::Serve)
}

/// The routes for a service of this name.
pub fn router(name: &str, network: Network) -> Router {
    let (info, predict) = (format!("/{name}"), format!("/{name}/predict"));
    let routes = Json(json!({"infos": [
        {"path": info, "name": "model_info"},
        {"path": predict, "name": "predict"},
    ]}));
    Router::new()
        .route(&info, get(move || std::future::ready(routes.clone())))
        .route(&predict, post(answer))
        .fallback(|| async { (StatusCode::NOT_FOUND, Json(json!({"detail": "Not Found"}))) })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(Arc::new(network))
}

#[derive(Deserialize)]
struct Question {
    data: Vec<f64>,
}

async fn answer(State(network): State<Arc<Network>>, body: Bytes) -> Response {
    let problem = match serde_json::from_slice::<Question>(&body) {
        Ok(Question { data }) if data.len() == PIXELS => {
            return Json(json!({"result": network.probabilities(&data)})).into_response();
        }
        Ok(Question { data }) => format!("{} numbers, {PIXELS} are wanted", data.len()),
        Err(error) => error.to_string(),
    };
    let detail = json!({"detail": [{"loc": ["body", "data"], "msg": problem, "type": "value_error"}]});
    (StatusCode::UNPROCESSABLE_ENTITY, Json(detail)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use serde_json::Value;
    use tower::ServiceExt as _;

    async fn ask(request: Request<Body>) -> (StatusCode, Value) {
        let answer = router("svc", Network::softmax()).oneshot(request).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn predict(body: &str) -> Request<Body> {
        Request::post("/svc/predict").body(Body::from(body.to_owned())).unwrap()
    }

    #[tokio::test]
    async fn it_lists_its_routes() {
        let (status, body) = ask(Request::get("/svc").body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(body["infos"][1], json!({"path": "/svc/predict", "name": "predict"}));
        let (status, _) = ask(Request::get("/other").body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn it_answers_with_probabilities() {
        let question = json!({"data": vec![1; 64], "callback": null, "post_process": null});
        let (status, body) = ask(predict(&question.to_string())).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(body, json!({"result": vec![0.1; 10]}));
    }

    #[tokio::test]
    async fn a_bad_question_is_told_why() {
        for (question, problem) in [
            ("{}", "missing field `data`"),
            (r#"{"data": [1, 2]}"#, "2 numbers, 64 are wanted"),
        ] {
            let (status, body) = ask(predict(question)).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
            assert!(body["detail"][0]["msg"].as_str().unwrap().contains(problem), "{body}");
        }
    }
}
