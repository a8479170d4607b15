//! The port of the workers: who gets a connection, and for how long.
//!
//! Decides by the address that a connection comes from, before anything is read: so many of this node's, and a few of
//! others. Which route is for whom is said in the parent module; it finds the [`Caller`] in the request.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{Router, body::Body, http::Request, serve::Listener};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use skerry_edge::seldom::Seldom;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use super::{
    limits,
    origin::{Origin, Stranger},
};
use crate::metrics::{Metrics, Outcome};

/// Who asks: someone on this node, or not.
#[derive(Clone, Debug)]
pub struct Caller(pub Result<(), Stranger>);

/// The port.
#[derive(Debug)]
pub struct Port {
    router: Router,
    origin: Origin,
    metrics: Arc<Metrics>,
    slots: Arc<Mutex<Slots>>,
    turned_away: Seldom,
}

#[derive(Debug, Default)]
struct Slots {
    here: usize,
    others: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Port {
    /// A port that answers by these routes, and knows by `origin` who is on this node.
    pub fn new(router: Router, origin: Origin, metrics: Arc<Metrics>) -> Self {
        Self {
            router,
            origin,
            metrics,
            slots: Arc::default(),
            turned_away: Seldom::default(),
        }
    }

    /// Serves `listener` until `stop`, then finishes what has been begun.
    pub async fn serve(self, mut listener: TcpListener, stop: CancellationToken) {
        let connections = TaskTracker::new();
        loop {
            // This one goes on after errors such as too many open files.
            let accepted = Listener::accept(&mut listener);
            let Some((stream, from)) = stop.run_until_cancelled(accepted).await else {
                break;
            };
            let Ok(at) = stream.local_addr() else { continue };
            // Where that cannot be had, answers are slow, not lost.
            let _ = stream.set_nodelay(true);
            if let Some(connection) = self.take(stream, from, at, stop.clone()) {
                connections.spawn(connection);
            }
        }
        connections.close();
        connections.wait().await;
    }

    /// A connection to its end, if there is room for it.
    pub fn take<Io>(
        &self,
        io: Io,
        from: SocketAddr,
        at: SocketAddr,
        stop: CancellationToken,
    ) -> Option<impl Future<Output = ()> + use<Io>>
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = from.ip().to_canonical();
        let caller = Caller(self.origin.check(address, at.ip()));
        let slot = match Slot::take(&self.slots, address, caller.0.is_ok()) {
            Ok(slot) => slot,
            Err(why) => {
                self.metrics
                    .connections_turned_away
                    .get_or_create(&Outcome::new(why))
                    .inc();
                if let Some(left_out) = self.turned_away.line() {
                    tracing::warn!(%address, why, left_out, "a connection to the workers' port was turned away");
                }
                return None;
            }
        };
        let router = self.router.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(caller.clone());
            let answered = router.clone().oneshot(request.map(Body::new));
            async move { Ok::<_, Infallible>(answered.await.unwrap_or_else(|never| match never {})) }
        });
        Some(async move {
            let _slot = slot;
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits::HEAD)
                .max_buf_size(limits::HEAD_BYTES)
                .serve_connection(TokioIo::new(io), service);
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => Ok(ended),
                // Either way a whole answer is the last thing that is sent; where nobody reads it, that is not waited for.
                _ = timeout(limits::KEPT, stop.cancelled()) => {
                    connection.as_mut().graceful_shutdown();
                    timeout(limits::ENDING, connection).await
                }
            };
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%from, %error, "a connection to the workers' port broke"),
                Err(_) => tracing::debug!(%from, "nobody read the answers of a connection to the workers' port"),
            }
        })
    }
}

/// A connection that is counted until this is dropped.
struct Slot {
    slots: Arc<Mutex<Slots>>,
    address: IpAddr,
    here: bool,
}

impl Slot {
    /// Counts a connection; otherwise, a word for why there is no room.
    fn take(slots: &Arc<Mutex<Slots>>, address: IpAddr, here: bool) -> Result<Self, &'static str> {
        let mut counts = lock(slots);
        if here {
            if counts.here >= limits::CONNECTIONS {
                return Err("full");
            }
            let from_there = counts.by_address.entry(address).or_default();
            if *from_there >= limits::CONNECTIONS_PER_ADDRESS {
                return Err("address");
            }
            *from_there += 1;
            counts.here += 1;
        } else if counts.others >= limits::OTHERS {
            return Err("others");
        } else {
            counts.others += 1;
        }
        drop(counts);
        Ok(Self {
            slots: slots.clone(),
            address,
            here,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = lock(&self.slots);
        if !self.here {
            counts.others -= 1;
            return;
        }
        counts.here -= 1;
        if let Some(from_there) = counts.by_address.get_mut(&self.address) {
            *from_there -= 1;
            if *from_there == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

fn lock(slots: &Mutex<Slots>) -> MutexGuard<'_, Slots> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::{Extension, routing::get};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::{Duration, Instant, sleep},
    };

    use super::*;

    const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));

    fn port() -> Port {
        let who = |Extension(Caller(caller)): Extension<Caller>| async move {
            caller.map_or_else(|stranger| stranger.to_string(), |()| "of this node".to_owned())
        };
        Port::new(
            Router::new().route("/", get(who)),
            Origin::new(Vec::new()),
            Arc::default(),
        )
    }

    /// A connection from there, if it is taken.
    fn dial(port: &Port, from: IpAddr, stop: &CancellationToken) -> Option<DuplexStream> {
        let (here, there) = duplex(1024);
        let at = SocketAddr::new(NODE, 9100);
        tokio::spawn(port.take(there, SocketAddr::new(from, 40_000), at, stop.clone())?);
        Some(here)
    }

    async fn ask(stream: &mut DuplexStream) -> String {
        let request = b"GET / HTTP/1.1\r\nhost: lc\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_knows_whether_it_comes_from_this_node() {
        let (port, stop) = (port(), CancellationToken::new());
        for (from, said) in [
            (NODE, "of this node"),
            (Ipv4Addr::LOCALHOST.into(), "of this node"),
            (STRANGER, "203.0.113.7 is neither this node nor a pod of it"),
        ] {
            let answer = ask(&mut dial(&port, from, &stop).unwrap()).await;
            assert!(answer.contains(said), "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_few_from_one_address_and_in_all_and_strangers_take_none_of_the_workers() {
        let (port, stop) = (port(), CancellationToken::new());
        let all = |from: IpAddr| -> Vec<_> { std::iter::from_fn(|| dial(&port, from, &stop)).collect() };
        let strangers = all(STRANGER);
        assert_eq!(strangers.len(), limits::OTHERS);
        let mut held = Vec::new();
        for last in 1..=4 {
            // Every address of the loopback is this node's.
            held.push(all(Ipv4Addr::new(127, 0, 0, last).into()));
            assert_eq!(held.last().unwrap().len(), limits::CONNECTIONS_PER_ADDRESS);
        }
        assert_eq!(all(NODE).len(), 0, "there are so many in all");
        held.pop();
        drop(strangers);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(all(NODE).len(), limits::CONNECTIONS_PER_ADDRESS);
        drop(held);
        sleep(limits::HEAD).await;
        let counts = lock(&port.slots);
        assert_eq!((counts.here, counts.others, counts.by_address.len()), (0, 0, 0));
        let text = port.metrics.text().unwrap();
        for why in ["full", "address", "others"] {
            assert!(
                text.contains(&format!("connections_turned_away_total{{outcome=\"{why}\"}}")),
                "{text}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_never_ends_is_not_waited_for() {
        let (port, stop) = (port(), CancellationToken::new());
        let mut stream = dial(&port, NODE, &stop).unwrap();
        let began = Instant::now();
        while stream.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
        let took = began.elapsed();
        assert!((limits::HEAD..limits::HEAD * 2).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_and_reads_nothing_is_closed() {
        let (port, stop) = (port(), CancellationToken::new());
        for from in [NODE, STRANGER] {
            let mut stream = dial(&port, from, &stop).unwrap();
            tokio::spawn(async move {
                for _ in 0..1_000 {
                    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: lc\r\n\r\n").await;
                }
                std::future::pending::<()>().await;
            });
        }
        sleep(Duration::from_secs(3600)).await;
        let counts = lock(&port.slots);
        assert_eq!((counts.here, counts.others), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_is_answered_to_the_end_and_dials_again() {
        let (port, stop) = (port(), CancellationToken::new());
        let mut stream = dial(&port, NODE, &stop).unwrap();
        let (began, mut answers) = (Instant::now(), 0);
        loop {
            stream.write_all(b"GET / HTTP/1.1\r\nhost: lc\r\n\r\n").await.unwrap();
            let mut answer = vec![0; 1024];
            let read = stream.read(&mut answer).await.unwrap();
            let answer = String::from_utf8_lossy(&answer[..read]);
            assert!(answer.ends_with("of this node"), "{answer}");
            answers += 1;
            if began.elapsed() + limits::HEAD / 2 >= limits::KEPT {
                break;
            }
            sleep(limits::HEAD / 2).await;
        }
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty() && answers > 10, "{answers} answers, then {rest:?}");
        assert_eq!(began.elapsed().as_secs(), limits::KEPT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_is_too_large_is_refused() {
        let (port, stop) = (port(), CancellationToken::new());
        for (bytes, status) in [(limits::HEAD_BYTES - 1, "200 OK"), (limits::HEAD_BYTES + 1, "431 ")] {
            let mut stream = dial(&port, NODE, &stop).unwrap();
            let (before, after) = ("GET / HTTP/1.1\r\nconnection: close\r\nx: ", "\r\n\r\n");
            let padding = "x".repeat(bytes - before.len() - after.len());
            let head = format!("{before}{padding}{after}");
            // It need not read all of it to answer.
            let _ = stream.write_all(head.as_bytes()).await;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{bytes}: {answer}");
        }
    }

    #[tokio::test]
    async fn a_stop_finishes_what_has_begun_and_takes_no_more() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (asked, wait) = (
            Arc::new(tokio::sync::Notify::new()),
            Arc::new(tokio::sync::Notify::new()),
        );
        let (tell, waited) = (asked.clone(), wait.clone());
        let slow = move || {
            let (tell, waited) = (tell.clone(), waited.clone());
            async move {
                tell.notify_one();
                waited.notified().await;
                "done"
            }
        };
        let port = Port::new(
            Router::new().route("/", get(slow)),
            Origin::new(Vec::new()),
            Arc::default(),
        );
        let serving = tokio::spawn(port.serve(listener, stop.clone()));
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: lc\r\n\r\n").await.unwrap();
        asked.notified().await;
        stop.cancel();
        wait.notify_one();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("done"), "{answer}");
        serving.await.unwrap();
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
    }
}
