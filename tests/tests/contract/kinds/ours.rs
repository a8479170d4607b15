//! Our kinds, but for those about what cameras see.

use serde_json::json;

use super::{ANNOTATED, BADLY_LABELLED, HELD, Kind, LABELLED, RELABELLED, UNKNOWN};

pub const DATASET: Kind = Kind {
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

pub const MODEL: Kind = Kind {
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

pub const JOINT_INFERENCE: Kind = Kind {
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

pub const FEDERATED_LEARNING: Kind = Kind {
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

pub const INCREMENTAL_LEARNING: Kind = Kind {
    name: "IncrementalLearningJob",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/incrementallearningjobs",
    custom: true,
    base: || {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        let trigger = json!({"condition": {"operator": ">", "threshold": 500, "metric": "num_of_samples"}});
        json!({"spec": {
            "dataset": {"name": "d", "trainProb": 0.8}, "initialModel": {"name": "m"}, "outputDir": "/output",
            "trainSpec": {"template": template, "trigger": trigger},
            "evalSpec": {"template": template},
            "deploySpec": {"template": template, "trigger": trigger, "model": {"name": "n"},
                "hardExampleMining": {"name": "IBT"}}}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"dataset": {"name": "d", "trainProb": 1}}}),
        || json!({"spec": {"dataset": {"trainProb": 1.5}}}),
        || json!({"spec": {"dataset": {"trainProb": 1e-7}}}),
        || json!({"spec": {"initialModel": {"name": ""}}}),
        || json!({"spec": {"trainSpec": {"trigger": {"condition": {"operator": "about"}}}}}),
        || json!({"spec": {"trainSpec": {"trigger": {"condition": {"threshold": 0.95, "metric": "precision[0]"}}}}}),
        || json!({"spec": {"trainSpec": {"trigger": {"condition": {"metric": "a[b]"}}}}}),
        || json!({"spec": {"trainSpec": {"trigger": {"timer": {"start": "02:00", "end": "24:00"}}}}}),
        || json!({"spec": {"trainSpec": {"trigger": {"timer": {"start": "24:00"}}}}}),
        || json!({"spec": {"deploySpec": {"model": {"hotUpdateEnabled": true, "pollPeriodSeconds": 0}}}}),
        || json!({"spec": {"deploySpec": {"model": {"pollPeriodSeconds": null}}}}),
        || json!({"spec": {"evalSpec": {"template": {"spec": {"containers": [{"name": "c", "image": 5}]}}}}}),
    ],
    status: &[
        || {
            json!({"status": {"conditions": [{"type": "Running", "status": "True", "stage": "Train",
                "lastHeartbeatTime": "2020-01-01T00:00:00Z"}]}})
        },
        || json!({"status": {"conditions": [{"type": "Running"}]}}),
        || json!({"status": {"startTime": "yesterday"}}),
    ],
};

pub const LIFELONG_LEARNING: Kind = Kind {
    name: "LifelongLearningJob",
    version: "sedna.io/v1alpha1",
    path: "sedna.io/v1alpha1~/lifelonglearningjobs",
    custom: true,
    base: || {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        let trigger = json!({"condition": {"operator": ">=", "threshold": 0.5, "metric": "num_of_samples"}});
        json!({"spec": {
            "dataset": {"name": "d", "trainProb": 0.8}, "outputDir": "/output",
            "trainSpec": {"template": template, "trigger": trigger},
            "evalSpec": {"template": template},
            "deploySpec": {"template": template}}})
    },
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"dataset": {"name": "e", "trainProb": 0}}}),
        || json!({"spec": {"dataset": {"trainProb": -0.1}}}),
        || json!({"spec": {"outputDir": "s3://b/o", "credentialName": "c"}}),
        || json!({"spec": {"outputDir": null}}),
        || json!({"spec": {"trainSpec": {"trigger": {"checkPeriodSeconds": 60, "timer": {"start": "22:00", "end": "6:00"}}}}}),
        || json!({"spec": {"trainSpec": {"trigger": {"condition": {"operator": "gt", "threshold": "0.5"}}}}}),
        || json!({"spec": {"deploySpec": {"template": {"spec": {"nodeName": "edge-1", "hostNetwork": true}}}}}),
        || json!({"spec": {"evalSpec": {"template": {"spec": {"containers": [{"name": "c", "imagePullPolicy": "Often"}]}}}}}),
    ],
    status: &[
        || {
            json!({"status": {"knowledgeBase": {
                "AIModels": {"numberOfAIModels": 1, "listOfAIModels": [{"modelID": "m", "averagePrecision": 0.9}]},
                "AIClasses": {"listOfAIClasses": ["a", "b"]}, "samples": {"numberOfUnseenSample": 7}}}})
        },
        || json!({"status": {"knowledgeBase": {"AIModels": {"numberOfAIModels": 1.5}}}}),
        || json!({"status": {"conditions": [{"type": "Running", "status": "True", "stage": "Eval"}]}}),
    ],
};

pub const EDGE_NODE: Kind = Kind {
    name: "EdgeNode",
    version: "skerry.io/v1alpha1",
    path: "skerry.io/v1alpha1~/edgenodes",
    custom: true,
    base: || json!({"spec": {}}),
    parts: &[
        LABELLED,
        ANNOTATED,
        HELD,
        UNKNOWN,
        || json!({"spec": {"revokedBefore": "2020-01-01T00:00:00Z"}}),
        || json!({"spec": {"revokedBefore": "2020-01-01T00:00:00.5+01:00"}}),
        || json!({"spec": {"revokedBefore": "today"}}),
        || json!({"spec": {"revokedBefore": null}}),
        || json!({"spec": null}),
    ],
    status: &[
        || json!({"status": {"certificate": {"issued": "2020-01-01T00:00:00Z", "expires": "2021-01-01T00:00:00Z"}}}),
        || json!({"status": {"certificate": {"issued": "2020-01-01T00:00:00Z"}}}),
        || {
            json!({"status": {"session": {"connected": true, "since": "2020-01-01T00:00:00Z", "assigned": 3,
                "unacknowledged": 0, "outbox": {"messages": 1, "bytes": 2}}}})
        },
        || json!({"status": {"session": {"connected": "yes", "assigned": 1.5}}}),
    ],
};
