//! The API types of Skerry: resources, their names and labels, their schemas.
//!
//! This crate decides what a manifest may say ([`sedna`]) and how everything is
//! called ([`names`]). It never talks to a cluster and never decides what follows from a manifest.

pub mod conditions;
pub mod names;
mod schema;
pub mod sedna;
pub mod template;

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use crate::sedna::v1alpha1 as sedna;

    #[test]
    fn schemas_are_generated() {
        for crd in [
            sedna::Dataset::crd(),
            sedna::Model::crd(),
            sedna::JointInferenceService::crd(),
            sedna::FederatedLearningJob::crd(),
        ] {
            let text = serde_json::to_string(&crd).unwrap();
            println!("{:?}: {} bytes", crd.metadata.name, text.len());
            assert!(!text.contains("$ref"), "{text}");
        }
    }
}
