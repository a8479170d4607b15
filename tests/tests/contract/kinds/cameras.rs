//! Our kinds about what cameras see.

use serde_json::json;

use super::{ANNOTATED, HELD, Kind, LABELLED, UNKNOWN};

pub const FEATURE_EXTRACTION: Kind = Kind {
    name: "FeatureExtractionService",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/featureextractionservices",
    custom: true,
    base: || {
        json!({"spec": {"model": {"name": "m"}, "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"model": {"name": ""}}}),
        || json!({"spec": {"kafkaSupport": true, "replicas": 2}}),
        || json!({"spec": {"replicas": -1}}),
        || json!({"spec": {"selector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}}),
        || json!({"spec": {"selector": {"matchLabels": {"a": 5}}}}),
        || {
            json!({"spec": {"strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}})
        },
        || json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0.5}}}}),
        || {
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c",
                "resources": {"limits": {"cpu": 1, "memory": "64Mi"}, "requests": {"cpu": "much"}}}]}}}})
        },
    ],
    status: &[
        || json!({"status": {"active": 1, "metrics": [{"key": "k", "value": "v"}]}}),
        || json!({"status": {"active": 2_147_483_648_i64}}),
        || json!({"status": {"metrics": [{"value": "v"}]}}),
    ],
};

pub const OBJECT_SEARCH: Kind = Kind {
    name: "ObjectSearchService",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/objectsearchservices",
    custom: true,
    base: || {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        json!({"spec": {"userWorker": {"template": template}, "trackingWorkers": [{"template": template}],
            "reidWorkers": {"replicas": 1, "template": template}}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"trackingWorkers": []}}),
        || json!({"spec": {"trackingWorkers": null}}),
        || {
            json!({"spec": {"trackingWorkers": [
                {"template": {"spec": {"nodeSelector": {"camera": "0"}, "containers": [{"name": "c", "image": "i"}]}}},
                {"template": {"spec": {"containers": [{"name": "c", "image": ""}]}}}]}})
        },
        || json!({"spec": {"userWorker": {"template": {"spec": {"nodeSelector": {"location": "cloud"}}}}}}),
        || json!({"spec": {"userWorker": {"template": null}}}),
        || json!({"spec": {"reidWorkers": {"replicas": "many"}}}),
        || json!({"spec": {"reidWorkers": {"selector": {"matchLabels": {"a": "b"}}, "paused": false}}}),
        || {
            json!({"spec": {"reidWorkers": {"template": {"spec": {"containers": [
                {"name": "c", "env": [{"name": "A", "value": "1"}]}, {"name": "c", "image": "j"}]}}}}})
        },
    ],
    status: &[
        || json!({"status": {"active": 3, "failed": 0, "startTime": "2020-01-01T00:00:00Z"}}),
        || json!({"status": {"startTime": 5}}),
        || json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "R", "unknownField": 1}]}}),
    ],
};

pub const OBJECT_TRACKING: Kind = Kind {
    name: "ObjectTrackingService",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/objecttrackingservices",
    custom: true,
    base: || {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        json!({"spec": {"trackingWorkers": [{"template": template}], "reidWorkers": {"template": template}}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"trackingWorkers": [{}]}}),
        || json!({"spec": {"trackingWorkers": [{"template": {"spec": {"containers": []}}}]}}),
        || json!({"spec": {"reidWorkers": {"replicas": 0, "minReadySeconds": 5, "revisionHistoryLimit": 1}}}),
        || json!({"spec": {"reidWorkers": {"progressDeadlineSeconds": 1000}}}),
        || json!({"spec": {"reidWorkers": {"paused": "yes"}}}),
        || json!({"spec": {"reidWorkers": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}}),
        || json!({"spec": {"reidWorkers": null}}),
    ],
    status: &[
        || json!({"status": {"active": 2, "observedGeneration": 1}}),
        || json!({"status": {"conditions": [{"type": "Degraded", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}}),
        || json!({"status": {"failed": true}}),
    ],
};

pub const VIDEO_ANALYTICS: Kind = Kind {
    name: "VideoAnalyticsJob",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/videoanalyticsjobs",
    custom: true,
    base: || {
        json!({"spec": {"model": {"name": "m"},
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"model": {"name": 5}}}),
        || json!({"spec": {"kafkaSupport": "true"}}),
        || json!({"spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}}),
        || json!({"spec": {"backoffLimit": 1.5}}),
        || {
            json!({"spec": {"podFailurePolicy": {"rules": [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}}})
        },
        || json!({"spec": {"podFailurePolicy": {"rules": [{"onExitCodes": {"operator": "In"}}]}}}),
        || {
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c",
                "ports": [{"containerPort": 80}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                "volumes": [{"name": "v", "hostPath": {"path": "/v"}}]}}}})
        },
    ],
    status: &[
        || json!({"status": {"phase": "Running", "active": 1, "startTime": "2020-01-01T00:00:00Z"}}),
        || json!({"status": {"completionTime": "2020-01-01 00:00:00"}}),
        || json!({"status": {"phase": null, "succeeded": 1}}),
    ],
};

pub const REID: Kind = Kind {
    name: "ReidJob",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/reidjobs",
    custom: true,
    base: || {
        json!({"spec": {"template": {"metadata": {"labels": {"l": "m"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"kafkaSupport": null, "suspend": true}}),
        || json!({"spec": {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": "0"}}),
        || json!({"spec": {"successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]}}}),
        || json!({"spec": {"successPolicy": {"rules": {}}}}),
        || json!({"spec": {"template": {"metadata": {"labels": {"l": null, "n": "o"}, "creationTimestamp": null}}}}),
        || json!({"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "j"}], "tolerations": [{"operator": "Exists"}]}}}}),
        || json!({"spec": {"template": {"spec": {"imagePullSecrets": [{"name": "s"}, {"name": "s"}]}}}}),
    ],
    status: &[
        || json!({"status": {"phase": "Succeeded", "succeeded": 1, "completionTime": "2020-01-01T00:00:00Z"}}),
        || json!({"status": {"conditions": {"type": "Completed", "status": "True"}}}),
        || json!({"status": {"succeeded": "1"}}),
    ],
};
