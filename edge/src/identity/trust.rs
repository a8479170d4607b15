//! Whom each end of a TLS connection believes: configurations of rustls, TLS 1.3 alone.
//!
//! A manager takes nodes with a certificate of its authority, also for some time after it has expired, since a node may have
//! been away when it was to be renewed; and nodes without one, which can only join. Sessions are not resumed: what was
//! revoked meanwhile would come back with them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        NoServerSessionStorage, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    time_provider::TimeProvider,
    version::TLS13,
};

use super::{Authority, MANAGER, ManagerCertificate, NodeCertificate, NodeKey};
use crate::hash::ContentHash;

/// A manager's end: proves itself by `manager`, and believes nodes that `authority` has certified, for `grace` after their
/// certificates have expired, by the clock `time`.
pub fn manager_config(
    authority: &Authority,
    manager: ManagerCertificate,
    grace: SignedDuration,
    time: Arc<dyn TimeProvider>,
) -> Result<ServerConfig, Error> {
    let provider = provider();
    let roots = roots(authority.certificate())?;
    let inner = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(Nodes { inner, grace }))
        .with_single_cert(manager.chain, manager.key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// By what a node knows its manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// By the authority's certificate: the node has joined.
    Authority(CertificateDer<'static>),
    /// By the authority's fingerprint, from the join token.
    Fingerprint(ContentHash),
}

/// A node's end: believes what `trust` says, and proves itself by `identity` where it has joined.
pub fn node_config(trust: Trust, identity: Option<(CertificateDer<'static>, &NodeKey)>) -> Result<ClientConfig, Error> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Managers { trust, provider }));
    let mut config = match identity {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key.der())?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: &CertificateDer<'_>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned())?;
    Ok(Arc::new(roots))
}

/// Verifies nodes.
#[derive(Debug)]
struct Nodes {
    inner: Arc<dyn ClientCertVerifier>,
    grace: SignedDuration,
}

impl ClientCertVerifier for Nodes {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let expires = NodeCertificate::read(certificate).ok().map(|read| read.expires);
        let now = expires.map_or(now, |expires| within_grace(now, expires, self.grace));
        self.inner.verify_client_cert(certificate, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// The time at which a certificate is to be looked at: within the grace after it has expired, its last second.
fn within_grace(now: UnixTime, expires: Timestamp, grace: SignedDuration) -> UnixTime {
    let seconds = |time: Timestamp| u64::try_from(time.as_second()).unwrap_or_default();
    let (last, until) = (
        seconds(expires),
        seconds(expires.saturating_add(grace).unwrap_or(expires)),
    );
    if (last..=until).contains(&now.as_secs()) {
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(last))
    } else {
        now
    }
}

/// Verifies managers.
#[derive(Debug)]
struct Managers {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl Managers {
    /// The authority that is believed, of those that the manager shows.
    fn authority<'a>(&'a self, shown: &'a [CertificateDer<'a>]) -> Option<&'a CertificateDer<'a>> {
        match &self.trust {
            Trust::Authority(authority) => Some(authority),
            Trust::Fingerprint(wanted) => shown.iter().find(|shown| ContentHash::of(shown) == *wanted),
        }
    }
}

impl ServerCertVerifier for Managers {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = || rustls::CertificateError::UnknownIssuer;
        let authority = self.authority(intermediates).ok_or_else(unknown)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority)?, self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let name = ServerName::try_from(MANAGER).map_err(|error| Error::General(error.to_string()))?;
        // The node's clock decides nothing: the time is one at which the certificate is valid.
        let now = begins(certificate).unwrap_or(now);
        verifier.verify_server_cert(certificate, intermediates, &name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// When a certificate is first valid and its authority is too: an hour later, it was issued.
fn begins(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let seconds = u64::try_from(parsed.validity().not_before.timestamp()).ok()?;
    let issued = seconds.checked_add(super::BACKDATED.as_secs().unsigned_abs())?;
    Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(issued)))
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, HandshakeKind, ProtocolVersion, ServerConnection};

    use super::*;

    const GRACE: SignedDuration = SignedDuration::from_hours(24 * 30);
    const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 90);

    fn day(day: i64) -> Timestamp {
        let first: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        first + SignedDuration::from_hours(24 * day)
    }

    #[derive(Debug)]
    struct Clock(Timestamp);

    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            let seconds = u64::try_from(self.0.as_second()).unwrap();
            Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
        }
    }

    fn authority() -> Authority {
        Authority::new("test", day(0)).unwrap()
    }

    /// A manager of this authority, on this day.
    fn manager(authority: &Authority, today: Timestamp) -> ServerConfig {
        let manager = authority.issue_manager(today).unwrap();
        manager_config(authority, manager, GRACE, Arc::new(Clock(today))).unwrap()
    }

    /// A node that has joined `theirs` on the first day, and believes `ours`.
    fn joined(theirs: &Authority, ours: &Authority) -> ClientConfig {
        let key = NodeKey::generate().unwrap();
        let certificate = theirs
            .issue("edge-1", &key.request().unwrap(), day(0), LIFETIME)
            .unwrap();
        let trust = Trust::Authority(ours.certificate().clone());
        node_config(trust, Some((certificate, &key))).unwrap()
    }

    /// Shakes hands: which node the manager then knows, and the version; or what the first end that refuses says.
    fn shake(node: ClientConfig, manager: &Arc<ServerConfig>) -> Result<Option<String>, Error> {
        let name = ServerName::try_from(MANAGER).unwrap();
        let mut node = ClientConnection::new(Arc::new(node), name)?;
        let mut manager = ServerConnection::new(manager.clone())?;
        while node.is_handshaking() || manager.is_handshaking() {
            let mut wire = vec![];
            node.write_tls(&mut wire).unwrap();
            manager.read_tls(&mut wire.as_slice()).unwrap();
            manager.process_new_packets()?;
            let mut wire = vec![];
            while manager.wants_write() {
                manager.write_tls(&mut wire).unwrap();
            }
            node.read_tls(&mut wire.as_slice()).unwrap();
            node.process_new_packets()?;
        }
        assert_eq!(node.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        assert_eq!(manager.handshake_kind(), Some(HandshakeKind::Full));
        let shown = manager.peer_certificates().and_then(|shown| shown.first());
        Ok(shown.map(|certificate| NodeCertificate::read(certificate).unwrap().node))
    }

    #[test]
    fn a_node_that_has_joined_is_known() {
        let authority = authority();
        let manager = Arc::new(manager(&authority, day(1)));
        assert_eq!(
            shake(joined(&authority, &authority), &manager),
            Ok(Some("edge-1".to_owned()))
        );
    }

    #[test]
    fn a_node_that_was_away_is_known_within_the_grace_and_not_after() {
        let authority = authority();
        for (today, known) in [(89, true), (91, true), (119, true), (121, false)] {
            let manager = Arc::new(manager(&authority, day(today)));
            let shaken = shake(joined(&authority, &authority), &manager);
            assert_eq!(shaken.is_ok(), known, "day {today}: {shaken:?}");
        }
    }

    #[test]
    fn a_certificate_of_another_authority_is_refused_by_either_end() {
        let (ours, theirs) = (authority(), authority());
        let ours_manager = Arc::new(manager(&ours, day(1)));
        for (what, node) in [
            ("the manager refuses", joined(&theirs, &ours)),
            ("the node refuses", joined(&ours, &theirs)),
        ] {
            let shaken = shake(node, &ours_manager);
            assert!(
                matches!(shaken, Err(Error::InvalidCertificate(_))),
                "{what}: {shaken:?}"
            );
        }
    }

    #[test]
    fn a_node_that_joins_knows_its_manager_by_the_fingerprint_and_is_not_known_itself() {
        let (ours, theirs) = (authority(), authority());
        let manager = Arc::new(manager(&ours, day(1)));
        let knowing = |authority: &Authority| node_config(Trust::Fingerprint(authority.fingerprint()), None).unwrap();
        assert_eq!(shake(knowing(&ours), &manager), Ok(None));
        let shaken = shake(knowing(&theirs), &manager);
        assert!(matches!(shaken, Err(Error::InvalidCertificate(_))), "{shaken:?}");
    }

    #[test]
    fn a_node_whose_clock_is_wrong_by_years_knows_its_manager_and_is_known() {
        let authority = authority();
        let manager = Arc::new(manager(&authority, day(1)));
        let joins = node_config(Trust::Fingerprint(authority.fingerprint()), None).unwrap();
        for (what, node, known) in [
            ("a session", joined(&authority, &authority), Some("edge-1".to_owned())),
            ("joining", joins, None),
        ] {
            for year in ["1971-01-01T00:00:00Z", "2090-01-01T00:00:00Z"] {
                let mut node = node.clone();
                node.time_provider = Arc::new(Clock(year.parse().unwrap()));
                assert_eq!(shake(node, &manager), Ok(known.clone()), "{what}, {year}");
            }
        }
    }

    #[test]
    fn a_node_can_not_pose_as_a_manager() {
        let authority = authority();
        let key = NodeKey::generate().unwrap();
        let certificate = authority
            .issue("edge-2", &key.request().unwrap(), day(0), LIFETIME)
            .unwrap();
        let posing = ManagerCertificate {
            chain: vec![certificate, authority.certificate().clone()],
            key: key.der(),
        };
        let posing = manager_config(&authority, posing, GRACE, Arc::new(Clock(day(1)))).unwrap();
        let shaken = shake(joined(&authority, &authority), &Arc::new(posing));
        assert!(matches!(shaken, Err(Error::InvalidCertificate(_))), "{shaken:?}");
    }

    #[test]
    fn a_session_is_never_resumed() {
        let authority = authority();
        let manager = Arc::new(manager(&authority, day(1)));
        let mut node = joined(&authority, &authority);
        // Even a node that would.
        node.resumption = Resumption::in_memory_sessions(8);
        for _ in 0..2 {
            assert_eq!(shake(node.clone(), &manager), Ok(Some("edge-1".to_owned())));
        }
    }
}
