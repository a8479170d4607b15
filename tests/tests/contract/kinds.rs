//! The kinds whose objects are generated: what an object needs, and the parts that it may get or be patched with. Some fit
//! and some do not.

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
    DATASET,
    MODEL,
    JOINT_INFERENCE,
    FEDERATED_LEARNING,
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

const DATASET: Kind = Kind {
    name: "Dataset",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/datasets",
    custom: true,
    base: || json!({"spec": {"url": "/data/a.txt", "format": "txt", "nodeName": "edge-1"}}),
    parts: &[
        LABELLED,
        RELABELLED,
        BADLY_LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"url": "/data/b.csv", "format": "csv"}}),
        || json!({"spec": {"url": 5}}),
        || json!({"spec": {"credentialName": "c"}}),
    ],
    status: &[
        || json!({"status": {"numberOfSamples": 5}}),
        || json!({"status": {"numberOfSamples": "x"}}),
        || json!({"status": {"updateTime": "2020-01-01T00:00:00Z"}}),
    ],
};

const MODEL: Kind = Kind {
    name: "Model",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/models",
    custom: true,
    base: || json!({"spec": {"url": "s3://b/m", "format": "pb"}}),
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"url": "/m"}}),
        || json!({"spec": {"format": ["x"]}}),
        || json!({"spec": {"credentialName": "c"}}),
    ],
    status: &[
        || json!({"status": {"metrics": [{"key": "k", "value": "v"}]}}),
        || json!({"status": {"metrics": [{"key": 5}]}}),
    ],
};

const JOINT_INFERENCE: Kind = Kind {
    name: "JointInferenceService",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/jointinferenceservices",
    custom: true,
    base: || {
        json!({"spec": {
            "edgeWorker": {"model": {"name": "m"}, "hardExampleMining": {"name": "IBT"},
                "template": {"spec": {"nodeName": "edge-1", "containers": [{"name": "c", "image": "i"}]}}},
            "cloudWorker": {"model": {"name": "m"}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"edgeWorker": {"template": {"spec": {"nodeName": "edge-2"}}}}}),
        || json!({"spec": {"edgeWorker": {"hardExampleMining": {"parameters": [{"key": "k", "value": "v"}]}}}}),
        || json!({"spec": {"edgeWorker": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}}),
        || json!({"spec": {"edgeWorker": {"template": {"spec": {"containers": [{"name": "c", "imag": "i:2"}]}}}}}),
        || json!({"spec": {"cloudWorker": {"template": {"spec": {"containers": "none"}}}}}),
        || json!({"spec": {"cloudWorker": {"template": {"metadata": {"labels": {"l": "m"}}}}}}),
    ],
    status: &[
        || json!({"status": {"active": 2, "failed": 0}}),
        || json!({"status": {"conditions": [{"type": "Running", "status": "True"}]}}),
        || json!({"status": {"active": "x"}}),
    ],
};

const FEDERATED_LEARNING: Kind = Kind {
    name: "FederatedLearningJob",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/federatedlearningjobs",
    custom: true,
    base: || {
        json!({"spec": {
            "aggregationWorker": {"model": {"name": "m"}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            "trainingWorkers": [{"dataset": {"name": "d"}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}]}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"aggregationWorker": {"model": {"name": "n"}}}}),
        || json!({"spec": {"trainingWorkers": []}}),
        || json!({"spec": {"trainingWorkers": {}}}),
        || json!({"spec": {"trainingWorkers": [{"dataset": {"name": "e"}, "template": {"spec": {"containers": [{"name": "c", "image": 5}]}}}]}}),
        || json!({"spec": {"aggregationWorker": {"template": {"spec": {"hostNetwork": true}}}}}),
    ],
    status: &[
        || json!({"status": {"conditions": [{"type": "Training", "status": "True"}]}}),
        || json!({"status": {"conditions": [{"status": 5}]}}),
        || json!({"status": {"active": 1}}),
    ],
};
