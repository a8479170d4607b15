//! An object storage with one object, for whoever has the key.
//!
//! As little of S3 as the storage initializer asks for: the object's head and the object.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// Serves `object` at `path` on this address, for as long as the harness lives, to who signs with the key `id`.
pub fn serve(address: SocketAddr, path: &'static str, id: &'static str, object: Vec<u8>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Who goes before the end of the answer has lost interest.
            let _ = answer(stream, path, id, &object);
        }
    });
    Ok(())
}

fn answer(mut stream: TcpStream, path: &str, id: &str, object: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let mut signed = false;
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        signed |=
            line.to_ascii_lowercase().starts_with("authorization:") && line.contains(&format!("Credential={id}/"));
    }
    let (method, rest) = request.split_once(' ').unwrap_or_default();
    let found = rest.split([' ', '?']).next() == Some(path);
    let (status, body) = match (signed, found) {
        (true, true) => ("200 OK", object),
        (true, false) => ("404 Not Found", &[][..]),
        (false, _) => ("403 Forbidden", &[][..]),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nConnection: close\r\nETag: \"1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )?;
    if method == "GET" {
        stream.write_all(body)?;
    }
    Ok(())
}
