//! Files that a crash leaves whole.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Gives a file that content, or creates the file with it. The file has the content from before or the new content at
/// every moment, also after a crash or a power failure; when the call returns well, it has the new content for good, if
/// the user may read the directory. On an error the content from before stays, and nothing is left behind.
///
/// # Errors
/// As creating, writing, fsync(2) and rename(2).
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let partial = partial(path);
    let written = File::create(&partial).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?; // some filesystems find out here that they are full
        std::fs::rename(&partial, path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&partial); // it may never have been there
    }
    written?;
    sync_name(path)
}

/// Makes the name of a new file last: it is an entry of the directory, which fsync(2) of the file need not write.
///
/// # Errors
/// The errors of opening the directory and of fsync(2).
pub fn sync_name(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(parent).and_then(|directory| directory.sync_all()) {
        // Some network filesystems do not know fsync(2) of a directory: their servers order such changes. A directory
        // that this user may write to and not read cannot be synced by this user.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => Ok(()),
        synced => synced,
    }
}

/// The name of a file while it is written: two processes that write the same file do not share it.
pub fn partial(path: &Path) -> PathBuf {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_extension(format!("{extension}.{}.part", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_an_error_leaves_the_one_from_before() {
        let dir = std::env::temp_dir().join(format!("replace-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory");
        let file = dir.join("state.json");
        replace(&file, b"old").expect("created");
        replace(&file, b"new").expect("replaced");
        assert_eq!(std::fs::read(&file).expect("it is there"), b"new");
        // The partial file cannot be made where a directory has its name.
        std::fs::create_dir(partial(&file)).expect("a directory");
        replace(&file, b"newer").expect_err("the name is taken");
        assert_eq!(std::fs::read(&file).expect("it is there"), b"new");
        std::fs::remove_dir(partial(&file)).expect("it was there");
        assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 1, "nothing is left behind");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
