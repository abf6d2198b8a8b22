//! The operations, as one table: all facts that help, validation and the loop need.

/// An operation on a file, a directory or a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs, reason = "the table describes each")]
pub enum Operation {
    Create,
    Append,
    Overwrite,
    TruncateOverwrite,
    Read,
    Stat,
    Chmod,
    Truncate,
    Setxattr,
    Getxattr,
    Mknod,
    SwiftPut,
    SwiftGet,
    AwaitCreate,
    Rename,
    Unlink,
    DeleteRenamed,
    Symlink,
    Readlink,
    Link,
    Mkdir,
    StatDir,
    Rmdir,
    Readdir,
    LsL,
    MakeTree,
    RemoveTree,
    Cleanup,
}

/// The objects that an operation goes over, and the effect on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Makes objects of a kind, with rising numbers.
    Makes(Population),
    /// Uses the objects of a kind that are there.
    Uses(Population),
    /// Removes the objects of a kind that are there, lowest number first.
    Takes(Population),
    /// Goes over the directories that files are in.
    Directories,
    /// Makes or removes the directories of the layout: each thread its own, or the first thread those that all share.
    Tree,
    /// Everything that any operation may have made, and the directories it is in.
    All,
}

/// The kinds of object that a thread keeps count of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "said by their names")]
pub enum Population {
    Files,
    Directories,
    Symlinks,
    Links,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// The operation that the row describes.
    pub operation: Operation,
    /// The name that `--op` takes.
    pub name: &'static str,
    /// Other names of the operation.
    pub aliases: &'static [&'static str],
    /// The objects that the operation goes over.
    pub walk: Walk,
    /// True if the operation writes file contents, so that fsync applies and room is needed.
    pub writes: bool,
    /// True if the operation reads file contents.
    pub reads: bool,
    /// One line for help: the operation's purpose and its calls.
    pub help: &'static str,
}

use Operation::*;
use Population::*;

const fn row(operation: Operation, name: &'static str, walk: Walk, help: &'static str) -> Row {
    Row { operation, name, aliases: &[], walk, writes: false, reads: false, help }
}

impl Row {
    const fn also(mut self, aliases: &'static [&'static str]) -> Row {
        self.aliases = aliases;
        self
    }

    const fn writing(mut self) -> Row {
        self.writes = true;
        self
    }

    const fn reading(mut self) -> Row {
        self.reads = true;
        self
    }
}

/// Every operation of `plimsoll files`, in the order of the help.
pub const OPERATIONS: &[Row] = &[
    row(Create, "create", Walk::Makes(Files), "make new files and write them: open, write, close").writing(),
    row(Append, "append", Walk::Uses(Files), "append as many bytes as the file had at first: open, write, close")
        .writing(),
    row(Overwrite, "overwrite", Walk::Uses(Files), "write the whole file again in place: open, write, close")
        .also(&["write"])
        .writing(),
    row(TruncateOverwrite, "truncate-overwrite", Walk::Uses(Files), "overwrite after truncating with O_TRUNC")
        .writing(),
    row(Read, "read", Walk::Uses(Files), "read whole files: open, read, close").reading(),
    row(Mknod, "mknod", Walk::Makes(Files), "make empty files without opening them"),
    row(Stat, "stat", Walk::Uses(Files), "stat by path"),
    row(Chmod, "chmod", Walk::Uses(Files), "change the permission bits, and change them back the next time"),
    row(Truncate, "truncate", Walk::Uses(Files), "cut files to half of their size"),
    row(Setxattr, "setxattr", Walk::Uses(Files), "set --xattr-count extended attributes of --xattr-size bytes"),
    row(Getxattr, "getxattr", Walk::Uses(Files), "get these extended attributes"),
    row(
        SwiftPut,
        "swift-put",
        Walk::Makes(Files),
        "store an object: write under another name, fsync, setxattr, rename",
    )
    .writing(),
    row(SwiftGet, "swift-get", Walk::Uses(Files), "fetch an object: read, getxattr").reading(),
    row(AwaitCreate, "await-create", Walk::Uses(Files), "wait with stat until other processes have made the files"),
    row(Rename, "rename", Walk::Uses(Files), "rename to NAME.renamed, or back; later phases use the new names"),
    row(Unlink, "unlink", Walk::Takes(Files), "remove files").also(&["delete"]),
    row(DeleteRenamed, "delete-renamed", Walk::Takes(Files), "remove files under the names that rename gave them"),
    row(Symlink, "symlink", Walk::Makes(Symlinks), "make symbolic links to the files"),
    row(Readlink, "readlink", Walk::Uses(Symlinks), "read these links"),
    row(Link, "link", Walk::Makes(Links), "give files a second name"),
    row(Mkdir, "mkdir", Walk::Makes(Directories), "make directories, as many as files"),
    row(StatDir, "stat-dir", Walk::Uses(Directories), "stat these directories by path"),
    row(Rmdir, "rmdir", Walk::Takes(Directories), "remove these directories"),
    row(Readdir, "readdir", Walk::Directories, "list the directories of the files"),
    row(LsL, "ls-l", Walk::Directories, "list these directories with the attributes of every entry")
        .also(&["readdirplus"]),
    row(MakeTree, "make-tree", Walk::Tree, "make the directories that files are in, which then stay"),
    row(
        RemoveTree,
        "remove-tree",
        Walk::Tree,
        "remove the empty ones of these directories, also those of earlier runs",
    ),
    row(Cleanup, "cleanup", Walk::All, "remove the files that any operation may have left, and the directories"),
];

impl Operation {
    /// The row of the table for this operation.
    pub fn row(self) -> &'static Row {
        OPERATIONS.iter().find(|row| row.operation == self).unwrap_or(&OPERATIONS[0])
    }

    /// The operation of that name.
    pub fn find(name: &str) -> Option<Operation> {
        OPERATIONS.iter().find(|row| row.name == name || row.aliases.contains(&name)).map(|row| row.operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_one_row_and_names_of_its_own() {
        let mut names = std::collections::HashSet::new();
        for row in OPERATIONS {
            assert_eq!(row.operation.row().name, row.name);
            assert!(names.insert(row.name) && row.aliases.iter().all(|alias| names.insert(alias)));
            assert_eq!(Operation::find(row.name), Some(row.operation));
        }
        assert_eq!(Operation::find("delete"), Some(Operation::Unlink));
        assert_eq!(Operation::find("nonsense"), None);
    }
}
