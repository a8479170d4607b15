//! Who is who: tokens, requests, certificates and keys, as they come over the wire, out of Secrets and out of files.

use std::{
    cell::OnceCell,
    fs,
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use skerry_edge::{
    ContentHash,
    identity::{
        Authority, Issued, JoinRequest, JoinToken, NodeCertificate, NodeKey, RenewRequest, SigningRequest, TokenRecord,
        certificate_pem, read_certificate,
    },
    link::Signals,
};
use skerry_localcontroller::identity::{Identity, IdentityError, Settings};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{Came, node::runtime, node_door::cause};

/// Some time: no target looks at a clock.
fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50)
}

/// A token that seeds have.
pub(crate) const TOKEN: &str = "skerry-join.0123abcd.0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f.\
                                abababababababababababababababababababababababababababababababab";

pub(crate) fn join_token(data: &[u8]) -> Came {
    let Ok(text) = std::str::from_utf8(data) else {
        return Came::refused("not text");
    };
    match text.parse::<JoinToken>() {
        Ok(token) => {
            assert_eq!(token.reveal(), text.trim(), "a token is read as another");
            assert!(
                !format!("{token:?}").contains(token.secret()),
                "a token prints its secret"
            );
            Came::taken("a token")
        }
        Err(error) => Came::refused(error),
    }
}

/// The manager issues a certificate for whatever request it can read, and for the node's name and no other.
pub(crate) fn join_request(data: &[u8]) -> Came {
    thread_local! {
        static AUTHORITY: OnceCell<Authority> = const { OnceCell::new() };
    }
    let (node, pem) = match serde_json::from_slice::<JoinRequest>(data) {
        Ok(JoinRequest { node, request, .. }) => (node, request),
        Err(error) => match serde_json::from_slice::<RenewRequest>(data) {
            Ok(RenewRequest { request }) => ("edge-1".to_owned(), request),
            Err(_) => return Came::refused(error),
        },
    };
    let request = match SigningRequest::read(&pem) {
        Ok(request) => request,
        Err(error) => return Came::refused(error),
    };
    AUTHORITY.with(|authority| {
        let authority = authority.get_or_init(|| Authority::new("fuzz", now()).unwrap());
        match authority.issue(&node, request.der(), now(), SignedDuration::from_hours(1)) {
            Ok(certificate) => {
                assert_eq!(NodeCertificate::read(&certificate).unwrap().node, node);
                Came::taken("issued")
            }
            Err(error) => Came::refused(error),
        }
    })
}

pub(crate) fn certificate(data: &[u8]) -> Came {
    match NodeCertificate::read(&CertificateDer::from(data)) {
        Ok(read) => {
            assert!(
                read.node.len() <= 253 && !read.node.contains('/'),
                "{:?} is no node",
                read.node
            );
            let due = [Timestamp::MIN, read.issued, now(), read.expires, Timestamp::MAX].map(|time| read.is_due(time));
            Came::taken(format!("{due:?}"))
        }
        Err(error) => Came::refused(error),
    }
}

/// A certificate and its key in one text, in whatever order: what is not the one is read as the other, too.
pub(crate) fn authority(data: &[u8]) -> Came {
    let Ok(text) = std::str::from_utf8(data) else {
        return Came::refused("not text");
    };
    if let Ok(certificate) = read_certificate(text) {
        let written = certificate_pem(&certificate);
        assert_eq!(read_certificate(&written), Ok(certificate), "{written}");
    }
    if let Ok(key) = NodeKey::read(text) {
        assert!(!format!("{key:?}").contains("PRIVATE"), "a key prints itself");
        assert!(NodeKey::read(&key.pem()).is_ok(), "a key cannot be read again");
    }
    match Authority::read(text, text) {
        Ok(authority) => {
            let again = Authority::read(authority.pem(), &authority.key_pem());
            assert_eq!(again.unwrap().fingerprint(), authority.fingerprint());
            Came::taken("an authority")
        }
        Err(error) => Came::refused(error),
    }
}

pub(crate) fn token_record(data: &[u8]) -> Came {
    match serde_json::from_slice::<TokenRecord>(data) {
        Ok(record) => {
            let written = serde_json::to_vec(&record).unwrap();
            assert_eq!(serde_json::from_slice::<TokenRecord>(&written).unwrap(), record);
            let key = ContentHash::of(b"key");
            // Nobody can guess what hashes to the secret.
            assert!(record.judge("guess", &record.node, &key, now()).is_err());
            assert_eq!(record.used(&key).used_by, Some(key));
            Came::taken("a record")
        }
        Err(error) => Came::refused(error),
    }
}

/// What is kept in a file was an answer once: both are read by the same code. What is kept before there is an answer is another
/// file, and read where this is not the first.
pub(crate) fn identity_file(data: &[u8]) -> Came {
    thread_local! {
        static FOLDER: TempDir = tempfile::tempdir().unwrap();
    }
    // What a manager answers has two of the fields.
    let answer = serde_json::from_slice::<Issued>(data).is_ok();
    FOLDER.with(|folder| {
        fs::write(folder.path().join("identity.json"), data).unwrap();
        let error = match open(folder.path(), None) {
            Ok(_) => return Came::taken(format!("an identity {answer}")),
            Err(error) => error.to_string(),
        };
        let joining = joins(&folder.path().join("joining"), data);
        // Neither says anything of what is in the file: there may be half a key.
        let words = format!("{answer} {error} {}", joining.as_ref().err().map_or("", String::as_str));
        let words = words.replace(&*folder.path().to_string_lossy(), "");
        match joining {
            Ok(()) => Came::taken(words),
            Err(_) => Came::refused(words),
        }
    })
}

/// Joins by the key that a file keeps for this token, as far as that goes where nobody is at the manager's address.
fn joins(folder: &Path, data: &[u8]) -> Result<(), String> {
    fs::create_dir_all(folder).unwrap();
    let (kept, token) = (folder.join("joining.json"), folder.join("token"));
    fs::write(&kept, data).unwrap();
    fs::write(&token, TOKEN).unwrap();
    let mut identity = open(folder, Some(token)).unwrap();
    let signals = Signals::new(CancellationToken::new());
    let cause = runtime(|runtime| {
        runtime.block_on(async {
            tokio::select! {
                _ = identity.join(&signals) => panic!("it has joined at a manager that is not there"),
                cause = cause(&signals) => cause,
            }
        })
    });
    if cause.contains("joining.json") {
        return Err(cause);
    }
    let same = fs::read(kept).unwrap() == data;
    same.then_some(()).ok_or_else(|| "of another token".to_owned())
}

fn open(folder: &Path, token_file: Option<PathBuf>) -> Result<Identity, IdentityError> {
    let settings = Settings {
        folder: folder.to_owned(),
        token_file,
    };
    // Where nobody listens, which is known at once.
    Identity::open("edge-1", "127.0.0.1:1", settings)
}
