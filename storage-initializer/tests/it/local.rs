use crate::support::{Server, expected, files};

#[tokio::test]
async fn what_is_mounted_is_linked_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let (data, downloads) = (folder.path().join("data"), folder.path().join("downloads"));
    std::fs::create_dir_all(data.join("sub")).unwrap();
    for (file, content) in [("a.csv", "a"), ("sub/b.csv", "b"), (".hidden", "h")] {
        std::fs::write(data.join(file), content).unwrap();
    }
    let server = Server::start(&[]).await;
    let (source, target) = (data.to_str().unwrap(), downloads.to_str().unwrap());
    for _ in 0..2 {
        server
            .fetch(&[source, target, &format!("file://{source}/sub/b.csv"), target])
            .await
            .unwrap();
        assert_eq!(
            files(&downloads),
            expected(&[("a.csv", b"a"), ("b.csv", b"b"), ("sub/b.csv", b"b")])
        );
    }
    assert!(downloads.join("a.csv").is_symlink());

    let error = server.fetch(&["/none/a.csv", target]).await.unwrap_err().to_string();
    assert_eq!(error, "there is nothing at /none/a.csv");
}
