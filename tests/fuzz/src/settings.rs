//! What operators give to the two programs.

use std::fs;

use skerry_globalmanager::config::{Config, Flags};
use skerry_localcontroller::{Args, Protocol};
use tempfile::TempDir;

use crate::Came;

pub(crate) fn manager(data: &[u8]) -> Came {
    thread_local! {
        static FOLDER: TempDir = tempfile::tempdir().unwrap();
    }
    FOLDER.with(|folder| {
        let file = folder.path().join("config.yaml");
        fs::write(&file, data).unwrap();
        let flags = Flags {
            config: Some(file.clone()),
            ..Flags::default()
        };
        match Config::load(flags) {
            Ok(config) => Came::taken(format!("{} {}", config.edge_tls.is_some(), config.log_format as u8)),
            Err(error) => Came::refused(error.to_string().replace(&file.display().to_string(), "")),
        }
    })
}

/// Each variable is named where it is wrong.
pub(crate) fn node(data: &[u8]) -> Came {
    let Ok(text) = std::str::from_utf8(data) else {
        return Came::refused("not text");
    };
    // A name of its own, or that of the host would be taken.
    let mut args = Args {
        node_name: Some("edge-1".to_owned()),
        ..Args::default()
    };
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let field = match name {
            "GM_ADDRESS" => &mut args.gm_address,
            "MANAGER_PROTOCOL" => &mut args.manager_protocol,
            "MANAGER_PLAINTEXT" => &mut args.manager_plaintext,
            "JOIN_TOKEN_FILE" => &mut args.join_token_file,
            "IDENTITY_DIR" => &mut args.identity_dir,
            "NODENAME" if !value.trim().is_empty() => &mut args.node_name,
            "BIND_ADDRESS" => &mut args.bind_address,
            "BIND_PORT" => &mut args.bind_port,
            "WORKERS_FROM" => &mut args.workers_from,
            "ROOTFS_MOUNT_DIR" => &mut args.rootfs_mount_dir,
            _ => continue,
        };
        *field = Some(value.to_owned());
    }
    match args.resolve() {
        Ok(config) => {
            assert!(config.rootfs.is_absolute(), "{}", config.rootfs.display());
            assert!(config.gm_address.contains(':'), "{:?}", config.gm_address);
            let speaks = match config.protocol {
                Protocol::Skerry { identity } => format!("skerry {}", identity.is_some()),
                Protocol::Sedna => "sedna".to_owned(),
            };
            Came::taken(format!("{speaks} {}", !config.workers_from.is_empty()))
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.contains("(--"), "no setting is named: {sentence}");
            Came::refused(sentence)
        }
    }
}
