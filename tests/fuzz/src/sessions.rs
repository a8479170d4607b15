//! Both ends of a session, told whatever frames come, one a line. A line that begins with `!` lets so many milliseconds pass.

use std::{collections::VecDeque, time::Duration};

use skerry_edge::{
    Downstream, Item, Upstream,
    cloud::{self, Peer},
    limits,
    message::{OutboxDepth, Received},
    node::{self, Identity},
};

use crate::{
    Came,
    kept::{FEW, Kept, object},
    manager_doors::term,
};

/// A step of a session.
enum Step<F> {
    Passes(Duration),
    Frame(F),
}

/// The steps of an input; of one that never ends, the first ones.
fn steps<'a, F: 'a>(text: &'a str, decode: impl Fn(&str) -> F + 'a) -> impl Iterator<Item = Step<F>> + 'a {
    text.lines()
        .take(4 * limits::WINDOW_UNSAID as usize)
        .map(move |line| match line.strip_prefix('!') {
            Some(milliseconds) => Step::Passes(Duration::from_millis(milliseconds.parse::<u32>().unwrap_or(1).into())),
            None => Step::Frame(decode(line)),
        })
}

/// The manager's end.
pub(crate) fn manager(data: &[u8]) -> Came {
    let Ok(text) = std::str::from_utf8(data) else {
        return Came::refused("not text");
    };
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(Received::Message(Upstream::Hello(hello))) = Upstream::decode(first) else {
        return Came::refused("no hello");
    };
    let (mut now, peer) = (Duration::from_secs(1), stranger());
    if let Err(refusal) = term().check(&peer, &hello) {
        return Came::refused(refusal.word());
    }
    let mut node = cloud::Node::default();
    for number in 0..FEW {
        node.objects.set(now, Item::Object(object(number)));
    }
    let (mut session, mut outputs) = cloud::Session::start(now, 1, &term(), &peer, hello, &mut node);
    let mut said = Said::default();
    for step in steps(rest, Upstream::decode) {
        if said.heard(&outputs) {
            break;
        }
        let input = match step {
            Step::Passes(time) => {
                now += time;
                cloud::Input::Wake
            }
            Step::Frame(frame) => cloud::Input::Frame(frame),
        };
        outputs = session.handle(now, input, &mut node, &|_| true);
    }
    let over = said.heard(&outputs);
    assert_eq!(
        over,
        session.wake_at().is_none(),
        "a session that is over waits for nothing, and no other does"
    );
    Came::taken(said.0.join(" "))
}

fn stranger() -> Peer {
    Peer {
        identity: None,
        confidential: true,
    }
}

/// What the manager said, each once.
#[derive(Default)]
struct Said(Vec<String>);

impl Said {
    /// Hears what a session wants, and whether it is over: what comes after that is a defect.
    fn heard(&mut self, outputs: &[cloud::Output]) -> bool {
        let mut over = false;
        for output in outputs {
            assert!(!over, "after the end of a session: {output:?}");
            let word = match output {
                cloud::Output::Send(frame) => {
                    let text = frame.encode().unwrap();
                    let read = Downstream::decode(&text);
                    assert!(
                        matches!(&read, Ok(Received::Message(same)) if same == frame),
                        "{text}: {read:?}"
                    );
                    frame.name()
                }
                cloud::Output::Close { end, .. } => {
                    over = true;
                    end.word()
                }
                cloud::Output::Denied(denial) => denial.word(),
                cloud::Output::Report(_) => "report",
                cloud::Output::Gap { .. } => "gap",
                cloud::Output::Acked { .. } => "acked",
                cloud::Output::Strays(_) => "strays",
                cloud::Output::Ping => "ping",
            };
            if !self.0.iter().any(|known| known == word) {
                self.0.push(word.to_owned());
            }
        }
        over
    }
}

/// A node's end, with a store in memory.
pub(crate) fn node(data: &[u8]) -> Came {
    let Ok(text) = std::str::from_utf8(data) else {
        return Came::refused("not text");
    };
    let mut world = World {
        session: empty_node(),
        now: Duration::ZERO,
        kept: Kept::default(),
        ways: Vec::new(),
    };
    world.tell(node::Input::Tick);
    for step in steps(text, Downstream::decode) {
        match step {
            Step::Passes(time) => {
                world.now += time;
                world.tell(node::Input::Tick);
            }
            Step::Frame(frame) => world.tell(node::Input::Frame(frame)),
        }
    }
    Came::taken(world.ways.join(" "))
}

/// The session of a node that holds nothing.
pub(crate) fn empty_node() -> node::Session {
    let identity = Identity {
        node: "edge-1".to_owned(),
        boot: "boot".to_owned(),
        agent: "0.1.0".to_owned(),
    };
    node::Session::new(identity, None, 0)
}

/// What a node's session works with.
struct World {
    session: node::Session,
    now: Duration,
    kept: Kept,
    ways: Vec<&'static str>,
}

impl World {
    /// Feeds the session, and carries out what it asks for, until it asks for nothing more.
    fn tell(&mut self, input: node::Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for output in self.session.handle(self.now, input) {
                inputs.extend(self.carry_out(output));
            }
        }
    }

    fn carry_out(&mut self, output: node::Output) -> Option<node::Input> {
        let (way, input) = match output {
            node::Output::Dial => ("dial", Some(node::Input::Connected)),
            node::Output::Send(frame) => {
                let text = frame.encode().unwrap();
                let read = Upstream::decode(&text);
                assert!(
                    matches!(&read, Ok(Received::Message(same)) if *same == frame),
                    "{text}: {read:?}"
                );
                (frame.name(), None)
            }
            node::Output::Ping => ("ping", None),
            node::Output::Close => (
                "close",
                Some(node::Input::Disconnected {
                    jitter: 0.5,
                    cause: "closed".to_owned(),
                }),
            ),
            node::Output::Store(batch) => {
                let holds = self.kept.store(&batch);
                ("store", Some(node::Input::Stored { holds }))
            }
            node::Output::ReadRows => ("rows", Some(node::Input::Rows(self.kept.rows()))),
            node::Output::Fetch(wanted) => ("fetch", Some(node::Input::Fetched(self.kept.fetch(&wanted)))),
            node::Output::Weigh => {
                let waiting = OutboxDepth {
                    messages: self.kept.waiting(),
                    bytes: 0,
                };
                ("weigh", Some(node::Input::Weighed(Some(waiting))))
            }
            node::Output::Settle { seq, .. } => {
                self.kept.settle(seq);
                ("settle", None)
            }
        };
        if !self.ways.contains(&way) {
            self.ways.push(way);
        }
        input
    }
}

#[cfg(test)]
mod tests {
    use skerry_edge::{
        digest::ChunkHash,
        message::{Hello, Start},
    };

    use super::*;

    #[test]
    fn a_node_that_says_hello_is_welcome() {
        let hello = Upstream::Hello(Hello {
            node: "edge-1".to_owned(),
            boot: "boot".to_owned(),
            protocol: limits::PROTOCOL,
            agent: "0.1.0".to_owned(),
            stored: None,
            holds: 0,
            window: None,
        });
        let came = manager(hello.encode().unwrap().as_bytes());
        assert_eq!(came, Came::taken("welcome"));
    }

    #[test]
    fn a_node_that_is_welcome_tells_its_rows() {
        let welcome = Downstream::Welcome {
            cluster: "cluster".to_owned(),
            epoch: term().epoch,
            start: Start::Digest {
                chunks: vec![ChunkHash::default()],
            },
            reports_per_second: None,
        };
        let came = node(welcome.encode().unwrap().as_bytes());
        assert!(came.way().contains("rows"), "{came:?}");
    }
}
