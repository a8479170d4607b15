//! EndpointSlices: for each Service with a selector one slice that lists the pods behind it, ready or not.
//!
//! Kubernetes spreads more than 100 endpoints, and pods whose named ports differ, over several slices; here one slice
//! with the ports of the first pod has to do.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::effect::{Body, Delete, Effect};
use super::meta::{controller_reference, deleting, finished, has_labels, ready};

/// The label that ties a slice to its Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";

/// What to do about the slices of a Service, given the pods and slices of its namespace.
pub(crate) fn reconcile(service: &Service, pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) -> Vec<Effect> {
    let Some(spec) = &service.spec else { return vec![] };
    let external = spec.type_.as_deref() == Some("ExternalName");
    let Some(selector) = spec
        .selector
        .as_ref()
        .filter(|selector| !selector.is_empty() && !external)
    else {
        return vec![];
    };
    if deleting(service) {
        return vec![];
    }
    let members: Vec<&Pod> = pods
        .iter()
        .map(AsRef::as_ref)
        .filter(|pod| {
            has_labels(Some(selector), pod.metadata.labels.as_ref()) && !finished(pod) && address(pod).is_some()
        })
        .collect();
    let mut ours = slices.iter().filter(|slice| {
        slice.labels().get(SERVICE_NAME) == Some(&service.name_any())
            && slice.labels().get(MANAGED_BY).is_some_and(|by| by == MANAGER)
    });
    let known = ours.next();
    let wanted = slice(service, &members, known.map(AsRef::as_ref));
    let mut effects = match known {
        None => vec![Effect::Create(Body::of(&wanted), None)],
        Some(known) if **known == wanted => vec![],
        Some(_) => vec![Effect::Update(Body::of(&wanted))],
    };
    effects.extend(ours.map(|surplus| Effect::Delete(Delete::of(surplus.as_ref()))));
    effects
}

fn slice(service: &Service, pods: &[&Pod], known: Option<&EndpointSlice>) -> EndpointSlice {
    let reserved = |key: &str| [SERVICE_NAME, MANAGED_BY, HEADLESS].contains(&key);
    let mut labels: BTreeMap<String, String> = service
        .labels()
        .iter()
        .filter(|(key, _)| !reserved(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    labels.insert(SERVICE_NAME.to_owned(), service.name_any());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref())
        .is_none_or(|ip| ip.is_empty() || ip == "None")
    {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    let metadata = match known {
        Some(known) => ObjectMeta {
            labels: Some(labels),
            ..known.metadata.clone()
        },
        None => ObjectMeta {
            generate_name: Some(format!("{}-", service.name_any())),
            namespace: service.namespace(),
            labels: Some(labels),
            owner_references: Some(vec![controller_reference(service)]),
            ..ObjectMeta::default()
        },
    };
    let ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.clone())
        .unwrap_or_default();
    let publish_all = service
        .spec
        .as_ref()
        .and_then(|spec| spec.publish_not_ready_addresses)
        .unwrap_or_default();
    let ports: Vec<_> = ports
        .iter()
        .filter_map(|port| endpoint_port(port, pods.first().copied()))
        .collect();
    EndpointSlice {
        metadata,
        address_type: "IPv4".to_owned(),
        endpoints: pods.iter().filter_map(|pod| endpoint(pod, publish_all)).collect(),
        ports: (!ports.is_empty()).then_some(ports),
    }
}

fn endpoint(pod: &Pod, publish_all: bool) -> Option<Endpoint> {
    let (serving, terminating) = (ready(pod), deleting(pod));
    Some(Endpoint {
        addresses: vec![address(pod)?.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(publish_all || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.namespace(),
            name: Some(pod.name_any()),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

/// A Service port as the pods have it. A port by name is looked up in the pod; without pods nothing is known of it.
fn endpoint_port(port: &ServicePort, pod: Option<&Pod>) -> Option<EndpointPort> {
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) if *number == 0 => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => named_port(pod?, name)?,
    };
    pod?;
    Some(EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(number),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    })
}

fn named_port(pod: &Pod, name: &str) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .find(|port| port.name.as_deref() == Some(name))
        .map(|port| port.container_port)
}

fn address(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref().filter(|ip| !ip.is_empty())
}
