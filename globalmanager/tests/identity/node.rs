//! A node: what it keeps of who it is, and what it asks for.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, UnixTime},
    time_provider::{DefaultTimeProvider, TimeProvider},
};
use skerry_edge::identity::{
    Authority, Issued, JOIN, JoinRequest, JoinToken, NodeCertificate, NodeKey, RENEW, RenewRequest, SigningRequest,
    certificate_pem, read_certificate,
    trust::{Trust, node_config},
};

use crate::party::Manager;

/// A node.
pub(crate) struct Node {
    name: String,
    key: NodeKey,
    certificate: Option<CertificateDer<'static>>,
    believes: Option<CertificateDer<'static>>,
    clock: Arc<dyn TimeProvider>,
}

/// A clock that stands.
#[derive(Debug)]
struct Stands(Timestamp);

impl TimeProvider for Stands {
    fn current_time(&self) -> Option<UnixTime> {
        let since = self.0.duration_since(Timestamp::UNIX_EPOCH);
        Some(UnixTime::since_unix_epoch(since.unsigned_abs()))
    }
}

impl Node {
    /// One that has not joined.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            key: NodeKey::generate().unwrap(),
            certificate: None,
            believes: None,
            clock: Arc::new(DefaultTimeProvider),
        }
    }

    /// The same with a clock that shows this.
    pub(crate) fn at(self, time: Timestamp) -> Self {
        let clock = Arc::new(Stands(time));
        Self { clock, ..self }
    }

    /// One that `authority` has certified, and that believes `believed`.
    pub(crate) fn certified(
        name: &str,
        authority: &Authority,
        believed: &Authority,
        issued: Timestamp,
        lifetime: SignedDuration,
    ) -> Self {
        let mut node = Self::new(name);
        let request = node.key.request().unwrap();
        node.certificate = Some(authority.issue(name, &request, issued, lifetime).unwrap());
        node.believes = Some(believed.certificate().clone());
        node
    }

    pub(crate) fn expires(&self) -> Timestamp {
        NodeCertificate::read(self.certificate.as_ref().unwrap())
            .unwrap()
            .expires
    }

    pub(crate) fn config(&self, authority: &Authority) -> ClientConfig {
        let believed = self.believes.clone().unwrap_or_else(|| authority.certificate().clone());
        let shown = self.certificate.clone().map(|certificate| (certificate, &self.key));
        self.by_its_clock(node_config(Trust::Authority(believed), shown))
    }

    /// All that a node's clock has to do with a connection.
    fn by_its_clock(&self, config: Result<ClientConfig, rustls::Error>) -> ClientConfig {
        let mut config = config.unwrap();
        config.time_provider = self.clock.clone();
        config
    }

    pub(crate) async fn join(&mut self, manager: &Manager, token: &JoinToken) -> Result<(), String> {
        let question = JoinRequest {
            node: self.name.clone(),
            token: token.clone(),
            request: SigningRequest::of(&self.key).unwrap(),
        };
        let config = self.by_its_clock(node_config(Trust::Fingerprint(token.authority), None));
        let question = serde_json::to_string(&question).unwrap();
        self.take(manager.ask(config, JOIN, question).await?).map(|_| ())
    }

    /// Whether it was given another certificate.
    pub(crate) async fn renew(&mut self, manager: &Manager) -> Result<bool, String> {
        let request = SigningRequest::of(&self.key).unwrap();
        let question = serde_json::to_string(&RenewRequest { request }).unwrap();
        self.take(manager.ask(self.config(&manager.authority), RENEW, question).await?)
    }

    fn take(&mut self, (status, text): (u16, String)) -> Result<bool, String> {
        match status {
            200 => {
                let issued: Issued = serde_json::from_str(&text).unwrap();
                let certificate = read_certificate(&issued.certificate).unwrap();
                assert_eq!(certificate_pem(&certificate), issued.certificate);
                assert_eq!(NodeCertificate::read(&certificate).unwrap().node, self.name);
                self.certificate = Some(certificate);
                self.believes = Some(read_certificate(&issued.authority).unwrap());
                Ok(true)
            }
            204 => Ok(false),
            refused => Err(format!("{refused}: {text}")),
        }
    }
}
