//! One watch: which changes it tells, in which words, and when it ends.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use super::{
    Inner, builtin,
    clock::Clock,
    convert::from_storage,
    negotiate::View,
    object::map,
    options::ListOptions,
    resource::Resource,
    respond,
    state::State,
    status::ApiError,
    store::{Change, Object},
};
use crate::surface::table::Printer;

/// How often a quiet watch that wants bookmarks gets one.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// How long before the end of a watch the last bookmarks begin.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// What a table's watchers are told: the revision of its last change, or that the table is gone.
pub(super) type Signal = u64;

/// The table is gone; so are its watches.
pub(super) const GONE: Signal = Signal::MAX;

/// A watch.
pub(super) struct Watcher {
    server: Arc<Inner>,
    resource: Arc<Resource>,
    namespace: Option<String>,
    options: ListOptions,
    view: View,
    cursor: u64,
    signal: watch::Receiver<Signal>,
    bookmark: Instant,
    end: Instant,
    initial: Option<Bytes>,
    clock: Clock,
    printer: Option<Printer>,
    headed: bool,
    /// Events still to deliver before a fault ends the watch.
    left: Option<usize>,
    over: bool,
}

impl Watcher {
    pub(super) fn open(
        server: &Arc<Inner>,
        state: &mut State,
        resource: &Arc<Resource>,
        namespace: &str,
        options: ListOptions,
        view: View,
    ) -> Self {
        let timeout = options.timeout_seconds.unwrap_or_else(|| 1800 + state.ids.up_to(1800));
        let now = Instant::now();
        let mut watcher = Self {
            server: server.clone(),
            resource: resource.clone(),
            namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
            view,
            cursor: state.store.revision(),
            signal: state.signal(&resource.table),
            bookmark: next_bookmark(now, now + Duration::from_secs(timeout)),
            end: now + Duration::from_secs(timeout),
            initial: None,
            clock: state.clock,
            printer: matches!(view, View::Table(_)).then(|| resource.printer()),
            headed: false,
            left: None,
            over: false,
            options,
        };
        watcher.start(state);
        watcher
    }

    /// Ends the watch after so many events.
    pub(super) fn end_after(&mut self, events: usize) {
        self.left = Some(events);
    }

    fn start(&mut self, state: &State) {
        let initial = match (self.options.initial_events, self.options.revision) {
            (Some(true), _) | (None, None | Some(0)) => true,
            (Some(false), None | Some(0)) => false,
            (_, Some(revision)) => {
                self.cursor = revision;
                false
            }
        };
        let mut out = BytesMut::new();
        if initial {
            let found = state.store.list(&self.resource.table, self.namespace.as_deref(), None);
            let found: Vec<_> = found
                .filter(|(_, object)| self.fits(object))
                .map(|(_, object)| object.clone())
                .collect();
            for object in &found {
                self.event(&mut out, "ADDED", object);
            }
        }
        if initial && self.options.bookmarks {
            let mark = json!({"k8s.io/initial-events-end": "true"});
            self.bookmark_event(&mut out, Some(mark));
        }
        self.initial = Some(out.freeze()).filter(|out| !out.is_empty());
    }

    /// The next events, several at once if they are there; `None` when the watch is over.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        if let Some(initial) = self.initial.take() {
            return Some(self.cut(initial));
        }
        loop {
            if self.over || self.left == Some(0) {
                return None;
            }
            // Read before the changes are, so that none falls between.
            let signal = *self.signal.borrow_and_update();
            if let Some(events) = self.pending() {
                return Some(self.cut(events));
            }
            if signal == GONE {
                return None;
            }
            tokio::select! {
                biased;
                changed = self.signal.changed() => changed.ok()?,
                () = tokio::time::sleep_until(self.end) => return None,
                () = tokio::time::sleep_until(self.bookmark), if self.options.bookmarks => {
                    self.bookmark = next_bookmark(Instant::now(), self.end);
                    let mut out = BytesMut::new();
                    self.bookmark_event(&mut out, None);
                    return Some(out.freeze());
                }
            }
        }
    }

    fn pending(&mut self) -> Option<Bytes> {
        let server = self.server.clone();
        let state = server.lock();
        let changes = match state.store.changes(&self.resource.table, self.cursor) {
            Ok(changes) => changes,
            Err(expired) => {
                self.over = true;
                return Some(error_event(&ApiError::expired(expired.to_string())));
            }
        };
        let changes: Vec<Change> = changes.cloned().collect();
        self.cursor = self.cursor.max(state.store.revision());
        drop(state);
        let mut out = BytesMut::new();
        for change in &changes {
            self.tell(&mut out, change);
        }
        Some(out.freeze()).filter(|out| !out.is_empty())
    }

    /// An object that comes to fit the selectors is told as added, one that ceases to as deleted.
    fn tell(&mut self, out: &mut BytesMut, change: &Change) {
        if self
            .namespace
            .as_ref()
            .is_some_and(|namespace| *namespace != change.key.namespace)
        {
            return;
        }
        let fitted = change.before.as_ref().filter(|object| self.fits(object));
        let fits = change.after.as_ref().filter(|object| self.fits(object));
        match (fitted, fits) {
            (None, Some(object)) => self.event(out, "ADDED", object),
            (Some(_), Some(object)) => self.event(out, "MODIFIED", object),
            (Some(before), None) => {
                let gone = change
                    .last
                    .clone()
                    .unwrap_or_else(|| before.at_revision(change.revision));
                self.event(out, "DELETED", &gone);
            }
            (None, None) => {}
        }
    }

    fn fits(&self, object: &Object) -> bool {
        self.options.labels.matches(&object.value) && self.options.fields.matches(&object.value)
    }

    fn event(&mut self, out: &mut BytesMut, kind: &str, object: &Object) {
        let json = match (self.view, &self.printer) {
            (View::Table(include), Some(printer)) => {
                let object = from_storage(&self.resource, &object.value);
                // The columns are told once.
                let headers = !std::mem::replace(&mut self.headed, true);
                printer
                    .table(&object, include, headers, self.clock.now())
                    .to_string()
                    .into()
            }
            _ => respond::told(&self.resource, self.view, object),
        };
        put_event(out, kind, &json);
    }

    fn bookmark_event(&self, out: &mut BytesMut, annotations: Option<Value>) {
        let (api_version, kind) = match self.view {
            View::Whole => (self.resource.api_version(), self.resource.names.kind.as_str()),
            View::Metadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata"),
            View::Table(_) => ("meta.k8s.io/v1".to_owned(), "Table"),
        };
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if let (Some(annotations), Some(fields)) = (annotations, metadata.as_object_mut()) {
            fields.insert("annotations".into(), annotations);
        }
        let mut object = match self.view {
            View::Whole if !self.resource.custom => builtin::empty(&self.resource),
            _ => json!({}),
        };
        let fields = map(&mut object);
        fields.extend([
            ("kind".to_owned(), kind.into()),
            ("apiVersion".to_owned(), api_version.into()),
        ]);
        fields.insert("metadata".into(), metadata);
        if let (View::Table(include), Some(printer)) = (self.view, &self.printer) {
            // A row about nothing, which carries the metadata.
            let nothing = json!({"metadata": fields.remove("metadata")});
            let mut table = printer.table(&nothing, include, false, self.clock.now());
            map(&mut table).insert("metadata".into(), json!({"resourceVersion": self.cursor.to_string()}));
            object = table;
        }
        put_event(out, "BOOKMARK", object.to_string().as_bytes());
    }

    /// Cuts off what a fault is to swallow.
    fn cut(&mut self, events: Bytes) -> Bytes {
        let Some(left) = self.left.as_mut() else { return events };
        let mut end = 0;
        for line in events.split_inclusive(|byte| *byte == b'\n') {
            if *left == 0 {
                break;
            }
            *left -= 1;
            end += line.len();
        }
        events.slice(..end)
    }
}

/// Every now and then, and shortly before the end, so that whoever comes back is not told much twice.
fn next_bookmark(now: Instant, end: Instant) -> Instant {
    let last = end
        .checked_sub(LAST_BOOKMARK)
        .filter(|last| *last > now)
        .unwrap_or(now + Duration::from_secs(1));
    last.min(now + BOOKMARK_PERIOD)
}

/// The event that tells why a watch ends.
pub(super) fn error_event(error: &ApiError) -> Bytes {
    let mut out = BytesMut::new();
    put_event(&mut out, "ERROR", error.to_status().to_string().as_bytes());
    out.freeze()
}

fn put_event(out: &mut BytesMut, kind: &str, object: &[u8]) {
    out.reserve(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
}
