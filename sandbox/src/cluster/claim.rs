//! Which children belong to a controller: those that it controls and selects, and orphans that it selects.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};

use super::effect::{Effect, Target, Written};
use super::meta::{controller_of, controller_reference, deleting, selects, uid};

/// The children that `owner` may count as its own, and what has to be done for that: orphans that it selects are
/// adopted, children that it no longer selects are released. An owner on its way out does neither.
pub(crate) fn claim<O: Written, C: Written>(
    owner: &O,
    selector: &LabelSelector,
    children: impl IntoIterator<Item = Arc<C>>,
) -> (Vec<Arc<C>>, Vec<Effect>) {
    let mut effects = vec![];
    let claimed = children
        .into_iter()
        .filter(|child| {
            let selected = selects(selector, child.meta().labels.as_ref());
            match controller_of(child.meta()) {
                Some(OwnerReference { uid: of, .. }) if of != uid(owner) => false,
                Some(_) if selected => true,
                Some(_) => {
                    if !deleting(owner) {
                        effects.push(Effect::Release {
                            child: Target::of(child.as_ref()),
                            owner: uid(owner).to_owned(),
                        });
                    }
                    false
                }
                None => {
                    let wanted = selected && !deleting(owner) && !deleting(child.as_ref());
                    if wanted {
                        effects.push(Effect::Adopt {
                            child: Target::of(child.as_ref()),
                            owner_kind: O::KIND,
                            owner: controller_reference(owner),
                        });
                    }
                    wanted
                }
            }
        })
        .collect();
    (claimed, effects)
}
