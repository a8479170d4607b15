//! What nodes ask over TLS: to join, to have a certificate renewed, and a session of the hub, for which they need one.

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::{DefaultBodyLimit, Request, State, rejection::JsonRejection},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::post,
};
use jiff::Timestamp;
use skerry_edge::{
    cloud::Peer,
    identity::{
        Authority, Issued, JOIN, JoinRequest, NodeCertificate, RENEW, RenewRequest, SigningRequest, certificate_pem,
    },
    limits,
    rate::Rates,
    sedna::NODE_NAME,
    transport::doors::Place,
};
use tokio::sync::Semaphore;

use super::{
    Identity, IdentityError, nodes,
    tokens::{Shown, Tokens},
};
use crate::hub::Hub;

struct Office {
    identity: Identity,
    authority: Authority,
    at_once: Semaphore,
    /// How often somebody may ask to join in vain.
    in_vain: Rates,
}

/// Why a node gets nothing: the status, and a sentence for whoever reads its log.
struct Refusal(StatusCode, String);

pub(super) fn router(identity: Identity, authority: Authority, hub: &Hub) -> Router {
    let office = Arc::new(Office {
        identity,
        authority,
        at_once: Semaphore::new(limits::REQUESTS),
        in_vain: Rates::new(limits::JOINS, limits::JOINS_EVERY, limits::JOINERS),
    });
    Router::new()
        .route(JOIN, post(join))
        .route(RENEW, post(renew))
        .layer(DefaultBodyLimit::max(limits::MAX_REQUEST))
        .with_state(office)
        .merge(hub.router().layer(middleware::from_fn(with_certificate)))
        .layer(middleware::from_fn_with_state(hub.clone(), under_its_name))
}

/// Lets through who does not say another name than the one he has proven: no header of ours says one, Sedna's does.
async fn under_its_name(State(hub): State<Hub>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>();
    let proven = peer.and_then(|peer| {
        peer.identity
            .as_ref()
            .map(|certificate| (peer, certificate.node.as_str()))
    });
    let said = request.headers().get_all(NODE_NAME);
    if let Some((peer, proven)) = proven
        && let Some(said) = said.iter().find(|said| said.as_bytes() != proven.as_bytes())
    {
        let said: String = String::from_utf8_lossy(said.as_bytes())
            .chars()
            .take(limits::QUOTED)
            .collect();
        let sentence = format!("the certificate is that of node {proven}, the header {NODE_NAME} says {said:?}");
        hub.refused("other_name", peer, &sentence);
        return Refusal(StatusCode::FORBIDDEN, sentence).into_response();
    }
    next.run(request).await
}

/// Lets through who has proven to be a node.
async fn with_certificate(peer: Option<Extension<Peer>>, request: Request, next: Next) -> Response {
    match proven(peer) {
        Ok(_) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn proven(peer: Option<Extension<Peer>>) -> Result<NodeCertificate, Refusal> {
    let certificate = peer.and_then(|Extension(peer)| peer.identity);
    certificate.ok_or_else(|| {
        let hint = "this address is for nodes with a certificate: join first, with a join token";
        Refusal(StatusCode::UNAUTHORIZED, hint.to_owned())
    })
}

async fn join(
    State(office): State<Arc<Office>>,
    peer: Option<Extension<Peer>>,
    place: Option<Extension<Arc<Place>>>,
    request: Result<Json<JoinRequest>, JsonRejection>,
) -> Response {
    let who = place.map(|Extension(place)| place.holder()).unwrap_or_default();
    let answer = match request {
        Ok(Json(request)) => match of_another(peer, &request) {
            None => office.join(&who, request).await.map(Some),
            Some(refusal) => Err(refusal),
        },
        Err(rejection) => Err(rejection.into()),
    };
    office.answer("join", answer)
}

/// Whoever shows a certificate joins under no other name. (Who joins under a new one shows none.)
fn of_another(peer: Option<Extension<Peer>>, request: &JoinRequest) -> Option<Refusal> {
    let proven = peer?.0.identity?.node;
    let said: String = request.node.chars().take(limits::QUOTED).collect();
    let sentence = format!("the certificate is that of node {proven}, the request says {said:?}");
    (proven != request.node).then_some(Refusal(StatusCode::FORBIDDEN, sentence))
}

async fn renew(
    State(office): State<Arc<Office>>,
    peer: Option<Extension<Peer>>,
    request: Result<Json<RenewRequest>, JsonRejection>,
) -> Response {
    let answer = match (proven(peer), request) {
        (Ok(present), Ok(Json(request))) => office.renew(&present, &request).await,
        (Err(refusal), _) => Err(refusal),
        (_, Err(rejection)) => Err(rejection.into()),
    };
    office.answer("renew", answer)
}

impl Office {
    /// Lets in who has a token. Whoever has none may ask as often as that costs little: what comes to something counts not.
    async fn join(&self, who: &str, request: JoinRequest) -> Result<Issued, Refusal> {
        let _turn = self.at_once.acquire().await;
        self.in_vain.take(who).map_err(|wait| {
            let sentence = format!("too many requests to join came to nothing from there: try again in {wait:?}");
            Refusal(StatusCode::SERVICE_UNAVAILABLE, sentence)
        })?;
        let issued = self.let_in(request).await?;
        self.in_vain.put_back(who);
        Ok(issued)
    }

    async fn let_in(&self, request: JoinRequest) -> Result<Issued, IdentityError> {
        let JoinRequest { node, token, request } = request;
        let (request, now) = (SigningRequest::read(&request)?, Timestamp::now());
        let Identity { client, namespace, .. } = &self.identity;
        let tokens = Tokens::new(client, namespace);
        let shown = Shown {
            token: &token,
            node: &node,
            key: request.key(),
            at: now,
        };
        // First of all, since a stranger has none.
        let found = tokens.find(&shown).await?;
        // Signed before the token is used up: a request whose key is another's uses up nothing.
        let (issued, certificate) = self.issue(&node, &request, now)?;
        let revocations = nodes::revocations(client, namespace, &node).await?;
        let invited = tokens.redeem(&shown, found, &revocations).await?;
        // A revocation may lie ahead, and the certificate would be revoked as it is issued.
        revocations.judge(&node, now).map_err(IdentityError::Until)?;
        // Who revokes the node meanwhile may not have seen this one: then it is not handed out.
        let revocations = nodes::certified(client, namespace, &certificate).await?;
        revocations.judge(&node, invited)?;
        tracing::info!(node, token = token.id, "a node has joined");
        Ok(issued)
    }

    async fn renew(&self, present: &NodeCertificate, request: &RenewRequest) -> Result<Option<Issued>, Refusal> {
        let now = Timestamp::now();
        if !present.is_due(now) {
            return Ok(None);
        }
        let _turn = self.at_once.acquire().await;
        let Identity { client, namespace, .. } = &self.identity;
        // Read now, since what the watch knows may be older than the revocation, and the new certificate would not be.
        let revocations = nodes::revocations(client, namespace, &present.node).await?;
        revocations
            .judge(&present.node, present.issued)
            .map_err(IdentityError::from)?;
        let request = SigningRequest::read(&request.request).map_err(IdentityError::from)?;
        if *request.key() != present.key {
            let sentence = "a renewal is for the key of the certificate that is shown: another key takes a join token";
            return Err(Refusal(StatusCode::FORBIDDEN, sentence.to_owned()));
        }
        let (issued, certificate) = self.issue(&present.node, &request, now)?;
        // As for a node that joins.
        let revocations = nodes::certified(client, namespace, &certificate).await?;
        revocations
            .judge(&present.node, present.issued)
            .map_err(IdentityError::from)?;
        tracing::info!(node = certificate.node, expires = %certificate.expires, "a node's certificate was renewed");
        Ok(Some(issued))
    }

    fn issue(
        &self,
        node: &str,
        request: &SigningRequest,
        now: Timestamp,
    ) -> Result<(Issued, NodeCertificate), IdentityError> {
        let lifetime = self.identity.terms.lifetime;
        let certificate = self.authority.issue(node, request.der(), now, lifetime)?;
        let issued = Issued {
            certificate: certificate_pem(&certificate),
            authority: self.authority.pem().to_owned(),
        };
        let read = NodeCertificate::read(&certificate).map_err(|error| IdentityError::Tls(error.to_string()))?;
        Ok((issued, read))
    }

    fn answer(&self, asked: &'static str, answer: Result<Option<Issued>, Refusal>) -> Response {
        let (outcome, response) = match answer {
            Ok(Some(issued)) => ("issued", Json(issued).into_response()),
            Ok(None) => ("not_due", StatusCode::NO_CONTENT.into_response()),
            Err(refusal) => {
                let Refusal(status, why) = &refusal;
                // Whoever asks may ask often: in the log of who looks for it, and counted.
                tracing::debug!(asked, %status, why, "no certificate was issued");
                let outcome = if status.is_server_error() { "failed" } else { "refused" };
                (outcome, refusal.into_response())
            }
        };
        self.identity.metrics.certificate_asked_for(asked, outcome);
        response
    }
}

impl From<IdentityError> for Refusal {
    fn from(error: IdentityError) -> Self {
        use skerry_edge::identity::AuthorityError;
        let status = match &error {
            IdentityError::Token(_) | IdentityError::Revoked(_) => StatusCode::FORBIDDEN,
            IdentityError::Until(_) => StatusCode::SERVICE_UNAVAILABLE,
            IdentityError::Authority(AuthorityError::Name(_) | AuthorityError::Request(_)) => StatusCode::BAD_REQUEST,
            _ => {
                // What is wrong here is not for strangers.
                tracing::warn!(%error, "a certificate could not be issued");
                let sentence = "the manager cannot issue certificates now; its log says why";
                return Self(StatusCode::SERVICE_UNAVAILABLE, sentence.to_owned());
            }
        };
        Self(status, error.to_string())
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self(rejection.status(), rejection.body_text())
    }
}

impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, sentence) = self;
        (status, sentence).into_response()
    }
}
