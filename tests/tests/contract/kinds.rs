//! The kinds whose objects are generated: what an object needs, and the parts that it may get or be patched with. Some fit
//! and some do not.

mod cameras;
mod ours;

use serde_json::{Value, json};

/// A piece of a document.
pub type Part = fn() -> Value;

/// A kind.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Its `apiVersion`.
    pub version: &'static str,
    /// The path of its collection.
    pub path: &'static str,
    /// Whether it is one of ours.
    pub custom: bool,
    /// What each object has.
    pub base: Part,
    /// What objects may have.
    pub parts: &'static [Part],
    /// What is written to the status.
    pub status: &'static [Part],
}

/// All of them.
pub const KINDS: &[Kind] = &[
    CONFIG_MAP,
    SECRET,
    LEASE,
    SERVICE,
    DEPLOYMENT,
    POD,
    AUTOSCALER,
    EVENT,
    ours::DATASET,
    ours::MODEL,
    ours::JOINT_INFERENCE,
    ours::FEDERATED_LEARNING,
    ours::INCREMENTAL_LEARNING,
    ours::LIFELONG_LEARNING,
    cameras::FEATURE_EXTRACTION,
    cameras::OBJECT_SEARCH,
    cameras::OBJECT_TRACKING,
    cameras::VIDEO_ANALYTICS,
    cameras::REID,
    ours::EDGE_NODE,
];

const LABELLED: Part = || json!({"metadata": {"labels": {"x": "1"}}});
const RELABELLED: Part = || json!({"metadata": {"labels": {"x": "2", "z": "3"}}});
const BADLY_LABELLED: Part = || json!({"metadata": {"labels": {"x": "not valid!"}}});
const UNLABELLED: Part = || json!({"metadata": {"labels": null}});
const ANNOTATED: Part = || json!({"metadata": {"annotations": {"a.io/b": "c"}}});
const HELD: Part = || json!({"metadata": {"finalizers": ["a.io/b"]}});
const FREE: Part = || json!({"metadata": {"finalizers": []}});
const OWNED: Part = || {
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1", "controller": true}]}})
};
const UNKNOWN: Part = || json!({"spec": {"unknownField": 1}});
const NOTHING: Part = || json!({});

const CONFIG_MAP: Kind = Kind {
    name: "ConfigMap",
    version: "v1",
    path: "~/configmaps",
    custom: false,
    base: NOTHING,
    parts: &[
        LABELLED,
        RELABELLED,
        BADLY_LABELLED,
        UNLABELLED,
        ANNOTATED,
        HELD,
        FREE,
        OWNED,
        || json!({"data": {"k": "v"}}),
        || json!({"data": {"k": "w", "l": "m"}}),
        || json!({"data": {"k": 5}}),
        || json!({"data": null}),
        || json!({"binaryData": {"b": "eA=="}}),
        || json!({"immutable": true}),
    ],
    status: &[],
};

const SECRET: Kind = Kind {
    name: "Secret",
    version: "v1",
    path: "~/secrets",
    custom: false,
    base: NOTHING,
    parts: &[
        LABELLED,
        RELABELLED,
        ANNOTATED,
        HELD,
        FREE,
        || json!({"data": {"k": "eA=="}}),
        || json!({"data": {"k": "not base64!"}}),
        || json!({"stringData": {"k": "v", "l": "m"}}),
        || json!({"type": "example.com/other"}),
        || json!({"type": "kubernetes.io/tls"}),
    ],
    status: &[],
};

const LEASE: Kind = Kind {
    name: "Lease",
    version: "coordination.k8s.io/v1",
    path: "coordination.k8s.io/v1~/leases",
    custom: false,
    base: NOTHING,
    parts: &[
        LABELLED,
        HELD,
        FREE,
        || json!({"spec": {"holderIdentity": "one", "leaseDurationSeconds": 15}}),
        || json!({"spec": {"holderIdentity": ""}}),
        || json!({"spec": {"holderIdentity": null}}),
        || json!({"spec": {"renewTime": "2020-01-01T00:00:00.123456Z"}}),
        || json!({"spec": {"renewTime": "2020-01-01T00:00:00Z"}}),
        || json!({"spec": {"leaseDurationSeconds": 0}}),
        || json!({"spec": {"leaseTransitions": 3}}),
    ],
    status: &[],
};

const SERVICE: Kind = Kind {
    name: "Service",
    version: "v1",
    path: "~/services",
    custom: false,
    base: || json!({"spec": {"ports": [{"name": "p", "port": 80}]}}),
    parts: &[
        LABELLED,
        RELABELLED,
        ANNOTATED,
        HELD,
        FREE,
        UNKNOWN,
        || json!({"spec": {"selector": {"a": "b"}}}),
        || json!({"spec": {"selector": null}}),
        || json!({"spec": {"ports": [{"name": "p", "port": 80}, {"name": "q", "port": 81, "targetPort": "web"}]}}),
        || json!({"spec": {"ports": [{"name": "r", "port": 82, "protocol": "UDP"}]}}),
        || json!({"spec": {"ports": [{"port": 80}]}}),
        || json!({"spec": {"ports": [{"name": "p", "port": 0}]}}),
        || json!({"spec": {"ports": []}}),
        || json!({"spec": {"type": "NodePort"}}),
        || json!({"spec": {"type": "ClusterIP"}}),
        || json!({"spec": {"clusterIP": "None"}}),
        || json!({"spec": {"sessionAffinity": "ClientIP"}}),
    ],
    status: &[
        || json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}),
        || {
            json!({"status": {"conditions": [{"type": "A", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2020-01-01T00:00:00Z"}]}})
        },
    ],
};

const DEPLOYMENT: Kind = Kind {
    name: "Deployment",
    version: "apps/v1",
    path: "apps/v1~/deployments",
    custom: false,
    base: || {
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
    },
    parts: &[
        LABELLED,
        RELABELLED,
        ANNOTATED,
        HELD,
        FREE,
        UNKNOWN,
        || {
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:2"}]}}}})
        },
        || json!({"spec": {"replicas": 3}}),
        || json!({"spec": {"replicas": -1}}),
        || json!({"spec": {"replicas": null}}),
        || json!({"spec": {"replicas": "x"}}),
        || json!({"spec": {"paused": true}}),
        || json!({"spec": {"strategy": {"type": "Recreate"}}}),
        || json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}),
        || json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%"}}}}),
        || {
            json!({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "image": "i:3", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]}}}})
        },
        || {
            json!({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}], "args": ["x"]}]}}}})
        },
        || {
            json!({"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "j",
            "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "0.5", "memory": "64Mi"}}}]}}}})
        },
        || json!({"spec": {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}}}),
        || json!({"spec": {"template": {"spec": {"nodeSelector": {"n": "o"}, "restartPolicy": "Always"}}}}),
        || json!({"spec": {"template": {"metadata": {"labels": {"a": "other"}}}}}),
    ],
    status: &[
        || json!({"status": {"replicas": 2, "readyReplicas": 1, "observedGeneration": 1}}),
        || json!({"status": {"readyReplicas": 9}}),
        || json!({"status": {"conditions": [{"type": "Available", "status": "True", "reason": "R", "message": "m"}]}}),
    ],
};

const POD: Kind = Kind {
    name: "Pod",
    version: "v1",
    path: "~/pods",
    custom: false,
    base: || {
        json!({"spec": {"automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i:1"}]}})
    },
    parts: &[
        LABELLED,
        RELABELLED,
        ANNOTATED,
        HELD,
        FREE,
        OWNED,
        UNKNOWN,
        // A pod that is made of one of these alone has no volume with a token either.
        || json!({"spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i:2"}]}}),
        || {
            json!({"spec": {"automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}]}]}})
        },
        || json!({"spec": {"nodeName": "node-1"}}),
        || json!({"spec": {"restartPolicy": "Never"}}),
        || json!({"spec": {"restartPolicy": "Wrong"}}),
        || json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
        || json!({"spec": {"terminationGracePeriodSeconds": 5}}),
        || json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
        || json!({"spec": {"activeDeadlineSeconds": 9}}),
    ],
    status: &[
        || json!({"status": {"phase": "Running", "podIP": "10.0.0.1"}}),
        || json!({"status": {"phase": "Succeeded"}}),
        || json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    ],
};

const AUTOSCALER: Kind = Kind {
    name: "HorizontalPodAutoscaler",
    version: "autoscaling/v2",
    path: "autoscaling/v2~/horizontalpodautoscalers",
    custom: false,
    base: || {
        json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "maxReplicas": 3}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        FREE,
        UNKNOWN,
        || json!({"spec": {"minReplicas": 2, "maxReplicas": 5}}),
        || json!({"spec": {"minReplicas": 4}}),
        || json!({"spec": {"minReplicas": 0}}),
        || json!({"spec": {"minReplicas": null}}),
        || json!({"spec": {"maxReplicas": 0}}),
        || json!({"spec": {"scaleTargetRef": {"name": "e"}}}),
        || json!({"spec": {"scaleTargetRef": {"apiVersion": "v1", "kind": "a/b"}}}),
        || {
            json!({"spec": {"metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1500m"}}}]}})
        },
        || {
            json!({"spec": {"metrics": [{"type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 0}}}]}})
        },
        || {
            json!({"spec": {"metrics": [{"type": "Resource",
                "resource": {"name": "", "target": {"type": "Other", "averageUtilization": 5, "averageValue": "0"}}}]}})
        },
        || json!({"spec": {"metrics": [{"type": "Pods", "resource": {"name": "cpu", "target": {"type": "Value"}}}, {}]}}),
        || json!({"spec": {"metrics": []}}),
        || json!({"spec": {"behavior": {}}}),
        || {
            json!({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 60,
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}]}}}})
        },
        || {
            json!({"spec": {"behavior": {"scaleUp": {"selectPolicy": "Wrong", "stabilizationWindowSeconds": 4000,
                "policies": [{"type": "Wrong", "value": 0, "periodSeconds": 1801}]}}}})
        },
        || json!({"spec": {"behavior": {"scaleUp": {"stabilizationWindowSeconds": -1, "policies": []}}}}),
    ],
    status: &[
        || json!({"status": {"currentReplicas": 1, "desiredReplicas": 2}}),
        || json!({"status": {"desiredReplicas": -1}}),
        || {
            json!({"status": {"conditions": [{"type": "AbleToScale", "status": "True", "reason": "R", "message": "m",
                "lastTransitionTime": "2020-01-01T00:00:00Z"}]}})
        },
    ],
};

const EVENT: Kind = Kind {
    name: "Event",
    version: "events.k8s.io/v1",
    path: "events.k8s.io/v1~/events",
    custom: false,
    base: || {
        json!({"eventTime": "2020-01-01T00:00:00.000000Z", "type": "Normal", "reason": "R", "action": "A", "note": "n",
            "regarding": {"kind": "Pod", "name": "p", "namespace": "$ns"},
            "reportingController": "example.org/c", "reportingInstance": "i"})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        FREE,
        || json!({"series": {"count": 2, "lastObservedTime": "2020-01-01T00:00:01.000000Z"}}),
        || json!({"series": {"count": 3, "lastObservedTime": "2020-01-01T00:00:02.000000Z"}}),
        || json!({"series": {"count": 1, "lastObservedTime": null}}),
        || json!({"series": null}),
        || json!({"type": "Wrong"}),
        || json!({"type": "Warning", "note": "other"}),
        || json!({"reason": "", "action": ""}),
        || json!({"regarding": {"name": "q", "uid": "u"}}),
        || json!({"related": {"kind": "Node", "name": "n"}}),
        || json!({"reportingController": "not valid!", "reportingInstance": ""}),
        || json!({"eventTime": null}),
        || json!({"deprecatedCount": 4, "deprecatedFirstTimestamp": "2020-01-01T00:00:00Z"}),
        || json!({"deprecatedSource": {"component": "c"}}),
    ],
    status: &[],
};
