use std::io::Write as _;

use tempfile::TempDir;

use crate::support::{Server, expected, files};

/// An entry of a tar archive with a name that the library itself would not write.
fn entry(archive: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, name: &str, link: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    archive.append(&header, content).unwrap();
}

fn tar(entries: &[(tar::EntryType, &str, &str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (kind, name, link, content) in entries {
        entry(&mut archive, *kind, name, link, content);
    }
    archive.into_inner().unwrap()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in entries {
        archive
            .start_file(*name, zip::write::SimpleFileOptions::default())
            .unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

const FILE: tar::EntryType = tar::EntryType::Regular;
const FOLDER: tar::EntryType = tar::EntryType::Directory;
const LINK: tar::EntryType = tar::EntryType::Symlink;

/// Fetches one archive into a folder in which there is something already.
async fn fetch(name: &str, content: &[u8]) -> (TempDir, Result<(), String>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("in/model")).unwrap();
    std::fs::write(folder.path().join("in/model/w.bin"), "old").unwrap();
    std::fs::write(folder.path().join("in/other"), "o").unwrap();
    let server = Server::start(&[(name, content)]).await;
    let target = folder.path().join("in");
    let fetched = server.fetch(&[&server.url(name), target.to_str().unwrap()]).await;
    (
        folder,
        fetched.map_err(|error| error.to_string().replace(&server.url(""), "http://h/")),
    )
}

#[tokio::test]
async fn archives_are_unpacked_and_gone() {
    let plain = tar(&[
        (FOLDER, "./", "", b""),
        (FOLDER, "model/", "", b""),
        (FILE, "model/w.bin", "", b"new"),
        (FILE, "./model/v/x", "", b"x"),
        (LINK, "model/latest", "v", b""),
    ]);
    let unpacked: &[(&str, &[u8])] = &[
        ("in/model/latest/x", b"x"),
        ("in/model/v/x", b"x"),
        ("in/model/w.bin", b"new"),
        ("in/other", b"o"),
    ];
    for (name, content) in [("m.tar", &plain), ("m.tar.gz", &gzip(&plain)), ("M.TGZ", &gzip(&plain))] {
        let (folder, fetched) = fetch(name, content).await;
        fetched.unwrap();
        assert_eq!(files(folder.path()), expected(unpacked), "{name}");
    }
    let (folder, fetched) = fetch("m.zip", &zip(&[("model/w.bin", b"new"), ("model/v/x", b"x")])).await;
    fetched.unwrap();
    let unpacked: &[(&str, &[u8])] = &[("in/model/v/x", b"x"), ("in/model/w.bin", b"new"), ("in/other", b"o")];
    assert_eq!(files(folder.path()), expected(unpacked));
}

#[tokio::test]
async fn other_files_stay_as_they_are() {
    let content = gzip(b"text");
    let (folder, fetched) = fetch("m.json.gz", &content).await;
    fetched.unwrap();
    assert_eq!(files(folder.path())["in/m.json.gz"], content);
}

#[tokio::test]
async fn an_archive_that_reaches_out_changes_nothing() {
    let outside = "would be outside its folder";
    let first: (tar::EntryType, &str, &str, &[u8]) = (FILE, "first", "", b"f");
    for (name, content, problem) in [
        (
            "m.tar",
            tar(&[first, (FILE, "../evil", "", b"e")]),
            format!("../evil {outside}"),
        ),
        (
            "m.tar",
            tar(&[first, (FILE, "a/../../evil", "", b"e")]),
            format!("a/../../evil {outside}"),
        ),
        (
            "m.tar",
            tar(&[first, (FILE, "/tmp/evil", "", b"e")]),
            format!("/tmp/evil {outside}"),
        ),
        (
            "m.tar",
            tar(&[(LINK, "l", "/etc", b"")]),
            "l is a link, and points outside".into(),
        ),
        (
            "m.tar",
            tar(&[(LINK, "l", "../..", b""), (FILE, "l/evil", "", b"e")]),
            "l is a link, and points outside".into(),
        ),
        (
            "m.tar",
            tar(&[(tar::EntryType::Link, "l", "/etc/passwd", b"")]),
            "l is a link, and points outside".into(),
        ),
        (
            "m.tar",
            tar(&[(tar::EntryType::Fifo, "p", "", b"")]),
            "p is neither".into(),
        ),
        (
            "m.zip",
            zip(&[("first", b"f"), ("../evil", b"e")]),
            format!("../evil {outside}"),
        ),
        (
            "m.zip",
            zip(&[("first", b"f"), ("/tmp/evil", b"e")]),
            format!("/tmp/evil {outside}"),
        ),
        ("m.tar.gz", b"no archive".to_vec(), String::new()),
        ("m.zip", b"no archive".to_vec(), String::new()),
        (
            "m.tar",
            tar(&[(FILE, "w", "", &[7; 4096])])[..2048].to_vec(),
            String::new(),
        ),
    ] {
        let (folder, fetched) = fetch(name, &content).await;
        let error = fetched.unwrap_err();
        assert!(
            error.starts_with(&format!("cannot unpack http://h/{name}: {problem}")),
            "{error}"
        );
        let mut left = files(folder.path());
        left.remove(&format!("in/{name}"));
        assert_eq!(
            left,
            expected(&[("in/model/w.bin", b"old"), ("in/other", b"o")]),
            "{name}: {problem}"
        );
    }
}
