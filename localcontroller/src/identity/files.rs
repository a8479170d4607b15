//! What a node keeps of who it is: two files that only the local controller can read, each replaced as a whole.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::ClientConfig;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use skerry_edge::{
    ContentHash,
    identity::{
        CertificateError, Issued, JoinToken, NodeCertificate, NodeKey, read_certificate,
        trust::{Trust, node_config},
    },
};
use thiserror::Error;

use crate::durable;

/// The files hold keys.
const DIRECTORY_MODE: u32 = 0o700;

const JOINED: &str = "identity.json";
const JOINING: &str = "joining.json";

/// Why what a node keeps cannot be used.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The disk.
    #[error("{path} cannot be {done}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        done: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Not what was written.
    #[error("{path} is damaged: {why}; delete it and let the node join again, with a new join token")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// What the manager sent is not this node's certificate.
    #[error("the manager's answer cannot be used: {0}")]
    Answer(String),
}

/// The folder of the files.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

/// A node that has joined.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Joined {
    /// The id of the token by which it did.
    pub(super) token: String,
    key: String,
    certificate: String,
    authority: String,
}

/// A node that is about to join: its key has to outlive a lost answer, because the token is then used up for it.
#[derive(Serialize, Deserialize)]
struct Joining {
    token: String,
    key: String,
}

impl Folder {
    /// The folder at this path; made where it is missing.
    pub(super) fn open(path: &Path) -> Result<Self, FilesError> {
        let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
        made.map_err(failed(path, "made"))?;
        Ok(Self(path.to_owned()))
    }

    /// Who the node is, where it has joined.
    pub(super) fn joined(&self) -> Result<Option<Joined>, FilesError> {
        let joined: Option<Joined> = self.read(JOINED)?;
        if let Some(joined) = &joined {
            let damaged = |why: String| FilesError::Damaged {
                path: self.0.join(JOINED),
                why,
            };
            joined.certificate().map_err(|error| damaged(error.to_string()))?;
            joined.config().map_err(|error| damaged(error.to_string()))?;
        }
        Ok(joined)
    }

    /// The key to join with by this token: the same one each time.
    pub(super) fn joining_key(&self, token: &JoinToken) -> Result<NodeKey, FilesError> {
        let answer = |error: CertificateError| FilesError::Answer(error.to_string());
        if let Some(kept) = self.read::<Joining>(JOINING)?.filter(|kept| kept.token == token.id) {
            return NodeKey::read(&kept.key).map_err(|error| FilesError::Damaged {
                path: self.0.join(JOINING),
                why: error.to_string(),
            });
        }
        let key = NodeKey::generate().map_err(answer)?;
        let joining = Joining {
            token: token.id.clone(),
            key: key.pem(),
        };
        self.write(JOINING, &joining)?;
        Ok(key)
    }

    /// Keeps who the node is from now on.
    pub(super) fn keep(&self, joined: &Joined) -> Result<(), FilesError> {
        self.write(JOINED, joined)?;
        match fs::remove_file(self.0.join(JOINING)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&self.0, "cleared")(error)),
            _ => Ok(()),
        }
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, FilesError> {
        let path = self.0.join(name);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed(&path, "read"))?,
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| FilesError::Damaged {
                path,
                why: error.to_string(),
            })
    }

    fn write(&self, name: &str, content: &impl Serialize) -> Result<(), FilesError> {
        let path = self.0.join(name);
        let text = serde_json::to_vec_pretty(content).map_err(io::Error::from);
        text.and_then(|text| durable::replace(&path, &text))
            .map_err(failed(&path, "written"))
    }
}

fn failed(path: &Path, done: &'static str) -> impl Fn(io::Error) -> FilesError {
    let path = path.to_owned();
    move |source| FilesError::Io {
        path: path.clone(),
        done,
        source,
    }
}

impl Joined {
    /// What `node` is once it has this answer: refused where the answer is another's.
    pub(super) fn new(node: &str, token: &str, key: &NodeKey, issued: Issued) -> Result<Self, FilesError> {
        let Issued { certificate, authority } = issued;
        let joined = Self {
            token: token.to_owned(),
            key: key.pem(),
            certificate,
            authority,
        };
        let answer = |error: &dyn std::fmt::Display| FilesError::Answer(error.to_string());
        let named = joined.certificate().map_err(|error| answer(&error))?.node;
        if named != node {
            return Err(answer(&format!("it is a certificate of node {named}, not of {node}")));
        }
        joined.config()?;
        Ok(joined)
    }

    /// The same with a newer certificate.
    pub(super) fn renewed(&self, issued: Issued) -> Result<Self, FilesError> {
        let answer = |error: CertificateError| FilesError::Answer(error.to_string());
        let node = self.certificate().map_err(answer)?.node;
        Self::new(&node, &self.token, &self.key().map_err(answer)?, issued)
    }

    /// What its certificate says.
    pub(super) fn certificate(&self) -> Result<NodeCertificate, CertificateError> {
        NodeCertificate::read(&read_certificate(&self.certificate)?)
    }

    /// Its key.
    pub(super) fn key(&self) -> Result<NodeKey, CertificateError> {
        NodeKey::read(&self.key)
    }

    /// Whom it believes, by fingerprint.
    pub(super) fn authority(&self) -> Result<ContentHash, CertificateError> {
        Ok(ContentHash::of(&read_certificate(&self.authority)?))
    }

    /// How it connects.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, FilesError> {
        let answer = |error: &dyn std::fmt::Display| FilesError::Answer(error.to_string());
        let authority = read_certificate(&self.authority).map_err(|error| answer(&error))?;
        let certificate = read_certificate(&self.certificate).map_err(|error| answer(&error))?;
        let key = self.key().map_err(|error| answer(&error))?;
        let config = node_config(Trust::Authority(authority), Some((certificate, &key)));
        config.map(Arc::new).map_err(|error| answer(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use jiff::{SignedDuration, Timestamp};
    use skerry_edge::identity::{Authority, SigningRequest, certificate_pem};

    use super::*;

    fn issued(authority: &Authority, node: &str, key: &NodeKey) -> Issued {
        let request = SigningRequest::read(&SigningRequest::of(key).unwrap()).unwrap();
        let hour = SignedDuration::from_hours(1);
        let certificate = authority.issue(node, request.der(), Timestamp::now(), hour).unwrap();
        Issued {
            certificate: certificate_pem(&certificate),
            authority: authority.pem().to_owned(),
        }
    }

    #[test]
    fn who_a_node_is_outlives_it_and_is_for_its_own_eyes() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(&root.path().join("identity")).unwrap();
        assert!(folder.joined().unwrap().is_none());
        let authority = Authority::new("cluster", Timestamp::now()).unwrap();
        let token = JoinToken::generate(authority.fingerprint());
        let key = folder.joining_key(&token).unwrap();
        assert_eq!(
            folder.joining_key(&token).unwrap().pem(),
            key.pem(),
            "it is asked with the same key again"
        );
        let another = JoinToken::generate(authority.fingerprint());
        assert_ne!(folder.joining_key(&another).unwrap().pem(), key.pem());
        let joined = Joined::new("edge-1", &token.id, &key, issued(&authority, "edge-1", &key)).unwrap();
        folder.keep(&joined).unwrap();
        let kept = folder.joined().unwrap().unwrap();
        assert_eq!(kept.certificate().unwrap().node, "edge-1");
        assert_eq!(kept.authority().unwrap(), authority.fingerprint());
        let files: Vec<_> = fs::read_dir(root.path().join("identity")).unwrap().collect();
        assert_eq!(files.len(), 1, "what was for joining is gone: {files:?}");
        for file in files {
            let mode = file.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn an_answer_for_another_node_or_another_key_is_refused() {
        let authority = Authority::new("cluster", Timestamp::now()).unwrap();
        let (key, other) = (NodeKey::generate().unwrap(), NodeKey::generate().unwrap());
        for (node, theirs) in [("edge-2", &key), ("edge-1", &other)] {
            let answer = issued(&authority, node, theirs);
            let refused = Joined::new("edge-1", "token", &key, answer);
            assert!(matches!(refused, Err(FilesError::Answer(_))), "{node}");
        }
    }

    #[test]
    fn a_damaged_file_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        for text in ["", "{}", r#"{"token":"a","key":"b","certificate":"c","authority":"d"}"#] {
            fs::write(root.path().join(JOINED), text).unwrap();
            let error = folder.joined().err().unwrap().to_string();
            assert!(error.contains(JOINED) && error.contains("join again"), "{error}");
        }
    }
}
