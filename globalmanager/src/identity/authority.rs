//! The authority's Secret: what an operator put there, or what the first manager makes.

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use skerry_crds::names::identity::AUTHORITY;
use skerry_edge::identity::Authority;

use super::{IdentityError, api};

/// The type, and the keys, that Kubernetes has for a certificate and its key.
const TYPE: &str = "kubernetes.io/tls";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The authority of this namespace; made where there is none. Of managers that make it at once, one does, and all have
/// that one's.
pub(super) async fn get(client: &Client, namespace: &str, cluster: &str) -> Result<Authority, IdentityError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let read = api("read the authority's Secret");
    if let Some(secret) = secrets.get_opt(AUTHORITY).await.map_err(&read)? {
        return from_secret(&secret);
    }
    let authority = Authority::new(cluster, Timestamp::now())?;
    match secrets.create(&PostParams::default(), &to_secret(&authority)).await {
        Ok(_) => {
            tracing::info!(secret = AUTHORITY, fingerprint = %authority.fingerprint(), "an authority was made");
            Ok(authority)
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {
            from_secret(&secrets.get(AUTHORITY).await.map_err(read)?)
        }
        Err(error) => Err(api("make the authority's Secret")(error)),
    }
}

fn to_secret(authority: &Authority) -> Secret {
    let field = |name: &str, text: String| (name.to_owned(), ByteString(text.into_bytes()));
    Secret {
        metadata: ObjectMeta {
            name: Some(AUTHORITY.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(TYPE.to_owned()),
        data: Some(
            [
                field(CERTIFICATE, authority.pem().to_owned()),
                field(KEY, authority.key_pem()),
            ]
            .into(),
        ),
        ..Secret::default()
    }
}

/// The authority that a Secret holds.
pub(super) fn from_secret(secret: &Secret) -> Result<Authority, IdentityError> {
    Ok(Authority::read(&text(secret, CERTIFICATE)?, &text(secret, KEY)?)?)
}

/// A field of a Secret, as text.
pub(super) fn text(secret: &Secret, field: &'static str) -> Result<String, IdentityError> {
    let unusable = |why: &str| IdentityError::Secret {
        name: secret.metadata.name.clone().unwrap_or_default(),
        field,
        why: why.to_owned(),
    };
    let data = secret.data.as_ref().and_then(|data| data.get(field));
    let data = data.ok_or_else(|| unusable("it is missing"))?;
    String::from_utf8(data.0.clone()).map_err(|_| unusable("it is not text"))
}
