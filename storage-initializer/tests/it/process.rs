use std::process::{Command, Stdio};

use crate::support::Server;

fn run(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skerry-storage-initializer"));
    let output = command
        .args(args)
        .env_clear()
        .env("SSL_CERT_FILE", "/none")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_failure_is_one_sentence_and_exit_code_1() {
    let expected = "skerry-storage-initializer: there is nothing at /none/m.pb\n";
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(
        run(&["/none/m.pb", folder.path().to_str().unwrap()]),
        (Some(1), expected.to_owned())
    );
    let (code, message) = run(&["/none/m.pb"]);
    assert_eq!(code, Some(1));
    assert!(
        message.contains("pairs of a source and a folder are wanted"),
        "{message}"
    );
}

#[test]
fn what_is_there_is_put_into_place() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("m.pb"), folder.path().join("downloads/x"));
    std::fs::write(&source, "m").unwrap();
    let (code, message) = run(&[source.to_str().unwrap(), target.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(std::fs::read(target.join("m.pb")).unwrap(), b"m");
}

/// As in an image that has nothing but this program.
#[tokio::test(flavor = "multi_thread")]
async fn only_tls_needs_certificates() {
    let server = Server::start(&[("m.pb", b"m")]).await;
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().to_str().unwrap();
    let (code, message) = run(&[&server.url("m.pb"), target]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(std::fs::read(folder.path().join("m.pb")).unwrap(), b"m");
    let (code, message) = run(&["https://127.0.0.1/m.pb", target]);
    assert_eq!(code, Some(1));
    let failure = message.lines().last().unwrap();
    assert!(
        failure.contains("cannot fetch https://127.0.0.1/m.pb") && failure.contains("No CA certificates"),
        "{message}"
    );
}
