//! What is mounted already is linked to, not copied.

use std::io;
use std::path::Path;

use tokio::fs;

use crate::error::FetchError;

/// Links a file, or all that is in a folder, into another folder. Hidden files of a folder are left out.
pub(crate) async fn link(url: &str, source: &Path, folder: &Path) -> Result<(), FetchError> {
    let missing = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FetchError::Missing { url: url.to_owned() },
        _ => FetchError::Remote {
            url: url.to_owned(),
            problem: error.to_string(),
        },
    };
    if !fs::metadata(source).await.map_err(missing)?.is_dir() {
        return link_one(url, source, folder).await;
    }
    let mut entries = fs::read_dir(source).await.map_err(missing)?;
    while let Some(entry) = entries.next_entry().await.map_err(missing)? {
        if !entry.file_name().to_string_lossy().starts_with('.') {
            link_one(url, &entry.path(), folder).await?;
        }
    }
    Ok(())
}

/// One rename puts the link into place, also where a run before this one left one.
async fn link_one(url: &str, source: &Path, folder: &Path) -> Result<(), FetchError> {
    let Some(name) = source.file_name() else {
        return Err(FetchError::Missing { url: url.to_owned() });
    };
    let target = folder.join(name);
    let part = folder.join(format!(".{}.link", name.to_string_lossy()));
    let _ = fs::remove_file(&part).await;
    fs::symlink(source, &part)
        .await
        .map_err(FetchError::write(url, &part))?;
    fs::rename(&part, &target)
        .await
        .map_err(FetchError::write(url, &target))?;
    tracing::info!("{url}: linked as {}", target.display());
    Ok(())
}
