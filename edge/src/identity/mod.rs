//! Who is who on the edge link: certificates, and the tokens by which a node gets its first one.
//!
//! ```text
//!   operator ── token ──▶ node ── token, request ──▶ manager ── certificate ──▶ node
//!                                                       │
//!                                          Authority, whose certificate's hash is in the token
//! ```
//!
//! A node's key never leaves it: what travels is a signing request. A node knows a manager by the authority alone, not by
//! its address and not by the time, since an edge node's clock may be wrong by years; a manager's own certificate is made
//! at its start, with a key that is never written anywhere. Nothing here does I/O or reads a clock.

mod authority;
mod certificate;
mod exchange;
mod revocation;
mod token;
pub mod trust;

pub use authority::{Authority, AuthorityError, ManagerCertificate};
pub use certificate::{CertificateError, NodeCertificate, NodeKey};
pub use exchange::{Issued, JOIN, JoinRequest, RENEW, RenewRequest, SigningRequest, certificate_pem, read_certificate};
pub use revocation::{Revocations, Revoked};
pub use token::{JoinToken, TokenError, TokenRecord, TokenRefusal};

/// The name that a manager's certificate is for, whatever its address is: nodes reach managers through addresses that
/// change.
pub const MANAGER: &str = "globalmanager.skerry.internal";

/// The URI that a node's certificate is for.
fn node_uri(node: &str) -> String {
    format!("{NODE_URI}{node}")
}

const NODE_URI: &str = "skerry:node:";

/// Certificates are valid from so long before they are issued: another manager's clock may be behind.
const BACKDATED: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
