//! A block device for a test: a file behind a loop device (loop(4)).

use std::path::Path;
use std::process::Command;

use super::{has_program, is_root, skip, stderr, stdout};

/// A loop device; detached when dropped.
pub struct LoopDevice {
    /// `/dev/loop0`.
    pub path: String,
}

impl LoopDevice {
    /// A device over an existing file. None, with the reason printed, where loop devices cannot be made.
    pub fn over(image: &Path) -> Option<LoopDevice> {
        if !is_root("attach a loop device") || !has_program("losetup") {
            return None;
        }
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        if !output.status.success() {
            skip(&format!("no loop device: {}", stderr(&output).trim()), false);
            return None;
        }
        Some(LoopDevice { path: stdout(&output).trim().to_string() })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status(); // what remains goes with the machine
    }
}
