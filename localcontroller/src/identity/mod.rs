//! Who this node is to the manager: joins once, by a join token, and keeps its certificate young.
//!
//! ```text
//!   join token ──▶ (to join) ── /join ──▶ (joined) ── /renew, at each connect and now and then ──▶ (joined)
//!                     ▲                       │
//!                     └─ another join token ──┘
//! ```
//!
//! The key is made here and stays here. Whether a certificate is due is the manager's to say, by its clock: this node's may
//! be wrong by years. The session is not touched by a renewal; the next connection is made with the new certificate.

mod exchange;
mod files;
#[cfg(test)]
mod tests;

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use jiff::SignedDuration;
use rustls::ClientConfig;
use skerry_edge::{
    identity::{
        CertificateError, JOIN, JoinRequest, JoinToken, RENEW, RenewRequest, SigningRequest, TokenError,
        trust::{Trust, node_config},
    },
    limits,
    link::Signals,
    node::State,
    transport::tls::TlsDialer,
};
use thiserror::Error;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

pub use files::FilesError;

use exchange::{Answer, ask};
use files::{Folder, Joined};

/// Where a node's key and certificate are, below the host's root.
pub const PATH: &str = "var/lib/skerry/identity";

/// The longest time between two questions whether the certificate is due.
const RENEWAL: Duration = Duration::from_secs(6 * 3600);

/// How often it is looked for a new join token while there is no session, or no token yet.
const TOKEN: Duration = Duration::from_secs(5);

/// Questions over the life of a certificate, at least: of those after it is due, two may fail.
const QUESTIONS: i32 = 6;

/// Where a node's identity is, and what lets it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of its key and certificate.
    pub folder: PathBuf,
    /// The file with the join token.
    pub token_file: Option<PathBuf>,
}

/// Why a node has no identity.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// Its files.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// There is nothing to join by.
    #[error(
        "this node has not joined yet, and JOIN_TOKEN_FILE (--join-token-file) is not set: name a file with what \
         `skerry nodes join-token {node}` printed"
    )]
    NoToken {
        /// The node.
        node: String,
    },
    /// The file cannot be read.
    #[error(
        "JOIN_TOKEN_FILE (--join-token-file) is {path}, which cannot be read: {source}; put there what `skerry nodes join-token \
         {node}` prints"
    )]
    TokenFile {
        /// The node.
        node: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file holds something else.
    #[error("JOIN_TOKEN_FILE (--join-token-file) is {path}: {source}")]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: TokenError,
    },
    /// The node was renamed.
    #[error(
        "NODENAME (--node-name) is {node}, but this host has joined as {joined}: correct the name, or let it join again with \
         a join token for {node}"
    )]
    Renamed {
        /// What it is to be called.
        node: String,
        /// What its certificate says.
        joined: String,
    },
    /// A key or a certificate cannot be made or read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// A node's identity.
pub struct Identity {
    node: String,
    manager: String,
    folder: Folder,
    token_file: Option<PathBuf>,
    joined: Option<Joined>,
}

impl Identity {
    /// What is there of the identity of `node`; an error where there is none, nor a file in which to look for a token.
    pub fn open(node: &str, manager: &str, settings: Settings) -> Result<Self, IdentityError> {
        let Settings { folder, token_file } = settings;
        let folder = Folder::open(&folder)?;
        let joined = folder.joined()?;
        let identity = Self {
            node: node.to_owned(),
            manager: manager.to_owned(),
            folder,
            token_file,
            joined,
        };
        match &identity.joined {
            None if identity.token_file.is_none() => Err(IdentityError::NoToken { node: node.to_owned() }),
            Some(_) if identity.token_file.is_none() => {
                identity.named()?;
                Ok(identity)
            }
            // The token may come later, and workers are not to wait for it.
            _ => Ok(identity),
        }
    }

    /// What the node has joined as, under the name that it has now; an error where the name is another one.
    fn named(&self) -> Result<Option<&Joined>, IdentityError> {
        let Some(joined) = &self.joined else { return Ok(None) };
        let name = joined.certificate()?.node;
        if name == self.node {
            return Ok(Some(joined));
        }
        Err(IdentityError::Renamed {
            node: self.node.clone(),
            joined: name,
        })
    }

    /// The token of the file, where it was not used for what the node is now.
    fn new_token(&self) -> Result<Option<JoinToken>, IdentityError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text = match fs::read_to_string(path) {
            // Whoever has joined may put the token away.
            Err(_) if self.joined.is_some() => return Ok(None),
            read => read.map_err(|source| IdentityError::TokenFile {
                node: self.node.clone(),
                path: path.clone(),
                source,
            })?,
        };
        let token: JoinToken = text.parse().map_err(|source| IdentityError::Token {
            path: path.clone(),
            source,
        })?;
        Ok(Some(token).filter(|token| self.joined.as_ref().is_none_or(|joined| joined.token != token.id)))
    }

    /// Joins, where the node has not or there is another token, for as long as that takes; how the node connects then. Nothing
    /// where the link is to end before.
    pub async fn join(&mut self, signals: &Signals) -> Option<(TlsDialer, watch::Sender<Arc<ClientConfig>>)> {
        let mut bound = limits::RECONNECT.0;
        let mut said = None;
        loop {
            let tried = self.token_text();
            let cause = match signals.stop.run_until_cancelled(self.try_join()).await? {
                Ok(config) => {
                    let (told, config) = watch::channel(config);
                    return Some((TlsDialer::new(self.manager.clone(), config), told));
                }
                Err(cause) => cause,
            };
            if said.as_ref() != Some(&cause) {
                tracing::error!(cause, "this node could not join; it goes on by itself, and tries again");
                said = Some(cause.clone());
            }
            signals.state.send_replace(State::Waiting {
                until: Duration::ZERO,
                cause: Some(cause),
            });
            let wait = bound.mul_f64(rand::random());
            bound = (bound * 2).min(limits::RECONNECT.1);
            signals.stop.run_until_cancelled(self.wait(wait, tried)).await?;
        }
    }

    /// What the file of the token holds, if it can be read.
    fn token_text(&self) -> Option<String> {
        self.token_file.as_ref().and_then(|path| fs::read_to_string(path).ok())
    }

    /// Waits so long, or until the file of the token holds something else than what was tried.
    async fn wait(&self, wait: Duration, tried: Option<String>) {
        let end = Instant::now() + wait;
        while Instant::now() < end && self.token_text() == tried {
            sleep_until(end.min(Instant::now() + TOKEN)).await;
        }
    }

    /// Joins by a token that is new; how the node connects then.
    async fn try_join(&mut self) -> Result<Arc<ClientConfig>, String> {
        let sentence = |error: &dyn std::fmt::Display| error.to_string();
        // What the node is, it stays, if that is its name.
        let stays = matches!(self.named(), Ok(Some(_)));
        match self.new_token() {
            Ok(Some(token)) => match self.join_by(&token).await {
                Ok(()) => {}
                Err(Failed::ForGood(why)) if stays => {
                    tracing::error!(
                        token = token.id,
                        why,
                        "this node could not join again; it stays what it is"
                    );
                }
                Err(Failed::ForGood(why) | Failed::ForNow(why)) => return Err(why),
            },
            Ok(None) => {}
            Err(error) if stays => tracing::warn!(%error, "this node stays what it is"),
            Err(error) => return Err(sentence(&error)),
        }
        let named = self.named().map_err(|error| sentence(&error))?;
        let joined = named.ok_or("this node has not joined yet")?;
        joined.config().map_err(|error| sentence(&error))
    }

    async fn join_by(&mut self, token: &JoinToken) -> Result<(), Failed> {
        let here = |error: &dyn std::fmt::Display| Failed::ForNow(error.to_string());
        let key = self.folder.joining_key(token).map_err(|error| here(&error))?;
        let question = JoinRequest {
            node: self.node.clone(),
            token: token.clone(),
            request: SigningRequest::of(&key).map_err(|error| here(&error))?,
        };
        let config = node_config(Trust::Fingerprint(token.authority), None).map_err(|error| here(&error))?;
        match ask(&self.manager, Arc::new(config), JOIN, &question).await {
            Ok(Answer::Issued(issued)) => {
                let joined = Joined::new(&self.node, &token.id, &key, issued).map_err(|error| here(&error))?;
                if joined.authority().map_err(|error| here(&error))? != token.authority {
                    return Err(here(
                        &"the manager's answer names another authority than the join token",
                    ));
                }
                self.folder.keep(&joined).map_err(|error| here(&error))?;
                tracing::info!(node = self.node, token = token.id, "this node has joined");
                self.joined = Some(joined);
                Ok(())
            }
            Ok(Answer::NotDue) => Err(here(&"the manager's answer is none")),
            Ok(Answer::Refused(why)) => Err(Failed::ForGood(why)),
            Err(why) => Err(Failed::ForNow(why)),
        }
    }

    /// Keeps the certificate young, and joins again where there is a new token and the manager does not take the node as it
    /// is; `told` of what comes of it, and then the link. Until it is dropped.
    pub async fn keep(mut self, signals: Signals, told: watch::Sender<Arc<ClientConfig>>) {
        let mut state = signals.state.subscribe();
        let (mut live, mut renewal, mut look) = (false, Instant::now() + self.pause(), Instant::now() + TOKEN);
        let mut said = String::new();
        loop {
            let news = tokio::select! {
                running = turned(&mut state, live) => {
                    if !running {
                        return;
                    }
                    live = !live;
                    if !live {
                        continue;
                    }
                    self.renew().await
                }
                () = sleep_until(renewal) => self.renew().await,
                () = sleep_until(look), if !live => {
                    look = Instant::now() + TOKEN;
                    let joined = self.join_again().await;
                    if matches!(joined, Ok(None)) {
                        continue;
                    }
                    joined
                }
            };
            renewal = Instant::now() + self.pause();
            match news {
                Ok(Some(config)) => {
                    told.send_replace(config);
                    signals.identity_changed.notify_one();
                }
                Ok(None) => {}
                Err(why) if why == said => {}
                Err(why) => {
                    tracing::warn!(why, "this node could not get another certificate; it tries again");
                    said = why;
                }
            }
        }
    }

    /// Joins by a token that is new, where there is one.
    async fn join_again(&mut self) -> Result<Option<Arc<ClientConfig>>, String> {
        let sentence = |error: &dyn std::fmt::Display| error.to_string();
        let Some(token) = self.new_token().map_err(|error| sentence(&error))? else {
            return Ok(None);
        };
        match self.join_by(&token).await {
            Ok(()) => {}
            Err(Failed::ForGood(why) | Failed::ForNow(why)) => return Err(why),
        }
        let joined = self.joined.as_ref();
        joined.map(Joined::config).transpose().map_err(|error| sentence(&error))
    }

    async fn renew(&mut self) -> Result<Option<Arc<ClientConfig>>, String> {
        let sentence = |error: &dyn std::fmt::Display| error.to_string();
        let Some(joined) = &self.joined else { return Ok(None) };
        let key = joined.key().map_err(|error| sentence(&error))?;
        let question = RenewRequest {
            request: SigningRequest::of(&key).map_err(|error| sentence(&error))?,
        };
        let config = joined.config().map_err(|error| sentence(&error))?;
        match ask(&self.manager, config, RENEW, &question).await? {
            Answer::NotDue => Ok(None),
            Answer::Refused(why) => Err(why),
            Answer::Issued(issued) => {
                let renewed = joined.renewed(issued).map_err(|error| sentence(&error))?;
                let expires = renewed.certificate().map_err(|error| sentence(&error))?.expires;
                let config = renewed.config().map_err(|error| sentence(&error))?;
                self.folder.keep(&renewed).map_err(|error| sentence(&error))?;
                tracing::info!(%expires, "the certificate was renewed");
                self.joined = Some(renewed);
                Ok(Some(config))
            }
        }
    }

    /// How long until the manager is asked again: often enough over the certificate's life, whatever the clock says.
    fn pause(&self) -> Duration {
        let certificate = self.joined.as_ref().and_then(|joined| joined.certificate().ok());
        let life = certificate.map_or(SignedDuration::ZERO, |certificate| {
            certificate.expires.duration_since(certificate.issued)
        });
        Duration::try_from(life / QUESTIONS)
            .unwrap_or(RENEWAL)
            .clamp(Duration::from_secs(1), RENEWAL)
    }
}

/// Resolves when the link is no more as it was: up, or not. False where it has ended.
async fn turned(state: &mut watch::Receiver<State>, live: bool) -> bool {
    state.wait_for(|state| (*state == State::Live) != live).await.is_ok()
}

/// Why a node did not join.
enum Failed {
    /// The manager says no.
    ForGood(String),
    /// It may go better another time.
    ForNow(String),
}
