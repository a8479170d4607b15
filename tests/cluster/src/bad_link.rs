//! A link that others fill: what goes over it waits behind their packets, and now and then one is lost; both ways.
//!
//! By the token bucket and a filter of `tc`, because not every kernel has `netem`.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use socket2::SockRef;

use crate::{
    network::{HARNESS, Host},
    process::run,
};

/// What the link carries, each way. Far more may wait: what is lost is the filter's to say.
const QUEUE: &str = "root tbf rate 4mbit burst 16kb latency 2s";
/// How long those of the others take that always wait, or a little longer: about so late is all else, each way.
pub const DELAY: Duration = Duration::from_millis(120);
/// So many are they at 4 Mbit/s, and so much memory the kernel takes for one. It doubles what it is told.
const WAITING: usize = 45;
const MEMORY: usize = 2304 / 2;
const PACKET: [u8; 1400] = [0; 1400];
/// Where nobody listens.
const DISCARD: u16 = 9;
/// How often the others look whether they can send again.
const BEAT: Duration = Duration::from_millis(5);

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Three packets in a hundred are dropped: `A = random; if A >= 0.03 * 2^32 { pass } else { drop }`.
const LOSS: &str = "4,32 0 0 4294963256,53 0 1 128849019,6 0 0 0,6 0 0 2";

/// The link of a host, for as long as this is not dropped.
pub struct BadLink {
    host: Host,
    over: Arc<AtomicBool>,
    others: Vec<JoinHandle<()>>,
}

impl BadLink {
    /// Makes the host's link bad.
    pub fn of(host: Host) -> anyhow::Result<Self> {
        let mut link = Self {
            host,
            over: Arc::default(),
            others: vec![],
        };
        let Host { name, link: cable, .. } = host;
        tc(&format!("qdisc replace dev {cable} {QUEUE}"))?;
        tc(&format!("-n {name} qdisc replace dev eth0 {QUEUE}"))?;
        tc(&format!("qdisc replace dev {cable} clsact"))?;
        for way in ["egress", "ingress"] {
            let filter = ["filter", "add", "dev", cable, way, "bpf", "da", "bytecode", LOSS];
            run("tc", &filter)?;
        }
        let here = UdpSocket::bind((HARNESS, 0)).context("the others in the cloud")?;
        let there = host.within(move || Ok(UdpSocket::bind((host.address, 0))?));
        let there = there.context("the others on the host")?;
        for (socket, to) in [(here, host.address), (there, HARNESS)] {
            socket.set_nonblocking(true)?;
            SockRef::from(&socket).set_send_buffer_size(WAITING * MEMORY)?;
            let over = link.over.clone();
            link.others.push(thread::spawn(move || fill(&socket, to, &over)));
        }
        Ok(link)
    }

    /// The packets that were lost so far.
    pub fn lost(&self) -> anyhow::Result<u64> {
        let told = tc(&format!("-s qdisc show dev {}", self.host.link))?;
        let of_the_filter = told.split("qdisc clsact").nth(1);
        let dropped = of_the_filter.and_then(|told| told.split("(dropped ").nth(1)?.split(',').next());
        let dropped = dropped.and_then(|number| number.parse().ok());
        dropped.with_context(|| format!("tc tells of nothing that was dropped: {told}"))
    }
}

impl Drop for BadLink {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for others in self.others.drain(..) {
            // They have nothing to say.
            let _ = others.join();
        }
        let Host { name, link, .. } = self.host;
        for end in [
            format!("qdisc del dev {link} root"),
            format!("qdisc del dev {link} clsact"),
            format!("-n {name} qdisc del dev eth0 root"),
        ] {
            // Where there is nothing, all the better.
            let _ = tc(&end);
        }
    }
}

/// Has always as much waiting as the socket may.
fn fill(socket: &UdpSocket, to: Ipv4Addr, over: &AtomicBool) {
    while !over.load(Relaxed) {
        for _ in 0..WAITING {
            // As much waits as may, or the cable is cut, or whoever listens nowhere says so.
            if socket.send_to(&PACKET, (to, DISCARD)).is_err() {
                break;
            }
        }
        thread::sleep(BEAT);
    }
}

/// The quickest of five answers from there, since what is lost is late as well; nothing where none comes.
pub fn round_trip(to: SocketAddr) -> Option<Duration> {
    let answer = |_| {
        let begun = Instant::now();
        let answered = TcpStream::connect_timeout(&to, PATIENCE);
        answered.ok().map(|_| begun.elapsed())
    };
    (0..5).filter_map(answer).min()
}

fn tc(arguments: &str) -> anyhow::Result<String> {
    run("tc", &arguments.split(' ').collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::{
        network::{EDGE, alone},
        process::until,
    };

    fn late_and_lossy() -> anyhow::Result<()> {
        let there = EDGE.within(|| Ok(TcpListener::bind((EDGE.address, 0))?))?;
        let address = there.local_addr()?;
        let is = |late: bool| {
            until(PATIENCE, || {
                Ok(round_trip(address).filter(|took| (*took >= 2 * DELAY) == late))
            })
        };
        is(false).context("a good link is quick")?;
        let link = BadLink::of(EDGE)?;
        is(true).context("a bad one is not")?;
        until(PATIENCE, || Ok((link.lost()? > 10).then_some(()))).context("it loses some")?;
        EDGE.cut()?;
        EDGE.restore()?;
        is(true).context("it is as bad after a cut")?;
        drop(link);
        is(false).context("and good again").map(drop)
    }

    #[test]
    fn what_goes_over_a_bad_link_is_late_and_some_is_lost() {
        alone(late_and_lossy).unwrap();
    }
}
