//! Join tokens as Secrets, one each. A token is used up by a write that fails where another was first.

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams},
};
use skerry_crds::names::identity::{JOIN_TOKEN, JOIN_TOKEN_LABEL, JOIN_TOKEN_TYPE, join_token};
use skerry_edge::{
    ContentHash,
    identity::{JoinToken, Revocations, TokenRecord, TokenRefusal},
};

use super::{IdentityError, api, authority::text};

const RECORD: &str = "record";
/// Writes that are lost to others before it is given up: of a token, others are the retries of its one node.
const TRIES: usize = 5;

/// The tokens of one namespace.
pub(super) struct Tokens(Api<Secret>);

/// What a node shows.
pub(super) struct Shown<'a> {
    pub(super) token: &'a JoinToken,
    pub(super) node: &'a str,
    /// The node's key.
    pub(super) key: &'a ContentHash,
    /// When.
    pub(super) at: Timestamp,
}

/// A token that is what was shown, and counts.
pub(super) struct Found {
    secret: Secret,
    record: TokenRecord,
}

impl Tokens {
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        Self(Api::namespaced(client.clone(), namespace))
    }

    /// Keeps what there is to know of a new token.
    pub(super) async fn keep(&self, token: &JoinToken, record: &TokenRecord) -> Result<(), IdentityError> {
        let mut secret = Secret {
            metadata: ObjectMeta {
                name: Some(join_token(&token.id)),
                labels: Some([(JOIN_TOKEN_LABEL.to_owned(), JOIN_TOKEN.to_owned())].into()),
                ..ObjectMeta::default()
            },
            type_: Some(JOIN_TOKEN_TYPE.to_owned()),
            ..Secret::default()
        };
        write(&mut secret, record);
        let made = self.0.create(&PostParams::default(), &secret).await;
        made.map_err(api("make the join token's Secret"))?;
        Ok(())
    }

    /// Looks for a token, by one read: whoever guesses costs no more.
    pub(super) async fn find(&self, shown: &Shown<'_>) -> Result<Found, IdentityError> {
        let Shown { token, node, key, at } = shown;
        let found = self.0.get_opt(&join_token(&token.id)).await;
        let secret = found
            .map_err(api("read the join token's Secret"))?
            .ok_or(TokenRefusal::Unknown)?;
        let record = read(&secret)?;
        record.judge(token.secret(), node, key, *at)?;
        Ok(Found { secret, record })
    }

    /// Uses a token for the key of a node, unless what it got is revoked; when it was made. The same key may use it again.
    pub(super) async fn redeem(
        &self,
        shown: &Shown<'_>,
        mut found: Found,
        revocations: &Revocations,
    ) -> Result<Timestamp, IdentityError> {
        let name = join_token(&shown.token.id);
        let mut lost = None;
        for _ in 0..TRIES {
            let Found { mut secret, record } = found;
            let created = record.created;
            revocations.judge(shown.node, created)?;
            if record.used_by.is_some() {
                return Ok(created);
            }
            write(&mut secret, &record.used(shown.key));
            // The resource version that was read goes along: of two keys, one gets a conflict.
            match self.0.replace(&name, &PostParams::default(), &secret).await {
                Ok(_) => return Ok(created),
                Err(kube::Error::Api(status)) if status.code == 409 => lost = Some(kube::Error::Api(status)),
                Err(error) => return Err(api("mark the join token as used")(error)),
            }
            found = self.find(shown).await?;
        }
        Err(lost.map_or(TokenRefusal::Unknown.into(), api("mark the join token as used")))
    }

    /// Deletes the tokens that nobody can use any more.
    pub(super) async fn forget_expired(&self, now: Timestamp) -> Result<(), IdentityError> {
        let ours = ListParams::default().labels(&format!("{JOIN_TOKEN_LABEL}={JOIN_TOKEN}"));
        for secret in self.0.list(&ours).await.map_err(api("list join tokens"))? {
            let expired = read(&secret).is_ok_and(|record| record.expires <= now);
            if let Some(name) = secret.metadata.name.filter(|_| expired) {
                match self.0.delete(&name, &kube::api::DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    deleted => drop(deleted.map_err(api("delete an expired join token"))?),
                }
            }
        }
        Ok(())
    }
}

fn read(secret: &Secret) -> Result<TokenRecord, IdentityError> {
    let text = text(secret, RECORD)?;
    serde_json::from_str(&text).map_err(|error| IdentityError::Secret {
        name: secret.metadata.name.clone().unwrap_or_default(),
        field: RECORD,
        why: error.to_string(),
    })
}

fn write(secret: &mut Secret, record: &TokenRecord) {
    let record = serde_json::to_vec(record).unwrap_or_default();
    secret.data = Some([(RECORD.to_owned(), ByteString(record))].into());
}
