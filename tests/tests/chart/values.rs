//! What the chart's schema refuses, and that it says where.

use rstest::rstest;

use crate::helm;

#[rstest]
#[case(r#"namespac="edge""#, "namespac")]
#[case(r#"namespace="Edge""#, "/namespace")]
#[case("crds.instal=true", "/crds")]
#[case("globalManager.replicas=-1", "/globalManager/replicas")]
#[case("globalManager.replicas=\"two\"", "/globalManager/replicas")]
#[case(r#"globalManager.image.pull="Always""#, "/globalManager/image")]
#[case(r#"globalManager.image.pullPolicy="Sometimes""#, "/globalManager/image/pullPolicy")]
#[case(
    r#"globalManager.edgeTls.certificateGrace="long""#,
    "/globalManager/edgeTls/certificateGrace"
)]
#[case(
    "globalManager.sednaAgents.enabled=true",
    "globalManager.sednaAgents.plaintext=true as well"
)]
#[case("globalManager.sednaAgents.plaintex=true", "/globalManager/sednaAgents")]
#[case(r#"globalManager.service.type="ExternalName""#, "/globalManager/service/type")]
#[case(
    r#"globalManager.localControllerServer="localhost:9100""#,
    "/globalManager/localControllerServer"
)]
#[case(
    r#"globalManager.networkPolicy.apiServerPorts=["https"]"#,
    "/globalManager/networkPolicy/apiServerPorts"
)]
#[case(r#"globalManager.resources={"limit": {}}"#, "/globalManager/resources")]
#[case("localController.port=0", "/localController/port")]
#[case(r#"localController.managerAddress="gm""#, "/localController/managerAddress")]
#[case(r#"localController.managerProtocol="mqtt""#, "/localController/managerProtocol")]
#[case(
    r#"localController={"managerProtocol": "sedna", "managerAddress": "gm.sedna:9000"}"#,
    "localController.managerPlaintext=true as well"
)]
#[case(
    r#"localController={"managerProtocol": "sedna", "managerPlaintext": true}"#,
    "localController.managerAddress"
)]
#[case(r#"localController.workersFrom=["pods"]"#, "/localController/workersFrom")]
#[case(r#"localController.hostDirectories=["data"]"#, "/localController/hostDirectories")]
#[case(r#"logs.format="xml""#, "/logs/format")]
#[case(r#"metrics.serviceMonitor.interval="often""#, "/metrics/serviceMonitor/interval")]
fn a_wrong_value_is_refused_by_its_name(#[case] set: &str, #[case] named: &str) {
    if helm::is_there() {
        let refusal = helm::template(&[set]).unwrap_err();
        assert!(refusal.contains(named), "{refusal}");
    }
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    if helm::is_there() {
        let lint = std::process::Command::new("helm")
            .args(["lint", "--strict", "--quiet"])
            .arg(helm::chart())
            .output()
            .unwrap();
        assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));
    }
}
