//! Children that a resource has and no plan names any more.

use kube::api::{DeleteParams, Preconditions};
use skerry_crds::names;
use skerry_workloads::{Child, Live, ObjectKind};

use super::{
    Engine, ResourceKey,
    pass::{Error, at},
    trim,
};

/// Those of `live`, which an owner of this kind controls, that are not planned. Only what carries our label, too: everything
/// else is somebody else's.
pub(super) fn among<'a>(live: &'a [Live], owner: ObjectKind, planned: &[Child]) -> Vec<&'a Live> {
    let label = names::label::name(owner.kind);
    let is_planned = |live: &Live| {
        planned
            .iter()
            .any(|child| child.kind == live.kind && child.name == live.name())
    };
    live.iter()
        .filter(|live| !is_planned(live) && !live.terminating() && live.label(&label).is_some())
        .collect()
}

/// Deletes these children of a resource. Whether one was there.
pub(super) async fn delete(engine: &Engine, owner: &ResourceKey, strays: &[&Live]) -> Result<bool, Error> {
    let mut deleted = false;
    for stray in strays {
        let how = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(stray.uid().to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        let children = engine.objects(stray.kind, &owner.namespace);
        match children.delete(stray.name(), &how).await {
            Ok(answer) => {
                deleted = true;
                if let Some(object) = answer.left() {
                    engine.learn_ours(stray.kind, &trim::trim(stray.kind, object));
                }
            }
            // Gone. (After a conflict the next pass knows whether another object has the name by now.)
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(at(format!("deleting {} {}", stray.kind.kind, stray.name()))(error)),
        }
    }
    Ok(deleted)
}
