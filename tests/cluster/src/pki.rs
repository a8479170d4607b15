//! Certificates and kubeconfigs of one cluster.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The file of the tokens that the API server knows when it starts, as `--token-auth-file` has them.
pub const TOKENS: &str = "tokens.csv";

/// What the kubeconfig of a user is called, among what is issued.
pub(crate) fn kubeconfig_name(user: &str) -> String {
    format!("{}.kubeconfig", user.replace(':', "-"))
}

/// The certificate authority of a cluster, with a folder for what it issues.
pub struct Pki {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Pki {
    /// A new authority: `ca.crt`, and the key pair of service account tokens as `sa.key` and `sa.pub`.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "skerry-tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let tokens = KeyPair::generate()?;
        let pki = Self {
            folder: folder.to_owned(),
            issuer,
        };
        pki.write("ca.crt", &pki.issuer.pem())?;
        pki.write("ca.key", &pki.issuer.key().serialize_pem())?;
        pki.write("sa.key", &tokens.serialize_pem())?;
        pki.write("sa.pub", &tokens.public_key_pem())?;
        Ok(pki)
    }

    /// The path of `ca.crt`, `ca.key`, `sa.key`, `sa.pub` or [`TOKENS`].
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The certificate of a server at these addresses and names.
    pub fn server(&self, name: &str, at: &[String]) -> anyhow::Result<Pair> {
        let mut params = CertificateParams::new(at.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(name, params)
    }

    /// The certificate of a user in some groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> anyhow::Result<Pair> {
        let mut params = CertificateParams::default();
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&user.replace(':', "-"), params)
    }

    /// A kubeconfig with which a user reaches the API server.
    pub fn kubeconfig(&self, server: &str, user: &str, groups: &[&str]) -> anyhow::Result<PathBuf> {
        let pair = self.client(user, groups)?;
        let credentials = json!({"client-certificate": pair.certificate, "client-key": pair.key});
        self.kubeconfig_with(&credentials, server, user)
    }

    /// The same by a token, for an API server that is yet to start, with [`TOKENS`]: a certificate is verified once more with
    /// each request.
    pub fn kubeconfig_by_token(&self, server: &str, user: &str, group: &str) -> anyhow::Result<()> {
        let token = skerry_dist::hex(&Sha256::digest(KeyPair::generate()?.serialize_der()));
        let mut tokens = File::options().create(true).append(true).open(self.file(TOKENS))?;
        writeln!(tokens, "{token},{user},{user},{group}")?;
        self.kubeconfig_with(&json!({"token": token}), server, user).map(drop)
    }

    fn kubeconfig_with(&self, credentials: &Value, server: &str, user: &str) -> anyhow::Result<PathBuf> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {
                "server": server, "certificate-authority": self.file("ca.crt"),
            }}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
            "current-context": "tests",
        });
        self.write(&kubeconfig_name(user), &serde_json::to_string_pretty(&config)?)
    }

    fn issue(&self, name: &str, mut params: CertificateParams) -> anyhow::Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pair {
            certificate: self.write(&format!("{name}.crt"), &certificate.pem())?,
            key: self.write(&format!("{name}.key"), &key.serialize_pem())?,
        })
    }

    fn write(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}
