//! How a container is run: its command, environment and folder, from the pod, the image and what holds on the node.
//! Pure.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use super::env::{get, set};
use super::expand::expand;
use super::images::Image;
use super::process::Run;
use super::rewrite::Surroundings;
use super::volumes::relative;

/// What a container's processes get from the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    /// Where programs are looked for.
    pub(super) path: String,
    /// The mark by which processes of this sandbox are known: name and value.
    pub(super) mark: (String, String),
}

/// Puts a run together. `variables` are the pod's own.
pub(super) fn compose(
    pod: &Pod,
    container: &Container,
    image: &Image,
    variables: Vec<(String, String)>,
    surroundings: &Surroundings,
    machine: &Machine,
    log: PathBuf,
) -> Run {
    let variables = surroundings.environment(variables);
    let known = |name: &str| get(&variables, name).map(str::to_owned);
    let expanded = |list: &Option<Vec<String>>| {
        let list = list.iter().flatten().map(|text| expand(text, known)).collect();
        Some(surroundings.arguments(list)).filter(|list: &Vec<String>| !list.is_empty())
    };
    let arguments = expanded(&container.args);
    let command = match expanded(&container.command) {
        Some(command) => [command, arguments.unwrap_or_default()].concat(),
        None => [image.command.clone(), arguments.unwrap_or_else(|| image.args.clone())].concat(),
    };
    let mut env = vec![
        ("PATH".to_owned(), machine.path.clone()),
        ("HOME".to_owned(), surroundings.root.display().to_string()),
        ("HOSTNAME".to_owned(), pod.name_any()),
    ];
    let image_env = image.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    for (name, value) in image_env.chain(variables).chain([machine.mark.clone()]) {
        set(&mut env, name, value);
    }
    Run {
        command,
        env,
        folder: folder(container, image, surroundings),
        log,
    }
}

fn folder(container: &Container, image: &Image, surroundings: &Surroundings) -> PathBuf {
    let root = &surroundings.root;
    match (
        container.working_dir.as_deref().filter(|folder| !folder.is_empty()),
        &image.working_dir,
    ) {
        (Some(folder), _) => root.join(relative(Path::new(folder))),
        (None, Some(folder)) => folder.clone(),
        (None, None) => root.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn composed(container: &Value, image: &Value) -> Run {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}})).unwrap();
        let container: Container = serde_json::from_value(container.clone()).unwrap();
        let variables = container.env.iter().flatten();
        let variables = variables
            .map(|one| (one.name.clone(), one.value.clone().unwrap()))
            .collect();
        let surroundings = Surroundings {
            root: "/containers/c".into(),
            mounts: vec!["/data".into()],
            ..Surroundings::default()
        };
        let machine = Machine {
            path: "/bin".to_owned(),
            mark: ("MARK".to_owned(), "here".to_owned()),
        };
        let image = serde_json::from_value(image.clone()).unwrap();
        compose(
            &pod,
            &container,
            &image,
            variables,
            &surroundings,
            &machine,
            "/log".into(),
        )
    }

    #[test]
    fn the_pods_command_and_arguments_replace_the_images() {
        let image = json!({"command": ["run", "it"], "args": ["slowly"]});
        for (container, expected) in [
            (json!({"name": "c"}), vec!["run", "it", "slowly"]),
            (json!({"name": "c", "args": ["fast"]}), vec!["run", "it", "fast"]),
            (json!({"name": "c", "command": ["sh"]}), vec!["sh"]),
            (
                json!({"name": "c", "command": ["sh"], "args": ["-c", "x"]}),
                vec!["sh", "-c", "x"],
            ),
            (
                json!({"name": "c", "args": ["$(DIR)/x", "/data/y"], "env": [{"name": "DIR", "value": "/data"}]}),
                vec!["run", "it", "/containers/c/data/x", "/containers/c/data/y"],
            ),
        ] {
            assert_eq!(composed(&container, &image).command, expected);
        }
    }

    #[test]
    fn the_pods_variables_win_over_the_images_and_those_over_the_machines() {
        let container = json!({"name": "c", "env": [{"name": "A", "value": "pod"}, {"name": "MARK", "value": "away"}]});
        let image = json!({"command": ["x"], "env": {"A": "image", "B": "image", "PATH": "/opt"}});
        let env = composed(&container, &image).env;
        let expected = [
            ("A", "pod"),
            ("B", "image"),
            ("PATH", "/opt"),
            ("HOME", "/containers/c"),
            ("HOSTNAME", "p"),
            ("MARK", "here"),
        ];
        for (name, value) in expected {
            assert_eq!(get(&env, name), Some(value), "{name}");
        }
    }

    #[test]
    fn the_working_folder_is_the_pods_the_images_or_the_containers_own() {
        let (with, without) = (
            json!({"command": ["x"], "workingDir": "/srv"}),
            json!({"command": ["x"]}),
        );
        let work = json!({"name": "c", "workingDir": "/home/work"});
        assert_eq!(composed(&work, &with).folder, Path::new("/containers/c/home/work"));
        assert_eq!(composed(&json!({"name": "c"}), &with).folder, Path::new("/srv"));
        assert_eq!(
            composed(&json!({"name": "c"}), &without).folder,
            Path::new("/containers/c")
        );
    }
}
