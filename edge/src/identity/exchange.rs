//! What a node and a manager say to each other about certificates: JSON over HTTP over TLS.
//!
//! | request | who | answer |
//! |---|---|---|
//! | `POST /join`, a [`JoinRequest`] | a node that has joined nothing yet | [`Issued`] |
//! | `POST /renew`, a [`RenewRequest`] | a node, by its certificate | [`Issued`]; 204 where that one is young |
//!
//! A status of 4xx is an answer for good, one of 5xx is for now; the body is a sentence.

use pem::{EncodeConfig, LineEnding, Pem};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, pem::PemObject as _};
use serde::{Deserialize, Serialize};
use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer as _};

use super::{AuthorityError, CertificateError, JoinToken, NodeKey};
use crate::hash::ContentHash;

/// Where a node joins.
pub const JOIN: &str = "/join";

/// Where a node has its certificate renewed.
pub const RENEW: &str = "/renew";

/// What a node that joins sends.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Its name.
    pub node: String,
    /// What lets it in.
    #[serde(with = "revealed")]
    pub token: JoinToken,
    /// A [`SigningRequest`] in PEM.
    pub request: String,
}

/// What a node sends that wants another certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// A [`SigningRequest`] in PEM.
    pub request: String,
}

/// What a node gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Its certificate, in PEM.
    pub certificate: String,
    /// The authority's, in PEM: whom the node believes from now on.
    pub authority: String,
}

/// A request to certify a key, from one who has that key. It carries nothing else that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRequest {
    der: Vec<u8>,
    key: ContentHash,
}

impl SigningRequest {
    /// That of this key.
    pub fn of(key: &NodeKey) -> Result<String, CertificateError> {
        Ok(pem("CERTIFICATE REQUEST", &key.request()?))
    }

    /// Reads PEM. Who has the key is verified when the request is signed.
    pub fn read(pem: &str) -> Result<Self, AuthorityError> {
        let unusable = |error: &dyn std::fmt::Display| AuthorityError::Request(error.to_string());
        let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).map_err(|error| unusable(&error))?;
        let (_, parsed) = X509CertificationRequest::from_der(&der).map_err(|error| unusable(&error))?;
        Ok(Self {
            key: ContentHash::of(parsed.certification_request_info.subject_pki.raw),
            der: der.to_vec(),
        })
    }

    /// The SHA-256 of the public key.
    pub fn key(&self) -> &ContentHash {
        &self.key
    }

    /// For [`super::Authority::issue`].
    pub fn der(&self) -> &[u8] {
        &self.der
    }
}

/// A certificate in PEM.
pub fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    pem("CERTIFICATE", certificate)
}

/// A certificate from PEM.
pub fn read_certificate(pem: &str) -> Result<CertificateDer<'static>, CertificateError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| CertificateError::Malformed(error.to_string()))
}

fn pem(label: &str, der: &[u8]) -> String {
    let plain = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(label, der), plain)
}

/// A join token on its way to the manager: the one place where it is written out.
mod revealed {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    use super::JoinToken;

    pub(super) fn serialize<S: Serializer>(token: &JoinToken, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&token.reveal())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<JoinToken, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{super::Authority, *};

    #[test]
    fn a_request_survives_the_way_and_is_known_by_its_key() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let authority = Authority::new("cluster", now).unwrap();
        let (key, other) = (NodeKey::generate().unwrap(), NodeKey::generate().unwrap());
        let read = |key: &NodeKey| SigningRequest::read(&SigningRequest::of(key).unwrap()).unwrap();
        assert_eq!(read(&key).key(), read(&key).key());
        assert_ne!(read(&key).key(), read(&other).key());
        let hour = SignedDuration::from_hours(1);
        let certificate = authority.issue("edge-1", read(&key).der(), now, hour).unwrap();
        assert_eq!(read_certificate(&certificate_pem(&certificate)), Ok(certificate));
        assert_eq!(
            certificate_pem(authority.certificate()).trim(),
            authority.pem().replace('\r', "").trim()
        );
    }

    #[test]
    fn a_request_holds_nothing_of_the_private_key() {
        let key = NodeKey::generate().unwrap();
        let request = SigningRequest::of(&key).unwrap();
        assert!(!request.contains("PRIVATE KEY"), "{request}");
        let (kept, sent) = (key.der(), pem::parse(&request).unwrap().into_contents());
        // An ECPrivateKey of version 1, and the 32 bytes of its secret.
        let kept = kept.secret_der();
        let begins = kept.windows(5).position(|bytes| bytes == [2, 1, 1, 4, 32]).unwrap() + 5;
        let secret = &kept[begins..begins + 32];
        let tells = |bytes: &[u8]| {
            let mut pieces = secret.windows(6);
            pieces.any(|piece| bytes.windows(6).any(|bytes| bytes == piece))
        };
        assert!(tells(kept) && !tells(&sent));
        assert!(!key.pem().lines().any(|line| line.len() > 8 && request.contains(line)));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in [
            "",
            "request",
            "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
        ] {
            assert!(SigningRequest::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_node_sends_to_join() {
        let token = JoinToken::generate(ContentHash::of(b"authority"));
        let said = JoinRequest {
            node: "edge-1".to_owned(),
            token: token.clone(),
            request: "PEM".to_owned(),
        };
        let text = serde_json::to_string(&said).unwrap();
        let reveal = token.reveal();
        assert_eq!(
            text,
            format!(r#"{{"node":"edge-1","token":"{reveal}","request":"PEM"}}"#)
        );
        assert!(serde_json::from_str::<JoinRequest>(&text).unwrap() == said);
    }
}
