use tempfile::TempDir;

use crate::support::{Fault, Server, expected, files};

fn content() -> Vec<u8> {
    (0..100_000_u32).flat_map(u32::to_le_bytes).collect()
}

/// A server with one file, a folder to fetch it into, and that folder's path.
async fn one_file(content: &[u8]) -> (Server, TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h/models").to_str().unwrap().to_owned();
    (Server::start(&[("models/m.pb", content)]).await, folder, path)
}

#[tokio::test]
async fn a_file_arrives_and_nothing_else() {
    let (server, folder, path) = one_file(&content()).await;
    server.fetch(&[&server.url("models/m.pb?v=1"), &path]).await.unwrap();
    assert!(files(folder.path()) == expected(&[("h/models/m.pb", &content())]));
    assert_eq!(server.ranges(), [None]);
}

#[tokio::test]
async fn a_broken_download_goes_on_where_it_broke() {
    let (server, folder, path) = one_file(&content()).await;
    // More breaks than attempts: what brings something is not counted as a failure.
    server
        .objects()
        .faults
        .extend([1000, 2000, 0, 3000, 4000].map(Fault::Break));
    server.fetch(&[&server.url("models/m.pb"), &path]).await.unwrap();
    assert!(files(folder.path()) == expected(&[("h/models/m.pb", &content())]));
    let ranges = server.ranges();
    assert_eq!(ranges.len(), 6);
    assert_eq!(ranges[0], None);
    assert_eq!(ranges.last().unwrap().as_deref(), Some("bytes=10000-"));
}

#[tokio::test]
async fn content_that_changes_meanwhile_is_begun_anew() {
    let (server, folder, path) = one_file(&content()).await;
    let changed = vec![7; 5000];
    server
        .objects()
        .faults
        .push_back(Fault::BreakAndChange(1000, changed.clone()));
    server.fetch(&[&server.url("models/m.pb"), &path]).await.unwrap();
    assert!(files(folder.path()) == expected(&[("h/models/m.pb", &changed)]));
    assert_eq!(server.ranges(), [None, Some("bytes=1000-".into())]);
}

#[tokio::test]
async fn without_versions_every_attempt_begins_anew() {
    let (server, folder, path) = one_file(&content()).await;
    server.objects().versions = false;
    server.objects().faults.push_back(Fault::Break(1000));
    server.fetch(&[&server.url("models/m.pb"), &path]).await.unwrap();
    assert!(files(folder.path()) == expected(&[("h/models/m.pb", &content())]));
    assert_eq!(server.ranges(), [None, None]);
}

#[tokio::test]
async fn what_one_run_received_the_next_need_not() {
    let (server, folder, path) = one_file(&content()).await;
    let url = server.url("models/m.pb");
    server
        .objects()
        .faults
        .extend([Fault::Break(1000), Fault::Status(503), Fault::Status(503)]);
    let error = server.fetch(&[&url, &path]).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!("cannot fetch {url}: it answers 503 Service Unavailable (3 attempts)")
    );
    let left: Vec<String> = files(folder.path()).into_keys().collect();
    assert!(
        matches!(&left[..], [part] if part.starts_with("h/models/.m.pb.")),
        "no half file in its place: {left:?}"
    );

    server.objects().seen.clear();
    server.fetch(&[&url, &path]).await.unwrap();
    // The first answer only tells the version.
    assert_eq!(server.ranges(), [None, Some("bytes=1000-".into())]);
    assert!(files(folder.path()) == expected(&[("h/models/m.pb", &content())]));
}

#[tokio::test]
async fn what_an_earlier_run_left_of_another_version_is_removed() {
    let (server, folder, path) = one_file(&content()).await;
    let url = server.url("models/m.pb");
    server.objects().faults.extend([Fault::Break(1000), Fault::Status(403)]);
    server.fetch(&[&url, &path]).await.unwrap_err();
    server.objects().content.insert("models/m.pb".into(), vec![7; 5000]);
    server.fetch(&[&url, &path]).await.unwrap();
    assert!(files(folder.path()) == expected(&[("h/models/m.pb", &[7; 5000])]));
}

#[tokio::test]
async fn a_refusal_is_final_and_an_overload_is_not() {
    let (server, _folder, path) = one_file(b"m").await;
    let url = server.url("models/m.pb");
    server.objects().faults.push_back(Fault::Status(403));
    let error = server
        .fetch(&[&format!("{url}?signature=secret"), &path])
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(error, format!("cannot fetch {url}: it answers 403 Forbidden"));
    assert_eq!(server.ranges().len(), 1);

    let error = server
        .fetch(&[&server.url("none.pb"), &path])
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(error, format!("there is nothing at {}", server.url("none.pb")));

    server.objects().faults.extend([503, 429].map(Fault::Status));
    server.fetch(&[&url, &path]).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let (_, _folder, path) = one_file(b"").await;
    let server = Server::start(&[]).await;
    let error = server
        .fetch(&["http://127.0.0.1:1/m.pb", &path])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot fetch http://127.0.0.1:1/m.pb: Connection refused"),
        "{error}"
    );
}

#[tokio::test]
async fn a_host_gets_the_headers_that_are_meant_for_it() {
    let (server, _folder, path) = one_file(b"m").await;
    let headers = r#"{"X-Token": "t"}"#;
    server
        .fetch_with(&[&server.url("models/m.pb"), &path], &[("127.0.0.1-headers", headers)])
        .await
        .unwrap();
    server
        .fetch_with(&[&server.url("models/m.pb"), &path], &[("other-headers", headers)])
        .await
        .unwrap();
    let tokens: Vec<_> = server.objects().seen.iter().map(|seen| seen.token.clone()).collect();
    assert_eq!(tokens, [Some("t".to_owned()), None]);
}
