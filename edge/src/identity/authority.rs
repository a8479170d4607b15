//! The small authority of a cluster: it issues certificates to nodes and to the manager itself.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer, pem::PemObject as _};
use thiserror::Error;
use time::OffsetDateTime;

use super::{BACKDATED, MANAGER, node_uri};
use crate::{hash::ContentHash, object::is_dns_name};

/// How long an authority is valid: to replace one is to join all nodes anew.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 20);

/// Bytes of a signing request: one with a P-256 key has about 250.
const MAX_REQUEST: usize = 4096;

/// Why something was not issued, or an authority cannot be used.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// The PEM of the certificate or the key is not one, or they do not belong together.
    #[error("the authority's {what} cannot be used: {why}")]
    Unusable {
        /// `certificate` or `key`.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// The node's name is not one.
    #[error("{0:?} is not a node name: lower-case letters, digits, '-' and '.', at most 253")]
    Name(String),
    /// The signing request is not one, or its signature is wrong.
    #[error("the signing request cannot be used: {0}")]
    Request(String),
    /// The library failed at what cannot fail with sound input.
    #[error("a certificate cannot be made: {0}")]
    Making(#[from] rcgen::Error),
}

/// An authority, with its key.
pub struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A manager's certificate and key, for one run of it.
pub struct ManagerCertificate {
    /// The certificate, then the authority's: a node that joins knows the latter by its hash.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key.
    pub key: PrivateKeyDer<'static>,
}

impl Authority {
    /// A new authority for the cluster of this uid.
    pub fn new(cluster: &str, now: Timestamp) -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&format!("Skerry of cluster {cluster}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        valid(&mut params, now, LIFETIME);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            certificate: certificate.into(),
            issuer: Issuer::new(params, key),
        })
    }

    /// One that was kept, or that somebody else made: PEM of the certificate and of its PKCS #8 key.
    pub fn read(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let unusable = |what| {
            move |why: &dyn std::fmt::Display| AuthorityError::Unusable {
                what,
                why: why.to_string(),
            }
        };
        let der =
            CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| unusable("certificate")(&error))?;
        let key = KeyPair::from_pem(key).map_err(|error| unusable("key")(&error))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|error| unusable("certificate")(&error))?;
        if !parsed.is_ca() {
            return Err(unusable("certificate")(&"it is not an authority's"));
        }
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(unusable("key")(&"it does not belong to the certificate"));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|error| unusable("certificate")(&error))?;
        Ok(Self {
            pem: certificate.to_owned(),
            certificate: der,
            issuer,
        })
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Its key, PKCS #8 in PEM: to be kept where only managers can read it.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// By what a node knows it before it has joined.
    pub fn fingerprint(&self) -> ContentHash {
        ContentHash::of(&self.certificate)
    }

    /// A certificate for `node`, whatever else its signing request asks for.
    pub fn issue(
        &self,
        node: &str,
        request: &[u8],
        now: Timestamp,
        lifetime: SignedDuration,
    ) -> Result<CertificateDer<'static>, AuthorityError> {
        if !is_dns_name(node) {
            return Err(AuthorityError::Name(node.chars().take(64).collect()));
        }
        if request.len() > MAX_REQUEST {
            return Err(AuthorityError::Request(format!(
                "it is longer than {MAX_REQUEST} bytes"
            )));
        }
        let request = CertificateSigningRequestDer::from(request);
        let mut asked = CertificateSigningRequestParams::from_der(&request)
            .map_err(|error| AuthorityError::Request(error.to_string()))?;
        // Of what was asked for only the key counts.
        asked.params = CertificateParams::default();
        asked.params.distinguished_name = named("Skerry node");
        asked.params.subject_alt_names = vec![SanType::URI(node_uri(node).try_into()?)];
        asked.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        asked.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        asked.params.serial_number = Some(serial());
        valid(&mut asked.params, now, lifetime);
        Ok(asked.signed_by(&self.issuer)?.into())
    }

    /// A certificate for a manager, with a key of its own. Nodes do not look at its time.
    pub fn issue_manager(&self, now: Timestamp) -> Result<ManagerCertificate, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named("Skerry global manager");
        params.subject_alt_names = vec![SanType::DnsName(MANAGER.try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.serial_number = Some(serial());
        valid(&mut params, now, LIFETIME);
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(ManagerCertificate {
            chain: vec![certificate.into(), self.certificate.clone()],
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({}, [redacted])", self.fingerprint())
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

fn valid(params: &mut CertificateParams, now: Timestamp, lifetime: SignedDuration) {
    let at = |time: Timestamp| OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(params.not_before);
    let from = now.saturating_sub(BACKDATED).unwrap_or(Timestamp::MIN);
    let to = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
    let (from, to) = (at(from), at(to));
    (params.not_before, params.not_after) = (from, to);
}

/// Serial numbers are positive and, by RFC 5280, of at most 20 bytes.
fn serial() -> SerialNumber {
    let mut bytes: [u8; 16] = rand::random();
    bytes[0] &= 0x7f;
    SerialNumber::from_slice(&bytes)
}
