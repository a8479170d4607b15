//! How many agents there may be: of nodes on which something is placed, and of others.

use super::*;

/// Dials under other names until one is refused.
async fn fill(dialer: &PipeDialer, names: &str) -> Vec<SednaLc> {
    let mut let_in = Vec::new();
    loop {
        let name = format!("{names}-{}", let_in.len());
        match SednaLc::dial(dialer, &name, Held::new()).await {
            Ok(lc) => let_in.push(lc),
            Err(status) => {
                assert_eq!(status, 429);
                return let_in;
            }
        }
        assert!(let_in.len() < 512, "names alone fill all places");
    }
}

#[tokio::test(start_paused = true)]
async fn names_on_which_nothing_is_placed_take_the_places_of_no_others() {
    let (_cluster, dialer) = world(OldAgents::default()).await;
    let mut idle = fill(&dialer, "invented").await;
    let _lc = SednaLc::up_to_date(&dialer).await;
    idle.pop();
    settle().await;
    SednaLc::dial(&dialer, "invented-again", Held::new())
        .await
        .expect("there is a place again");
}

#[tokio::test(start_paused = true)]
async fn those_that_came_before_anything_was_planned_take_the_places_of_no_others() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let early = fill(&dialer, "early").await;
    for number in 0..early.len() {
        let spec = json!({"url": "/d.txt", "format": "txt", "nodeName": format!("early-{number}")});
        cluster.create(&object("Dataset", &format!("d-{number}"), &spec)).await;
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(cluster.hub.snapshot().sessions, early.len(), "they are still there");
    let idle = fill(&dialer, "invented").await;
    assert_eq!(idle.len(), early.len());
}
