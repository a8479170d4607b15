//! How many may come, and what each may bring.

use std::net::Ipv4Addr;

use super::*;

fn from(address: usize) -> IpAddr {
    Ipv4Addr::from(u32::try_from(address).unwrap()).into()
}

/// As many places as there are from one address.
fn all(doors: &Doors, address: usize) -> Vec<Place> {
    std::iter::from_fn(|| doors.enter(from(address)).ok()).collect()
}

#[test]
fn those_that_have_proven_nothing_are_few_from_one_address_and_in_all() {
    let doors = Doors::default();
    let mut places = vec![];
    for address in 0.. {
        let here = all(&doors, address);
        let left = limits::UNPROVEN - places.len();
        assert_eq!(here.len(), limits::UNPROVEN_PER_ADDRESS.min(left), "from {address}");
        if here.is_empty() {
            break;
        }
        places.extend(here);
    }
    places.pop();
    let refused = doors.enter(from(0)).unwrap_err();
    assert_eq!(
        refused,
        Turned::Address(limits::UNPROVEN_PER_ADDRESS),
        "one address alone does not get what is left"
    );
    places.clear();
    let counts = doors.counts();
    assert_eq!((counts.unproven, counts.by_address.len()), (0, 0), "nothing is kept");
    let words: Vec<_> = counts.turned.keys().copied().collect();
    assert_eq!(words, ["address", "unproven"], "each was counted");
}

#[test]
fn whoever_has_a_whole_network_comes_from_one_address() {
    let doors = Doors::default();
    let enter = |address: String| doors.enter(address.parse().unwrap());
    let places: Vec<_> = (0..limits::UNPROVEN_PER_ADDRESS)
        .map(|i| enter(format!("2001:db8:0:7:{i:x}::1")).unwrap())
        .collect();
    let refused = Turned::Address(limits::UNPROVEN_PER_ADDRESS);
    assert_eq!(enter("2001:db8:0:7::".to_owned()).unwrap_err(), refused);
    assert!(enter("2001:db8:0:8::1".to_owned()).is_ok(), "another network");
    drop(places);
    assert!(doors.counts().by_address.is_empty(), "nothing is kept");

    // Where one socket takes both, IPv4 comes as this; its addresses are not one network.
    let all: Vec<_> = (0..=limits::UNPROVEN_PER_ADDRESS)
        .map(|i| enter(format!("::ffff:10.0.{}.{}", i / 256, i % 256)).unwrap())
        .collect();
    assert_eq!(doors.present(), (all.len(), 0));
}

#[test]
fn a_node_takes_no_place_of_those_that_have_proven_nothing_and_has_few_itself() {
    let doors = Doors::default();
    let prove = |node: &str| {
        let place = doors.enter(from(0)).unwrap();
        place.prove(node, Proof::Certificate).map(|()| place)
    };
    // More than may come from one address without proof.
    let nodes: Vec<_> = (0..2 * limits::UNPROVEN_PER_ADDRESS)
        .map(|i| prove(&format!("edge-{i}")).unwrap())
        .collect();
    assert_eq!(doors.present(), (0, nodes.len()));
    let more: Vec<_> = (1..limits::CONNECTIONS_PER_NODE)
        .map(|_| prove("edge-0").unwrap())
        .collect();
    assert_eq!(prove("edge-0").unwrap_err(), Turned::Node(limits::CONNECTIONS_PER_NODE));
    assert!(prove("edge-1").is_ok(), "another node");
    drop(more);
    assert!(prove("edge-0").is_ok(), "when the others are gone");
    drop(nodes);
    assert_eq!(doors.present(), (0, 0));
    assert!(doors.counts().by_node.is_empty(), "nothing is kept");
}

#[test]
fn nodes_are_so_many_in_all_and_who_invents_names_takes_no_place_of_who_proves_theirs() {
    let doors = Doors::default();
    let prove = |i: usize, proof: Proof| {
        let place = doors.enter(from(0)).unwrap();
        place.prove(&i.to_string(), proof).map(|()| place)
    };
    let mut said: Vec<_> = (0..limits::CONNECTIONS)
        .map(|i| prove(i, Proof::Word).unwrap())
        .collect();
    let full = Turned::Nodes(limits::CONNECTIONS);
    assert_eq!(prove(limits::CONNECTIONS, Proof::Word).unwrap_err(), full);
    let proven: Vec<_> = (0..limits::CONNECTIONS)
        .map(|i| prove(i, Proof::Certificate).unwrap())
        .collect();
    assert_eq!(prove(limits::CONNECTIONS, Proof::Certificate).unwrap_err(), full);
    said.pop();
    assert!(prove(limits::CONNECTIONS, Proof::Word).is_ok());
    drop((said, proven));
    assert_eq!(doors.present(), (0, 0));
}

#[test]
fn who_says_a_nodes_name_takes_none_of_its_places() {
    let doors = Doors::default();
    let prove = |proof: Proof| {
        let place = doors.enter(from(0)).unwrap();
        place.prove("edge-0", proof).map(|()| place)
    };
    let said: Vec<_> = (0..limits::CONNECTIONS_PER_NODE)
        .map(|_| prove(Proof::Word).unwrap())
        .collect();
    assert_eq!(prove(Proof::Word).unwrap_err(), Turned::Node(said.len()));
    assert!(prove(Proof::Certificate).is_ok());
}

#[test]
fn who_has_proven_nothing_brings_few_bytes() {
    let doors = Doors::default();
    let place = doors.enter(from(0)).unwrap();
    assert_eq!(place.brought(limits::BEFORE_HELLO), Ok(()));
    assert_eq!(place.brought(1), Err(TooMuch::BeforeHello));
    place.prove("edge-1", Proof::Certificate).unwrap();
    assert_eq!(place.brought(usize::MAX), Ok(()), "a node may");
}

#[test]
fn of_unfinished_messages_nodes_without_proof_bring_so_much_together_and_a_little_each() {
    let doors = Doors::default();
    let said = |name: &str| {
        let place = doors.enter(from(0)).unwrap();
        place.prove(name, Proof::Word).unwrap();
        place
    };
    let [first, second] = ["edge-1", "edge-2"].map(said);
    assert_eq!(first.brought(limits::SAID_BYTES), Ok(()));
    assert_eq!(second.brought(limits::SAID_BYTES_EACH), Ok(()), "the others go on");
    assert_eq!(second.brought(1), Err(TooMuch::Unfinished));
    assert_eq!(doors.turned(), [("unfinished", 1)].into());
    second.whole(Some(2));
    assert_eq!(second.brought(1), Ok(()), "a pong is whole, and no more than that");
    first.whole(None);
    assert_eq!(second.brought(limits::SAID_BYTES / 2), Ok(()));
    drop(second);
    drop(first);
    assert_eq!(doors.0.unfinished.load(Relaxed), 0, "nothing is kept");
}
