//! Keeps the hub told of who is revoked: lists the `EdgeNode`s once, and then watches them.
//!
//! Not by kube's own watcher: that waits for an answer as long as it takes, and its patience with a watch that brings
//! nothing is as long as that watch and five seconds more. A connection of which half is gone brings neither news nor an
//! error, and whoever is revoked has to go within five seconds all the same. So each watch here is short, and what is late
//! is given up and asked for again, from where it was.

use std::{collections::BTreeSet, time::Duration};

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Error, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
    core::DynamicObject,
};
use skerry_edge::identity::Revocations;
use thiserror::Error;
use tokio::time::{error::Elapsed, sleep, timeout};

use super::nodes::revoked_before;
use crate::hub::Hub;

/// For how many seconds the API server is to go on with one watch.
const WATCH: u32 = 2;
/// How long one watch may take with all that it brings, until it is given up.
const WATCHED: Duration = Duration::from_secs(3);
/// Between what failed and the next attempt: with [`WATCHED`], less than the five seconds.
const AGAIN: Duration = Duration::from_millis(500);
/// How many resources the API server is asked for at a time.
const PAGE: u32 = 500;
/// How long one page may take. Nothing of it is late: while there is no list, nobody is let in.
const LISTED: Duration = Duration::from_secs(30);

/// Goes on for as long as it is polled. While the API server does not answer, what was known stays.
pub(super) async fn watch(nodes: Api<DynamicObject>, hub: Hub) {
    let mut watched = Watched {
        nodes,
        hub,
        known: Known::default(),
        version: None,
    };
    let mut broken = false;
    loop {
        let outcome = watched.go_on().await;
        match &outcome {
            Ok(()) if broken => tracing::info!("the watch of EdgeNodes goes on"),
            Ok(()) => {}
            Err(error) if broken => tracing::debug!(%error, "the watch of EdgeNodes failed again"),
            Err(error) => {
                tracing::warn!(%error, "the watch of EdgeNodes failed; what is known stays, and it is tried again");
            }
        }
        broken = outcome.is_err();
        if broken {
            sleep(AGAIN).await;
        }
    }
}

/// Why the resources cannot be followed now.
#[derive(Debug, Error)]
enum Broken {
    #[error(transparent)]
    Api(#[from] Error),
    #[error("the API server did not answer in time")]
    Late(#[from] Elapsed),
}

/// The resources, as far as they were seen.
struct Watched {
    nodes: Api<DynamicObject>,
    hub: Hub,
    known: Known,
    /// Up to where, if that can be gone on from.
    version: Option<String>,
}

impl Watched {
    /// Lists what there is, or watches for a short while what becomes of it.
    async fn go_on(&mut self) -> Result<(), Broken> {
        let Some(version) = self.version.clone() else {
            return self.list().await;
        };
        let nodes = self.nodes.clone();
        let watched = async {
            let events = nodes.watch(&WatchParams::default().timeout(WATCH), &version).await?;
            self.follow(events).await
        };
        let outcome = timeout(WATCHED, watched).await?;
        if matches!(&outcome, Err(Error::Api(status)) if status.code == 410) {
            // What came after that version is forgotten.
            self.version = None;
        }
        Ok(outcome?)
    }

    async fn list(&mut self) -> Result<(), Broken> {
        let (mut known, mut page) = (Known::default(), ListParams::default().limit(PAGE));
        let version = loop {
            let listed = timeout(LISTED, self.nodes.list(&page)).await??;
            for node in &listed.items {
                known.set(node);
            }
            match listed.metadata.continue_.filter(|more| !more.is_empty()) {
                Some(more) => page = page.continue_token(&more),
                None => break listed.metadata.resource_version,
            }
        };
        self.known = known;
        self.known.tell(&self.hub);
        self.version = version;
        Ok(())
    }

    async fn follow(
        &mut self,
        events: impl Stream<Item = Result<WatchEvent<DynamicObject>, Error>>,
    ) -> Result<(), Error> {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let (news, version) = match event? {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => {
                    (self.known.set(&node), node.resource_version())
                }
                WatchEvent::Deleted(node) => (self.known.forget(&node), node.resource_version()),
                WatchEvent::Bookmark(bookmark) => (false, Some(bookmark.metadata.resource_version)),
                WatchEvent::Error(status) => return Err(Error::Api(status)),
            };
            if news {
                self.known.tell(&self.hub);
            }
            self.version = version;
        }
        Ok(())
    }
}

/// What is known of all nodes.
#[derive(Default)]
struct Known {
    revoked: Revocations,
    joined: BTreeSet<String>,
}

impl Known {
    /// Whether that is news.
    fn set(&mut self, node: &DynamicObject) -> bool {
        let (name, before) = (node.name_any(), revoked_before(node));
        let news = self.revoked.before(&name) != before;
        self.revoked.set(&name, before);
        self.joined.insert(name) || news
    }

    /// Whether that is news.
    fn forget(&mut self, node: &DynamicObject) -> bool {
        let name = node.name_any();
        self.revoked.set(&name, None);
        self.joined.remove(&name)
    }

    fn tell(&self, hub: &Hub) {
        hub.set_joined(self.joined.clone());
        hub.revoke(self.revoked.clone());
    }
}
