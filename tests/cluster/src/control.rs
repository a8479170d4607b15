//! The control of a plane, for scenarios that take it down: they run in another process, and say by a socket what is to
//! happen. One line is a command, one line is the answer.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context, bail};

use crate::control_plane::ControlPlane;

/// Obeys whoever connects to `socket`, for as long as this process lives.
pub fn serve(plane: Arc<Mutex<ControlPlane>>, socket: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket).with_context(|| format!("listening on {}", socket.display()))?;
    thread::spawn(move || {
        for connection in listener.incoming() {
            // Whoever hangs up learns nothing, and spoils nothing.
            if let Err(error) = connection.map_err(Into::into).and_then(|asked| answer(&plane, asked)) {
                eprintln!("the control of a plane: {error:#}");
            }
        }
    });
    Ok(())
}

fn answer(plane: &Mutex<ControlPlane>, mut connection: UnixStream) -> anyhow::Result<()> {
    let mut command = String::new();
    BufReader::new(&connection).read_line(&mut command)?;
    let mut plane = plane.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = match obey(&mut plane, command.trim()) {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("{error:#}").replace('\n', " "),
    };
    Ok(writeln!(connection, "{answer}")?)
}

fn obey(plane: &mut ControlPlane, command: &str) -> anyhow::Result<()> {
    match command {
        "kill the API server" => plane.kill_api_server(),
        "stop the API server" => plane.stop_api_server(),
        "stop etcd" => plane.stop_etcd(),
        "restore" => plane.restore(),
        other => bail!("{other:?} is none of: kill the API server, stop the API server, stop etcd, restore"),
    }
}
