//! `skerry plan`: the decision for the resources in files, offline.

use std::{fs, io::Read as _, path::PathBuf};

use serde_json::{Value, json};
use skerry_workloads::Settings;

use crate::failure::{Failure, print};

/// What to plan.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File with one or more resources, YAML or JSON; `-` is stdin. Models, Datasets and Secrets that a resource names
    /// are looked for in these files too.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Prints one document a resource: what it is, and its plan.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut documents = vec![];
    for file in &args.files {
        documents.extend(read(file)?);
    }
    let plans = skerry_workloads::offline(&documents, &Settings::default()).map_err(|error| {
        Failure::new(
            error,
            "correct the resource; `skerry crds` prints what each field may be",
        )
    })?;
    if plans.is_empty() {
        return Err(Failure::new(
            "there is nothing to plan in these files",
            "name a file with a JointInferenceService, FederatedLearningJob, Dataset or Model",
        ));
    }
    for (resource, plan) in plans {
        let document = json!({"resource": resource, "plan": plan});
        let text = serde_saphyr::to_string(&document)
            .map_err(|error| Failure::new(error, "this is a defect: please report it with the file"))?;
        print(&format!("---\n{text}"))?;
    }
    Ok(())
}

fn read(file: &PathBuf) -> Result<Vec<Value>, Failure> {
    let named = if file.as_os_str() == "-" {
        "stdin".to_owned()
    } else {
        file.display().to_string()
    };
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(file)
    };
    let text =
        text.map_err(|error| Failure::new(format!("{named} cannot be read: {error}"), "name a file with -f FILE"))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| {
        let sentence = format!("{named} is not YAML: {}", error.without_snippet());
        Failure::new(sentence, "correct the line it names")
    })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}
