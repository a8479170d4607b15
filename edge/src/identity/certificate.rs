//! A node's own certificate: the key and the request that it is made from, and what it says to whoever is shown it.

use jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};

use super::{BACKDATED, NODE_URI};
use crate::{hash::ContentHash, object::is_dns_name};

/// Why a certificate is no node's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CertificateError {
    /// It is not a certificate.
    #[error("it is not a certificate: {0}")]
    Malformed(String),
    /// It names no node, or more than one.
    #[error("it is not a node's certificate: it has to name one node")]
    NoNode,
    /// A key cannot be made or read.
    #[error("the key cannot be used: {0}")]
    Key(String),
}

/// What a node's certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCertificate {
    /// The node's name.
    pub node: String,
    /// When it was issued, by the manager's clock.
    pub issued: Timestamp,
    /// Until when it is valid, by the manager's clock.
    pub expires: Timestamp,
    /// The SHA-256 of the public key that it certifies.
    pub key: ContentHash,
}

impl NodeCertificate {
    /// Reads a certificate that was verified already, or that is one's own.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, CertificateError> {
        let malformed = |error: &dyn std::fmt::Display| CertificateError::Malformed(error.to_string());
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|error| malformed(&error))?;
        let mut nodes = parsed.extensions().iter().flat_map(|extension| {
            let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
                return vec![];
            };
            names.general_names.iter().map(node_of).collect()
        });
        let (Some(Some(node)), None) = (nodes.next(), nodes.next()) else {
            return Err(CertificateError::NoNode);
        };
        let time = |time: &x509_parser::time::ASN1Time| {
            Timestamp::from_second(time.timestamp()).map_err(|error| malformed(&error))
        };
        Ok(Self {
            node: node.to_owned(),
            issued: time(&parsed.validity().not_before)?
                .checked_add(BACKDATED)
                .map_err(|error| malformed(&error))?,
            expires: time(&parsed.validity().not_after)?,
            key: ContentHash::of(parsed.public_key().raw),
        })
    }

    /// Whether it is time for another one: two thirds of its life are over. What is left is for managers that are away.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let life = self.expires.duration_since(self.issued);
        now.duration_since(self.issued) >= life / 3 * 2
    }
}

/// The node that a name is for.
fn node_of<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    let GeneralName::URI(uri) = name else { return None };
    uri.strip_prefix(NODE_URI).filter(|node| is_dns_name(node))
}

/// A node's key.
pub struct NodeKey(KeyPair);

impl NodeKey {
    /// A new one.
    pub fn generate() -> Result<Self, CertificateError> {
        KeyPair::generate()
            .map(Self)
            .map_err(|error| CertificateError::Key(error.to_string()))
    }

    /// One that was kept: PKCS #8 in PEM.
    pub fn read(pem: &str) -> Result<Self, CertificateError> {
        KeyPair::from_pem(pem)
            .map(Self)
            .map_err(|error| CertificateError::Key(error.to_string()))
    }

    /// PKCS #8 in PEM, to be kept where only the local controller can read it.
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// What is sent to the manager: the public key, and proof that this side has the other half.
    pub fn request(&self) -> Result<Vec<u8>, CertificateError> {
        let request = CertificateParams::default().serialize_request(&self.0);
        let request = request.map_err(|error| CertificateError::Key(error.to_string()))?;
        Ok(request.der().to_vec())
    }

    /// For TLS.
    pub fn der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.0.serialize_der().into())
    }
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeKey([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::{
        super::{Authority, SigningRequest},
        *,
    };

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn issue(authority: &Authority, node: &str) -> CertificateDer<'static> {
        issue_to(&NodeKey::generate().unwrap(), authority, node)
    }

    fn issue_to(key: &NodeKey, authority: &Authority, node: &str) -> CertificateDer<'static> {
        let request = key.request().unwrap();
        authority
            .issue(node, &request, now(), SignedDuration::from_hours(24))
            .unwrap()
    }

    #[test]
    fn a_certificate_names_its_node_its_times_and_its_key() {
        let authority = Authority::new("cluster", now()).unwrap();
        let key = NodeKey::generate().unwrap();
        let read = NodeCertificate::read(&issue_to(&key, &authority, "edge-1")).unwrap();
        let request = SigningRequest::read(&SigningRequest::of(&key).unwrap()).unwrap();
        assert_eq!(
            read,
            NodeCertificate {
                node: "edge-1".to_owned(),
                issued: now(),
                expires: "2026-01-02T00:00:00Z".parse().unwrap(),
                key: *request.key(),
            }
        );
    }

    #[test]
    fn a_certificate_is_due_when_two_thirds_of_its_life_are_over() {
        let authority = Authority::new("cluster", now()).unwrap();
        let read = NodeCertificate::read(&issue(&authority, "edge-1")).unwrap();
        for (hours, due) in [(0, false), (15, false), (16, true), (24, true), (1000, true)] {
            assert_eq!(read.is_due(now() + SignedDuration::from_hours(hours)), due, "{hours} h");
        }
        assert!(
            !read.is_due(now() - SignedDuration::from_hours(1000)),
            "by a clock that is behind"
        );
    }

    #[test]
    fn what_a_request_asks_for_beyond_its_key_does_not_count() {
        let authority = Authority::new("cluster", now()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["globalmanager.skerry.internal".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let request = params.serialize_request(&key).unwrap();
        let hour = SignedDuration::from_hours(1);
        let certificate = authority.issue("edge-1", request.der(), now(), hour).unwrap();
        assert_eq!(NodeCertificate::read(&certificate).unwrap().node, "edge-1");
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).unwrap();
        assert!(!parsed.is_ca());
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
    }

    #[test]
    fn a_certificate_of_the_end_of_time_is_refused() {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![rcgen::SanType::URI("skerry:node:edge-1".try_into().unwrap())];
        params.not_before = rcgen::date_time_ymd(9999, 12, 30) + time::Duration::hours(21);
        params.not_after = params.not_before + time::Duration::minutes(1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert!(NodeCertificate::read(certificate.der()).is_ok());
        params.not_before += time::Duration::minutes(1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let refused = NodeCertificate::read(certificate.der());
        assert!(matches!(refused, Err(CertificateError::Malformed(_))), "{refused:?}");
    }

    #[test]
    fn a_certificate_that_is_to_last_for_ever_lasts_as_long_as_there_are_times() {
        let authority = Authority::new("cluster", now()).unwrap();
        let request = NodeKey::generate().unwrap().request().unwrap();
        let issued = authority.issue("edge-1", &request, now(), SignedDuration::MAX);
        assert!(issued.is_ok(), "{issued:?}");
    }

    #[test]
    fn a_request_that_is_none_is_refused_and_so_is_a_name_that_is_none() {
        let authority = Authority::new("cluster", now()).unwrap();
        let hour = SignedDuration::from_hours(1);
        let request = NodeKey::generate().unwrap().request().unwrap();
        for node in ["", "Edge", "../edge", "edge 1", "edge/1"] {
            assert!(authority.issue(node, &request, now(), hour).is_err(), "{node}");
        }
        assert!(authority.issue("edge-1", b"nothing", now(), hour).is_err());
        assert!(authority.issue("edge-1", &vec![0x30; 5000], now(), hour).is_err());
        // Somebody else's key under one's own signature.
        let mut forged = request;
        let last = forged.len() - 1;
        forged[last] ^= 1;
        assert!(authority.issue("edge-1", &forged, now(), hour).is_err());
    }

    #[test]
    fn an_authority_that_was_kept_is_the_same() {
        let authority = Authority::new("cluster", now()).unwrap();
        let kept = Authority::read(authority.pem(), &authority.key_pem()).unwrap();
        assert_eq!(kept.fingerprint(), authority.fingerprint());
        assert_eq!(NodeCertificate::read(&issue(&kept, "edge-1")).unwrap().node, "edge-1");
        let other = Authority::new("cluster", now()).unwrap();
        let error = Authority::read(authority.pem(), &other.key_pem())
            .unwrap_err()
            .to_string();
        assert!(error.contains("does not belong"), "{error}");
        let manager = authority.issue_manager(now()).unwrap();
        assert_eq!(NodeCertificate::read(&manager.chain[0]), Err(CertificateError::NoNode));
    }

    #[test]
    fn keys_do_not_print() {
        let authority = Authority::new("cluster", now()).unwrap();
        let key = NodeKey::generate().unwrap();
        let printed = format!("{authority:?} {key:?}");
        assert!(
            !printed.contains("PRIVATE") && printed.contains("[redacted]"),
            "{printed}"
        );
    }
}
