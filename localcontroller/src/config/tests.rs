use super::*;

fn args() -> Args {
    Args {
        gm_address: Some("gm.sedna:9000".to_owned()),
        node_name: Some("edge-1".to_owned()),
        ..Args::default()
    }
}

#[test]
fn what_sedna_sets_is_enough() {
    assert_eq!(
        args().resolve_on(None),
        Ok(Config {
            gm_address: "gm.sedna:9000".to_owned(),
            protocol: Protocol::Skerry { identity: None },
            node_name: "edge-1".to_owned(),
            bind: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 9100),
            workers_from: Vec::new(),
            rootfs: PathBuf::from("/rootfs"),
        })
    );
}

#[test]
fn a_node_without_a_name_is_called_as_its_host() {
    let unnamed = || Args {
        node_name: Some(String::new()),
        ..args()
    };
    assert_eq!(
        unnamed().resolve_on(Some("edge-2".to_owned())).unwrap().node_name,
        "edge-2"
    );
    assert_eq!(unnamed().resolve_on(None), Err(ConfigError::NoNode));
    let error = unnamed().resolve_on(Some("Edge_2".to_owned())).unwrap_err();
    assert!(error.to_string().contains("HOSTNAME"), "{error}");
}

#[test]
fn an_empty_rootfs_is_the_host_itself() {
    let config = Args {
        rootfs_mount_dir: Some(String::new()),
        ..args()
    };
    assert_eq!(config.resolve_on(None).unwrap().rootfs, PathBuf::from("/"));
}

#[test]
fn a_managers_address_can_be_dialled() {
    let with = |value: &str| {
        let args = Args {
            gm_address: Some(value.to_owned()),
            ..args()
        };
        args.resolve_on(None).map(|config| config.gm_address)
    };
    for right in ["10.0.0.1:9000", "[fd00::1]:9000", "localhost:1"] {
        assert_eq!(with(right), Ok(right.to_owned()));
        assert_eq!(with(&format!("ws://{right}")), Ok(right.to_owned()));
        assert_eq!(with(&format!("wss://{right}")), Ok(right.to_owned()));
    }
    for wrong in [
        "gm",
        "gm:",
        ":9000",
        "gm:0",
        "gm:70000",
        "http://gm:9000",
        "wss://",
        "wss://gm:9000/",
        "fd00::1:9000",
        "a b:1",
    ] {
        assert_eq!(with(wrong), Err(ConfigError::Manager(wrong.to_owned())));
    }
}

#[test]
fn a_node_proves_who_it_is_over_tls_alone() {
    let with = |address: &str, token: Option<&str>| {
        let args = Args {
            gm_address: Some(address.to_owned()),
            join_token_file: token.map(str::to_owned),
            ..args()
        };
        args.resolve_on(None).map(|config| config.protocol)
    };
    let settings = identity::Settings {
        folder: PathBuf::from("/rootfs/var/lib/skerry/identity"),
        token_file: Some(PathBuf::from("/token")),
    };
    let over = |identity| Ok(Protocol::Skerry { identity });
    assert_eq!(with("wss://gm:9443", Some("/token")), over(Some(settings)));
    assert_eq!(with("gm:9000", None), over(None));
    let error = with("gm:9000", Some("/token")).unwrap_err().to_string();
    assert!(error.contains("JOIN_TOKEN_FILE") && error.contains("wss://"), "{error}");
}

#[test]
fn sednas_protocol_is_spoken_in_clear_only_where_that_is_said_twice() {
    let with = |protocol: &str, plaintext: Option<&str>, address: &str| {
        let args = Args {
            gm_address: Some(address.to_owned()),
            manager_protocol: Some(protocol.to_owned()),
            manager_plaintext: plaintext.map(str::to_owned),
            ..args()
        };
        args.resolve_on(None).map(|config| config.protocol)
    };
    for once in [None, Some(""), Some("false")] {
        let error = with("sedna", once, "gm.sedna:9000").unwrap_err();
        assert!(error.to_string().contains("MANAGER_PLAINTEXT=true"), "{error}");
    }
    for address in ["gm.sedna:9000", "ws://gm.sedna:9000"] {
        assert_eq!(with("sedna", Some("true"), address), Ok(Protocol::Sedna));
    }
    assert_eq!(with("sedna", Some("true"), "wss://gm:9443"), Err(ConfigError::SednaTls));
    let ours = Ok(Protocol::Skerry { identity: None });
    for protocol in ["", "skerry"] {
        assert_eq!(with(protocol, Some("true"), "gm:9000"), ours, "said without need");
    }
    for (protocol, plaintext) in [("Sedna", "true"), ("sedna", "yes")] {
        let error = with(protocol, Some(plaintext), "gm:9000").unwrap_err();
        assert!(error.to_string().contains("it has to be"), "{error}");
    }
}

#[test]
fn an_error_names_the_variable_and_what_would_be_right() {
    let errors = [
        (
            Args {
                gm_address: None,
                ..args()
            },
            "GM_ADDRESS",
        ),
        (
            Args {
                node_name: Some("Edge".into()),
                ..args()
            },
            "NODENAME",
        ),
        (
            Args {
                bind_port: Some("http".into()),
                ..args()
            },
            "BIND_PORT",
        ),
        (
            Args {
                bind_address: Some("eth0".into()),
                ..args()
            },
            "BIND_ADDRESS",
        ),
        (
            Args {
                workers_from: Some("10.0.0.0/8, 10.0.0.0/33".into()),
                ..args()
            },
            "WORKERS_FROM",
        ),
        (
            Args {
                rootfs_mount_dir: Some("rootfs".into()),
                ..args()
            },
            "ROOTFS_MOUNT_DIR",
        ),
    ];
    for (args, variable) in errors {
        let error = args.resolve_on(None).unwrap_err().to_string();
        assert!(error.contains(variable) && error.contains(": "), "{error}");
    }
}
