//! A Gluster volume as a [`FileSystem`], through libgfapi.

use super::fs::FileSystem;
use super::target::Volume;
use crate::Error;

/// The volume, connected to.
///
/// # Errors
/// libgfapi is not installed, the server does not answer, there is no such volume.
pub fn open(volume: &Volume) -> Result<Box<dyn FileSystem>, Error> {
    Err(Error::usage("cannot open volume", volume.volume.clone(), "this build has no libgfapi binding yet"))
}
