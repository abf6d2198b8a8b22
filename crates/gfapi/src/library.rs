//! The functions of libgfapi, looked up by name and version: glfs.h of GlusterFS 3.5 to 11.
//!
//! Release 6 gave some functions new parameters, and all completion callbacks; both kinds are known here by the
//! versions of their symbols. The SAFETY comments here name one contract, *as declared*: the type of a field or variant
//! of this module repeats the declaration in glfs.h for the version of the symbol that it is looked up with. The author
//! of each row checks its declaration.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::Error;

/// glfs_t, opaque.
#[repr(C)]
pub(crate) struct Glfs {
    _private: [u8; 0],
}

/// glfs_fd_t, opaque.
#[repr(C)]
pub(crate) struct GlfsFd {
    _private: [u8; 0],
}

/// A callback of either era, as it is handed over: see [`Era`].
pub(crate) type AnyCallback = unsafe extern "C" fn();
/// The callback of symbols of version 3.4.0 and 3.5.0.
pub(crate) type OldCallback = unsafe extern "C" fn(*mut GlfsFd, isize, *mut c_void);
/// The callback of symbols of version 6.0; the attributes before and after are not used here.
pub(crate) type NewCallback = unsafe extern "C" fn(*mut GlfsFd, isize, *mut c_void, *mut c_void, *mut c_void);

type Path = *const c_char;
type AsyncTransfer =
    unsafe extern "C" fn(*mut GlfsFd, *mut c_void, usize, i64, c_int, AnyCallback, *mut c_void) -> c_int;
type AsyncSync = unsafe extern "C" fn(*mut GlfsFd, AnyCallback, *mut c_void) -> c_int;
type AsyncRange = unsafe extern "C" fn(*mut GlfsFd, i64, usize, AnyCallback, *mut c_void) -> c_int;

/// The type of callback that the asynchronous functions of this library take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// [`OldCallback`]: before release 6.
    Old,
    /// [`NewCallback`].
    New,
}

/// A function that got two pointers to attributes in release 6, which may be NULL.
#[derive(Clone, Copy)]
pub(crate) enum Sync {
    Old(unsafe extern "C" fn(*mut GlfsFd) -> c_int),
    New(unsafe extern "C" fn(*mut GlfsFd, *mut c_void, *mut c_void) -> c_int),
}

/// ftruncate, which takes a length, and got two pointers to attributes in release 6, which may be NULL.
#[derive(Clone, Copy)]
pub(crate) enum Truncate {
    Old(unsafe extern "C" fn(*mut GlfsFd, i64) -> c_int),
    New(unsafe extern "C" fn(*mut GlfsFd, i64, *mut c_void, *mut c_void) -> c_int),
}

/// Declares the table of the functions whose signature is the same in every release, and how it is filled.
macro_rules! functions {
    ($($field:ident: $name:literal $version:literal fn($($argument:ty),*) -> $result:ty;)*) => {
        /// All functions that are used.
        pub(crate) struct Library {
            pub era: Era,
            pub fsync: Sync,
            pub fdatasync: Sync,
            pub ftruncate: Truncate,
            pub pread_async: AsyncTransfer,
            pub pwrite_async: AsyncTransfer,
            pub fsync_async: AsyncSync,
            pub fdatasync_async: AsyncSync,
            pub discard_async: AsyncRange,
            $(pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Library {
            fn look_up(handle: *mut c_void) -> Result<Library, Error> {
                let versioned = Versioned { handle };
                let era = if versioned.find(c"glfs_pread_async", c"GFAPI_6.0").is_some() { Era::New } else { Era::Old };
                Ok(Library {
                    era,
                    fsync: versioned.sync(era, c"glfs_fsync")?,
                    fdatasync: versioned.sync(era, c"glfs_fdatasync")?,
                    ftruncate: versioned.ftruncate(era)?,
                    // SAFETY: as declared; the type of the callback is that of the era.
                    pread_async: unsafe { cast(versioned.of_era(era, c"glfs_pread_async", c"GFAPI_3.4.0")?) },
                    // SAFETY: as declared, with the callback of the era; a const buffer makes no difference to the
                    // call.
                    pwrite_async: unsafe { cast(versioned.of_era(era, c"glfs_pwrite_async", c"GFAPI_3.4.0")?) },
                    // SAFETY: glfs.h declares the function so, with the callback of this era.
                    fsync_async: unsafe { cast(versioned.of_era(era, c"glfs_fsync_async", c"GFAPI_3.4.0")?) },
                    // SAFETY: glfs.h declares the function so, with the callback of this era.
                    fdatasync_async: unsafe { cast(versioned.of_era(era, c"glfs_fdatasync_async", c"GFAPI_3.4.0")?) },
                    // SAFETY: glfs.h declares the function so, with the callback of this era.
                    discard_async: unsafe { cast(versioned.of_era(era, c"glfs_discard_async", c"GFAPI_3.5.0")?) },
                    $(
                        // SAFETY: the field has the type that glfs.h gives this function; the macro's table upholds
                        // that.
                        $field: unsafe { cast(versioned.need($name, $version)?) },
                    )*
                })
            }
        }
    };
}

functions! {
    new: c"glfs_new" c"GFAPI_3.4.0" fn(*const c_char) -> *mut Glfs;
    set_volfile_server: c"glfs_set_volfile_server" c"GFAPI_3.4.0" fn(*mut Glfs, *const c_char, *const c_char, c_int) -> c_int;
    set_logging: c"glfs_set_logging" c"GFAPI_3.4.0" fn(*mut Glfs, *const c_char, c_int) -> c_int;
    init: c"glfs_init" c"GFAPI_3.4.0" fn(*mut Glfs) -> c_int;
    fini: c"glfs_fini" c"GFAPI_3.4.0" fn(*mut Glfs) -> c_int;
    open: c"glfs_open" c"GFAPI_3.4.0" fn(*mut Glfs, Path, c_int) -> *mut GlfsFd;
    creat: c"glfs_creat" c"GFAPI_3.4.0" fn(*mut Glfs, Path, c_int, libc::mode_t) -> *mut GlfsFd;
    close: c"glfs_close" c"GFAPI_3.4.0" fn(*mut GlfsFd) -> c_int;
    read: c"glfs_read" c"GFAPI_3.4.0" fn(*mut GlfsFd, *mut c_void, usize, c_int) -> isize;
    write: c"glfs_write" c"GFAPI_3.4.0" fn(*mut GlfsFd, *const c_void, usize, c_int) -> isize;
    preadv: c"glfs_preadv" c"GFAPI_3.4.0" fn(*mut GlfsFd, *const libc::iovec, c_int, i64, c_int) -> isize;
    pwritev: c"glfs_pwritev" c"GFAPI_3.4.0" fn(*mut GlfsFd, *const libc::iovec, c_int, i64, c_int) -> isize;
    fstat: c"glfs_fstat" c"GFAPI_3.4.0" fn(*mut GlfsFd, *mut libc::stat64) -> c_int;
    discard: c"glfs_discard" c"GFAPI_3.5.0" fn(*mut GlfsFd, i64, usize) -> c_int;
    stat: c"glfs_stat" c"GFAPI_3.4.0" fn(*mut Glfs, Path, *mut libc::stat64) -> c_int;
    lstat: c"glfs_lstat" c"GFAPI_3.4.0" fn(*mut Glfs, Path, *mut libc::stat64) -> c_int;
    unlink: c"glfs_unlink" c"GFAPI_3.4.0" fn(*mut Glfs, Path) -> c_int;
    rename: c"glfs_rename" c"GFAPI_3.4.0" fn(*mut Glfs, Path, Path) -> c_int;
    link: c"glfs_link" c"GFAPI_3.4.0" fn(*mut Glfs, Path, Path) -> c_int;
    symlink: c"glfs_symlink" c"GFAPI_3.4.0" fn(*mut Glfs, Path, Path) -> c_int;
    readlink: c"glfs_readlink" c"GFAPI_3.4.0" fn(*mut Glfs, Path, *mut c_char, usize) -> c_int;
    chmod: c"glfs_chmod" c"GFAPI_3.4.0" fn(*mut Glfs, Path, libc::mode_t) -> c_int;
    mkdir: c"glfs_mkdir" c"GFAPI_3.4.0" fn(*mut Glfs, Path, libc::mode_t) -> c_int;
    rmdir: c"glfs_rmdir" c"GFAPI_3.4.0" fn(*mut Glfs, Path) -> c_int;
    opendir: c"glfs_opendir" c"GFAPI_3.4.0" fn(*mut Glfs, Path) -> *mut GlfsFd;
    closedir: c"glfs_closedir" c"GFAPI_3.4.0" fn(*mut GlfsFd) -> c_int;
    readdir_r: c"glfs_readdir_r" c"GFAPI_3.4.0" fn(*mut GlfsFd, *mut libc::dirent64, *mut *mut libc::dirent64) -> c_int;
    readdirplus_r: c"glfs_readdirplus_r" c"GFAPI_3.4.0"
        fn(*mut GlfsFd, *mut libc::stat64, *mut libc::dirent64, *mut *mut libc::dirent64) -> c_int;
    statvfs: c"glfs_statvfs" c"GFAPI_3.4.0" fn(*mut Glfs, Path, *mut libc::statvfs64) -> c_int;
    getxattr: c"glfs_getxattr" c"GFAPI_3.4.0" fn(*mut Glfs, Path, *const c_char, *mut c_void, usize) -> isize;
    setxattr: c"glfs_setxattr" c"GFAPI_3.4.0" fn(*mut Glfs, Path, *const c_char, *const c_void, usize, c_int) -> c_int;
    removexattr: c"glfs_removexattr" c"GFAPI_3.4.0" fn(*mut Glfs, Path, *const c_char) -> c_int;
}

/// An address as the function it is.
///
/// # Safety
/// `F` is the type of a function pointer, and the function at `symbol` has that type.
unsafe fn cast<F: Copy>(symbol: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the sizes are equal; that the type is right is the caller's promise.
    unsafe { std::mem::transmute_copy(&symbol) }
}

/// An open library whose symbols are looked up by version.
struct Versioned {
    handle: *mut c_void,
}

impl Versioned {
    #[cfg(target_env = "gnu")]
    fn find(&self, name: &CStr, version: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is of an open library, which is never closed; both texts end with a NUL.
        let found = unsafe { libc::dlvsym(self.handle, name.as_ptr(), version.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// Other C libraries know no versions: they find the newest symbol, that of release 6.
    #[cfg(not(target_env = "gnu"))]
    fn find(&self, name: &CStr, _version: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is of an open library, which is never closed; the name ends with a NUL.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    fn need(&self, name: &CStr, version: &CStr) -> Result<*mut c_void, Error> {
        self.find(name, version).ok_or_else(|| {
            let (name, version) = (name.to_string_lossy(), version.to_string_lossy());
            Error::Library(format!("{name} of version {version} is not in it"))
        })
    }

    /// A function with a callback: its first version before release 6.
    fn of_era(&self, era: Era, name: &CStr, first: &CStr) -> Result<*mut c_void, Error> {
        self.need(name, if era == Era::New { c"GFAPI_6.0" } else { first })
    }

    fn sync(&self, era: Era, name: &CStr) -> Result<Sync, Error> {
        let symbol = self.of_era(era, name, c"GFAPI_3.4.0")?;
        Ok(match era {
            // SAFETY: the variant has the type that glfs.h gives this function in this era; this match upholds that.
            Era::New => Sync::New(unsafe { cast(symbol) }),
            // SAFETY: the variant has the type that glfs.h gives this function in this era; this match upholds that.
            Era::Old => Sync::Old(unsafe { cast(symbol) }),
        })
    }

    fn ftruncate(&self, era: Era) -> Result<Truncate, Error> {
        let symbol = self.of_era(era, c"glfs_ftruncate", c"GFAPI_3.4.0")?;
        Ok(match era {
            // SAFETY: the variant has the type that glfs.h gives this function in this era; this match upholds that.
            Era::New => Truncate::New(unsafe { cast(symbol) }),
            // SAFETY: the variant has the type that glfs.h gives this function in this era; this match upholds that.
            Era::Old => Truncate::Old(unsafe { cast(symbol) }),
        })
    }
}

/// The library, opened by the first call of this process and never closed: its threads outlive every connection.
///
/// # Errors
/// [`Error::Library`] if libgfapi cannot be loaded or lacks a function.
pub(crate) fn library() -> Result<&'static Library, Error> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| {
        // Another name is for tests, and for libraries in unusual places.
        let name = std::env::var("PLIMSOLL_LIBGFAPI").unwrap_or_else(|_| "libgfapi.so.0".to_owned());
        let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL;
        // SAFETY: libgfapi's initialisers do nothing that this program could be harmed by.
        let opened = unsafe { libloading::os::unix::Library::open(Some(&name), flags) };
        let handle = opened.map_err(|error| cause(&error))?.into_raw();
        Library::look_up(handle).map_err(|error| match error {
            Error::Library(why) => why,
            other => other.to_string(),
        })
    });
    found.as_ref().map_err(|why| Error::Library(why.clone()))
}

/// The message of the loader, without the names of functions around it.
fn cause(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// The open flags of `creat` that libgfapi wants in `flags`.
pub(crate) const CREATE: c_int = libc::O_CREAT;

/// `c_uint` is what modes are on every Linux; the declarations above rely on it.
const _: () = assert!(size_of::<libc::mode_t>() == size_of::<c_uint>());
