use tempfile::TempDir;

use crate::support::{Fault, Server, expected, files};

const BUCKET: &[(&str, &[u8])] = &[
    ("b/models/ckpt.data", b"data"),
    ("b/models/ckpt.index", b"index"),
    ("b/models/net/", b""),
    ("b/models/net/a.bin", b"a"),
    ("b/models/net/sub/b.bin", b"b"),
    ("b/models/net/sub/c.bin", b"c"),
    ("b/models/one.pb", b"one"),
    ("b/models/one.pb.old", b"old"),
    ("b/top.txt", b"top"),
];

async fn start() -> (Server, TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    (Server::start(BUCKET).await, folder, path)
}

#[tokio::test]
async fn keys_and_beginnings_of_keys() {
    let net: &[(&str, &[u8])] = &[("net/a.bin", b"a"), ("net/sub/b.bin", b"b"), ("net/sub/c.bin", b"c")];
    for (source, arrives) in [
        ("s3://b/models/one.pb", &[("one.pb", &b"one"[..])][..]),
        ("obs://b/top.txt", &[("top.txt", b"top")]),
        (
            "s3://b/models/ckpt",
            &[("ckpt.data", b"data"), ("ckpt.index", b"index")],
        ),
        ("s3://b/models/net", net),
        ("s3://b/models/net/", net),
        ("s3://b/models/net/sub/b.bin", &[("b.bin", b"b")]),
    ] {
        let (server, folder, path) = start().await;
        server.fetch(&[source, &path]).await.unwrap();
        assert_eq!(files(folder.path()), expected(arrives), "{source}");
    }
    let (server, folder, path) = start().await;
    server.fetch(&["s3://b", &path]).await.unwrap();
    assert_eq!(files(folder.path()).len(), 8, "all but the mark of a folder");
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let (server, _folder, path) = start().await;
    for source in ["s3://b/models/none", "s3://b/zzz/", "s3://c"] {
        let error = server.fetch(&[source, &path]).await.unwrap_err().to_string();
        assert_eq!(error, format!("there is nothing at {source}"));
    }
}

#[tokio::test]
async fn a_broken_download_goes_on_where_it_broke() {
    let content: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
    let (server, folder, path) = start().await;
    server.objects().content.insert("b/big.bin".into(), content.clone());
    server
        .objects()
        .faults
        .extend([Fault::Break(1000), Fault::Status(500), Fault::Break(3000)]);
    server.fetch(&["s3://b/big.bin", &path]).await.unwrap();
    assert!(files(folder.path()) == expected(&[("big.bin", &content)]));
    assert_eq!(server.ranges().last().unwrap().as_deref(), Some("bytes=4000-"));
}

#[tokio::test]
async fn content_that_changes_meanwhile_is_begun_anew() {
    let (server, folder, path) = start().await;
    server.objects().content.insert("b/big.bin".into(), vec![1; 9000]);
    server
        .objects()
        .faults
        .push_back(Fault::BreakAndChange(1000, vec![2; 5000]));
    server.fetch(&["s3://b/big.bin", &path]).await.unwrap();
    assert!(files(folder.path()) == expected(&[("big.bin", &[2; 5000])]));
    assert_eq!(server.ranges(), [None, Some("bytes=1000-".into()), None]);
}

#[tokio::test]
async fn requests_are_signed_where_there_are_keys() {
    let (server, _folder, path) = start().await;
    server.fetch(&["s3://b/top.txt", &path]).await.unwrap();
    let endpoint = server.url("");
    server
        .fetch_with(
            &["s3://b/top.txt", &path],
            &[("S3_ENDPOINT_URL", endpoint.trim_end_matches('/'))],
        )
        .await
        .unwrap();
    let signed: Vec<_> = server
        .objects()
        .seen
        .iter()
        .map(|seen| seen.authorization.clone())
        .collect();
    assert!(
        signed[0]
            .as_ref()
            .is_some_and(|header| header.contains("Credential=id/")),
        "{signed:?}"
    );
    assert_eq!(signed[1], None);
}

#[tokio::test]
async fn an_index_is_followed() {
    let (server, folder, path) = start().await;
    let index = b"# of the node\ns3://b/models/\nnet/a.bin\nnet/sub/b.bin\ngone.bin\nnet/a.bin\n";
    server.objects().content.insert("b/index.txt".into(), index.to_vec());
    server
        .fetch(&["s3://b/index.txt", &format!("@{path}/data")])
        .await
        .unwrap();
    assert_eq!(
        files(folder.path()),
        expected(&[("data/net/a.bin", b"a"), ("data/net/sub/b.bin", b"b")])
    );
}

#[tokio::test]
async fn an_index_that_is_none_is_refused() {
    for (index, problem) in [
        (&b"s3://b/models\n../../etc/passwd\n"[..], "is no path below its base"),
        (b"s3://b/models\nnone\n", "nothing of what it lists is there"),
        (b"\xff\xfe", "UTF-8"),
    ] {
        let (server, folder, path) = start().await;
        server.objects().content.insert("b/index.txt".into(), index.to_vec());
        let error = server
            .fetch(&["s3://b/index.txt", &format!("@{path}/data")])
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the index s3://b/index.txt: ") && error.contains(problem),
            "{error}"
        );
        assert!(files(folder.path()).is_empty());
    }
    let (server, folder, path) = start().await;
    let error = server
        .fetch(&["s3://b/models/net", &format!("@{path}/data")])
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("one file is wanted, not a folder"), "{error}");
    server
        .objects()
        .content
        .insert("b/empty.txt".into(), b"# nothing\n".to_vec());
    server
        .fetch(&["s3://b/empty.txt", &format!("@{path}/data")])
        .await
        .unwrap();
    assert!(files(folder.path()).is_empty());
}
