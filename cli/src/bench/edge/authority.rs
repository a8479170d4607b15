//! The authority of a bench: made before the manager looks for one, so that thousands of nodes need not join one by one. A real
//! local controller does.

use std::{
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use skerry_crds::names::identity::AUTHORITY;
use skerry_edge::identity::Authority;
use skerry_globalmanager::identity::operator;

use super::super::place::refused;
use crate::failure::Failure;

/// The file with the certificate, and the key in the Secret.
pub(super) const CERTIFICATE: &str = "tls.crt";
/// That with the key.
pub(super) const KEY: &str = "tls.key";

/// How long a join token is good: it is used at once.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// Makes an authority: for the manager of `namespace`, and in a folder, for the nodes.
pub(super) async fn make(client: &Client, namespace: &str, folder: &Path) -> Result<PathBuf, Failure> {
    let authority = Authority::new("bench", Timestamp::now()).map_err(Failure::defect)?;
    let (certificate, key) = (authority.pem().to_owned(), authority.key_pem());
    let folder = folder.join("authority");
    let kept = std::fs::create_dir_all(&folder)
        .and_then(|()| keep(&folder.join(CERTIFICATE), &certificate))
        .and_then(|()| keep(&folder.join(KEY), &key));
    kept.map_err(|error| Failure::new(error, "see whether the disk is full"))?;
    let field = |name: &str, text: String| (name.to_owned(), ByteString(text.into_bytes()));
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(AUTHORITY.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some([field(CERTIFICATE, certificate), field(KEY, key)].into()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    secrets.create(&PostParams::default(), &secret).await.map_err(refused)?;
    Ok(folder)
}

/// Makes a join token for a node of that manager's; the file that it is in.
pub(super) async fn invite(client: &Client, namespace: &str, node: &str, folder: &Path) -> Result<PathBuf, Failure> {
    let token = operator::invite(client, namespace, node, LIFETIME).await;
    let token = token.map_err(Failure::defect)?;
    let file = folder.join(format!("{node}.token"));
    keep(&file, &token.reveal()).map_err(|error| Failure::new(error, "see whether the disk is full"))?;
    Ok(file)
}

/// Writes what nobody else may read.
fn keep(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
