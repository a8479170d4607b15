use jiff::Timestamp;
use skerry_edge::{
    ContentHash,
    identity::{Authority, Issued, certificate_pem},
};
use tempfile::TempDir;

use super::*;

/// A host on which `node` has joined, by this token.
fn joined(node: &str, token: &JoinToken) -> TempDir {
    let root = TempDir::new().unwrap();
    let folder = Folder::open(root.path()).unwrap();
    let authority = Authority::new("cluster", Timestamp::now()).unwrap();
    let key = folder.joining_key(token).unwrap();
    let certificate = authority
        .issue(
            node,
            &key.request().unwrap(),
            Timestamp::now(),
            SignedDuration::from_hours(1),
        )
        .unwrap();
    let issued = Issued {
        certificate: certificate_pem(&certificate),
        authority: authority.pem().to_owned(),
    };
    folder
        .keep(&Joined::new(node, &token.id, &key, issued).unwrap())
        .unwrap();
    root
}

fn token() -> JoinToken {
    JoinToken::generate(ContentHash::of(b"authority"))
}

fn open(root: &TempDir, node: &str, token: Option<&str>) -> Result<Identity, IdentityError> {
    let token_file = root.path().join("token");
    let _ = fs::remove_file(&token_file);
    if let Some(token) = token {
        fs::write(&token_file, token).unwrap();
    }
    let settings = Settings {
        folder: root.path().to_owned(),
        token_file: Some(token_file),
    };
    Identity::open(node, "manager:9443", settings)
}

#[test]
fn who_has_joined_needs_no_token_and_heeds_a_new_one_alone() {
    let used = token();
    let root = joined("edge-1", &used);
    for (token, heeded) in [
        (None, false),
        (Some("something else"), false),
        (Some(used.reveal().as_str()), false),
        (Some(token().reveal().as_str()), true),
    ] {
        let identity = open(&root, "edge-1", token).unwrap();
        assert_eq!(matches!(identity.new_token(), Ok(Some(_))), heeded, "{token:?}");
    }
}

#[tokio::test]
async fn who_has_not_joined_waits_for_a_token_and_says_what_is_wrong_with_the_one_there_is() {
    let root = TempDir::new().unwrap();
    for (token, wrong) in [
        (None, "`skerry nodes join-token edge-1`"),
        (Some("something else"), "is not a join token"),
    ] {
        let why = open(&root, "edge-1", token).unwrap().try_join().await.unwrap_err();
        assert!(why.contains("JOIN_TOKEN_FILE") && why.contains(wrong), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_comes_later_is_found_within_seconds() {
    let root = TempDir::new().unwrap();
    let identity = open(&root, "edge-1", None).unwrap();
    let (begun, minute) = (Instant::now(), Duration::from_secs(60));
    identity.wait(minute, None).await;
    assert_eq!(begun.elapsed(), minute);
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fs::write(root.path().join("token"), token().reveal()).unwrap();
    };
    tokio::join!(identity.wait(minute, None), later);
    assert_eq!(begun.elapsed(), minute + TOKEN);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_came_while_another_was_tried_is_not_waited_for() {
    let root = TempDir::new().unwrap();
    let (refused, came) = (token().reveal(), token().reveal());
    let identity = open(&root, "edge-1", Some(&came)).unwrap();
    let (begun, minute) = (Instant::now(), Duration::from_secs(60));
    identity.wait(minute, Some(refused)).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    identity.wait(minute, Some(came)).await;
    assert_eq!(begun.elapsed(), minute);
}

#[test]
fn who_has_not_joined_and_looks_nowhere_for_a_token_does_not_start() {
    let root = TempDir::new().unwrap();
    let settings = Settings {
        folder: root.path().to_owned(),
        token_file: None,
    };
    let error = Identity::open("edge-1", "manager:9443", settings).err().unwrap();
    assert!(matches!(error, IdentityError::NoToken { .. }), "{error}");
}

#[test]
fn a_host_that_is_renamed_has_to_join_again() {
    let used = token();
    let root = joined("edge-1", &used);
    let settings = Settings {
        folder: root.path().to_owned(),
        token_file: None,
    };
    let error = Identity::open("edge-2", "manager:9443", settings).err().unwrap();
    assert!(matches!(error, IdentityError::Renamed { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("edge-1") && error.contains("edge-2"), "{error}");
    assert!(open(&root, "edge-2", Some(&token().reveal())).is_ok());
}

#[tokio::test]
async fn a_host_that_is_renamed_waits_for_a_token_and_is_not_taken_for_what_it_was() {
    let used = token();
    let root = joined("edge-1", &used);
    for (token, wrong) in [
        (None, "has joined as edge-1"),
        (Some(used.reveal()), "has joined as edge-1"),
        (Some("something else".to_owned()), "is not a join token"),
    ] {
        let mut identity = open(&root, "edge-2", token.as_deref()).unwrap();
        let why = identity.try_join().await.unwrap_err();
        assert!(why.contains(wrong), "{why}");
    }
}

#[test]
fn the_manager_is_asked_more_often_over_a_short_life() {
    let root = joined("edge-1", &token());
    let identity = open(&root, "edge-1", None).unwrap();
    assert_eq!(identity.pause(), Duration::from_secs(600));
}
