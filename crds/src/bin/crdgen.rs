//! Writes the `CustomResourceDefinition`s into a folder, one file each: `crdgen charts/skerry/files/crds`.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crdgen: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [folder] = arguments.as_slice() else {
        bail!("name the one folder to write into: crdgen charts/skerry/files/crds");
    };
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for crd in skerry_crds::all() {
        let path = folder.join(skerry_crds::file_name(crd));
        let document =
            skerry_crds::document(crd).with_context(|| format!("cannot write {} as YAML", path.display()))?;
        fs::write(&path, document).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
