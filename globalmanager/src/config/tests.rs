use super::*;

fn load(yaml: &str, flags: Flags) -> Result<Config, Error> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), yaml).unwrap();
    Config::load(Flags {
        config: Some(file.path().to_owned()),
        ..flags
    })
}

#[test]
fn a_file_of_sedna_works_as_it_is() {
    let config = load(
        "kubeConfig: \"\"\nmaster: \"\"\nnamespace: \"\"\nwebsocket:\n  address: 0.0.0.0\n  port: 9000\n\
         localController:\n  server: http://localhost:9100\nknowledgeBaseServer:\n  server: http://kb.sedna:9020\n\
         minResyncPeriodSeconds: 30\n",
        Flags::default(),
    )
    .unwrap();
    assert_eq!(config, Config::load(Flags::default()).unwrap());
    assert_eq!(config.edge_address, "0.0.0.0:9000");
}

#[test]
fn what_is_empty_is_not_set() {
    let flags = Flags {
        kubeconfig: Some(PathBuf::new()),
        lease_namespace: Some(String::new()),
        ..Flags::default()
    };
    let yaml = "websocket: {address: \"\"}\nlocalController: {server: \"\"}\nadminAddress: \"\"\nlogFormat:\n";
    assert_eq!(load(yaml, flags).unwrap(), Config::load(Flags::default()).unwrap());
}

#[test]
fn flags_win_over_the_file() {
    let flags = Flags {
        websocket_port: Some(1),
        ..Flags::default()
    };
    let config = load("websocket: {address: 127.0.0.1, port: 2}\nnamespace: edge\n", flags).unwrap();
    assert_eq!(
        (config.edge_address.as_str(), config.namespace.as_deref()),
        ("127.0.0.1:1", Some("edge"))
    );
}

#[test]
fn tls_is_off_until_it_has_an_address_and_certificates_last() {
    assert_eq!(
        load("edgeCertificateLifetime: 24h\n", Flags::default())
            .unwrap()
            .edge_tls,
        None
    );
    let config = load(
        "edgeTlsAddress: 0.0.0.0:9443\nedgeCertificateLifetime: 24h\n",
        Flags::default(),
    );
    let tls = config.unwrap().edge_tls.unwrap();
    assert_eq!(
        (tls.address.as_str(), tls.terms.lifetime),
        ("0.0.0.0:9443", SignedDuration::from_hours(24))
    );
    assert_eq!(tls.terms.grace, Terms::default().grace);
    // In a hundred years there are no times any more that a certificate could name.
    for absurd in ["0s", "-1h", "876001h", "2562047788015215h"] {
        let error = load(&format!("edgeCertificateLifetime: {absurd}\n"), Flags::default());
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("edgeCertificateLifetime") && error.contains("2160h"),
            "{error}"
        );
    }
}

#[test]
fn how_long_an_expired_certificate_can_be_renewed_is_the_operators_to_say() {
    let terms = |yaml: &str, grace: Option<SignedDuration>| {
        let flags = Flags {
            edge_certificate_grace: grace,
            ..Flags::default()
        };
        let yaml = format!("edgeTlsAddress: 0.0.0.0:9443\n{yaml}");
        load(&yaml, flags).map(|config| config.edge_tls.unwrap().terms)
    };
    let grace = |grace| Terms {
        grace,
        ..Terms::default()
    };
    let (file, hours) = ("edgeCertificateGrace: 48h\n", SignedDuration::from_hours);
    assert_eq!(terms("", None).unwrap(), Terms::default());
    assert_eq!(terms(file, None).unwrap(), grace(hours(48)));
    assert_eq!(terms(file, Some(hours(7))).unwrap(), grace(hours(7)));
    assert_eq!(
        terms("edgeCertificateGrace: 0s\n", None).unwrap(),
        grace(SignedDuration::ZERO)
    );
    let error = terms(file, Some(hours(-1))).unwrap_err().to_string();
    assert!(error.contains("edgeCertificateGrace"), "{error}");
}

#[test]
fn certificates_are_set_by_flags_and_by_the_environment() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }
    let line = [
        "x",
        "--edge-certificate-lifetime",
        "24h",
        "--edge-certificate-grace",
        "36h",
    ];
    let flags = <Line as clap::Parser>::parse_from(line).flags;
    assert_eq!(
        (flags.edge_certificate_lifetime, flags.edge_certificate_grace),
        (
            Some(SignedDuration::from_hours(24)),
            Some(SignedDuration::from_hours(36))
        )
    );
    let command = <Line as clap::CommandFactory>::command();
    for (flag, variable) in [
        ("edge_certificate_lifetime", "SKERRY_EDGE_CERTIFICATE_LIFETIME"),
        ("edge_certificate_grace", "SKERRY_EDGE_CERTIFICATE_GRACE"),
    ] {
        let argument = command.get_arguments().find(|argument| argument.get_id() == flag);
        assert_eq!(argument.unwrap().get_env().unwrap(), variable);
    }
}

#[test]
fn old_agents_are_served_in_clear_only_where_that_is_said_twice() {
    let address = "sednaAgentsAddress: 0.0.0.0:9001\n";
    for once in [address.to_owned(), format!("{address}sednaAgentsPlaintext: false\n")] {
        let error = load(&once, Flags::default()).unwrap_err().to_string();
        assert!(error.contains("sednaAgentsPlaintext: true"), "{error}");
    }
    let plaintext = Flags {
        sedna_agents_plaintext: Some(true),
        ..Flags::default()
    };
    assert_eq!(Config::load(plaintext.clone()).unwrap().sedna_agents, None);
    let agents = load(address, plaintext).unwrap().sedna_agents.unwrap();
    assert_eq!((agents.address.as_str(), agents.credentials), ("0.0.0.0:9001", false));
    let all = format!("{address}sednaAgentsPlaintext: true\nsednaAgentsCredentials: true\n");
    assert!(load(&all, Flags::default()).unwrap().sedna_agents.unwrap().credentials);
}

#[test]
fn an_unknown_key_is_refused_with_its_name_and_line() {
    let error = load("namespace: a\nwebsocket:\n  prot: 9000\n", Flags::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("prot") && error.contains('3'), "{error}");
}
