//! The functions of libibverbs and librdmacm, looked up by name and version.
//!
//! libibverbs has two versions of most functions, with other structures: IBVERBS_1.0 is for programs of 2006. The
//! calls of the data path are in no library: [`ContextOps`](crate::abi::ContextOps) has them.
//!
//! The SAFETY comments here name one contract, *as declared*: the type of a field repeats the declaration in
//! infiniband/verbs.h or rdma/rdma_cma.h. The author of each row checks its declaration.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::Error;
use crate::abi::{
    AsyncEvent, CmEvent, CmId, CompChannel, ConnParam, Context, Cq, DeviceAttr, EventChannel, Mr, Pd, QpInitAttr, Srq,
    SrqInitAttr,
};

const VERBS: &str = "libibverbs.so.1";
const MANAGER: &str = "librdmacm.so.1";

/// Declares the table of functions, and how it is filled.
macro_rules! functions {
    ($($field:ident: $library:ident $name:literal $version:literal fn($($argument:ty),*) -> $result:ty;)*) => {
        /// All functions that set connections up and end them.
        pub struct Library {
            $(#[doc = concat!("The function `", stringify!($name), "`.")]
            pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Library {
            fn look_up() -> Result<Library, Error> {
                let opened = Opened { verbs: Versioned::open(VERBS)?, manager: Versioned::open(MANAGER)? };
                Ok(Library {
                    $(
                        // SAFETY: as declared.
                        $field: unsafe { cast(opened.$library.need($name, $version)?) },
                    )*
                })
            }
        }
    };
}

functions! {
    query_device: verbs c"ibv_query_device" c"IBVERBS_1.1" fn(*mut Context, *mut DeviceAttr) -> c_int;
    alloc_pd: verbs c"ibv_alloc_pd" c"IBVERBS_1.1" fn(*mut Context) -> *mut Pd;
    dealloc_pd: verbs c"ibv_dealloc_pd" c"IBVERBS_1.1" fn(*mut Pd) -> c_int;
    reg_mr: verbs c"ibv_reg_mr" c"IBVERBS_1.1" fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr: verbs c"ibv_dereg_mr" c"IBVERBS_1.1" fn(*mut Mr) -> c_int;
    create_comp_channel: verbs c"ibv_create_comp_channel" c"IBVERBS_1.0" fn(*mut Context) -> *mut CompChannel;
    destroy_comp_channel: verbs c"ibv_destroy_comp_channel" c"IBVERBS_1.0" fn(*mut CompChannel) -> c_int;
    create_cq: verbs c"ibv_create_cq" c"IBVERBS_1.1"
        fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    destroy_cq: verbs c"ibv_destroy_cq" c"IBVERBS_1.1" fn(*mut Cq) -> c_int;
    get_cq_event: verbs c"ibv_get_cq_event" c"IBVERBS_1.1" fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events: verbs c"ibv_ack_cq_events" c"IBVERBS_1.1" fn(*mut Cq, c_uint) -> ();
    create_srq: verbs c"ibv_create_srq" c"IBVERBS_1.1" fn(*mut Pd, *mut SrqInitAttr) -> *mut Srq;
    destroy_srq: verbs c"ibv_destroy_srq" c"IBVERBS_1.1" fn(*mut Srq) -> c_int;
    get_async_event: verbs c"ibv_get_async_event" c"IBVERBS_1.1" fn(*mut Context, *mut AsyncEvent) -> c_int;
    ack_async_event: verbs c"ibv_ack_async_event" c"IBVERBS_1.1" fn(*mut AsyncEvent) -> ();
    wc_status_str: verbs c"ibv_wc_status_str" c"IBVERBS_1.1" fn(c_uint) -> *const c_char;
    create_event_channel: manager c"rdma_create_event_channel" c"RDMACM_1.0" fn() -> *mut EventChannel;
    destroy_event_channel: manager c"rdma_destroy_event_channel" c"RDMACM_1.0" fn(*mut EventChannel) -> ();
    create_id: manager c"rdma_create_id" c"RDMACM_1.0"
        fn(*mut EventChannel, *mut *mut CmId, *mut c_void, c_uint) -> c_int;
    destroy_id: manager c"rdma_destroy_id" c"RDMACM_1.0" fn(*mut CmId) -> c_int;
    migrate_id: manager c"rdma_migrate_id" c"RDMACM_1.0" fn(*mut CmId, *mut EventChannel) -> c_int;
    set_option: manager c"rdma_set_option" c"RDMACM_1.0" fn(*mut CmId, c_int, c_int, *mut c_void, usize) -> c_int;
    bind_addr: manager c"rdma_bind_addr" c"RDMACM_1.0" fn(*mut CmId, *mut libc::sockaddr) -> c_int;
    listen: manager c"rdma_listen" c"RDMACM_1.0" fn(*mut CmId, c_int) -> c_int;
    resolve_addr: manager c"rdma_resolve_addr" c"RDMACM_1.0"
        fn(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
    resolve_route: manager c"rdma_resolve_route" c"RDMACM_1.0" fn(*mut CmId, c_int) -> c_int;
    create_qp: manager c"rdma_create_qp" c"RDMACM_1.0" fn(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
    destroy_qp: manager c"rdma_destroy_qp" c"RDMACM_1.0" fn(*mut CmId) -> ();
    connect: manager c"rdma_connect" c"RDMACM_1.0" fn(*mut CmId, *mut ConnParam) -> c_int;
    accept: manager c"rdma_accept" c"RDMACM_1.0" fn(*mut CmId, *mut ConnParam) -> c_int;
    reject: manager c"rdma_reject" c"RDMACM_1.0" fn(*mut CmId, *const c_void, u8) -> c_int;
    disconnect: manager c"rdma_disconnect" c"RDMACM_1.0" fn(*mut CmId) -> c_int;
    get_cm_event: manager c"rdma_get_cm_event" c"RDMACM_1.0" fn(*mut EventChannel, *mut *mut CmEvent) -> c_int;
    ack_cm_event: manager c"rdma_ack_cm_event" c"RDMACM_1.0" fn(*mut CmEvent) -> c_int;
}

/// The functions, which are looked up once in a process.
///
/// # Errors
/// A library that is missing, or has not all functions.
pub fn library() -> Result<&'static Library, Error> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let found = Library::look_up()?;
    Ok(LIBRARY.get_or_init(|| found))
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

/// Both libraries.
struct Opened {
    verbs: Versioned,
    manager: Versioned,
}

/// An open library whose symbols are looked up by version. It is never closed.
struct Versioned {
    name: &'static str,
    handle: *mut c_void,
}

impl Versioned {
    fn open(name: &'static str) -> Result<Versioned, Error> {
        let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL;
        // SAFETY: loading the library runs its initialisers; rdma-core's need nothing from the program.
        match unsafe { libloading::os::unix::Library::open(Some(name), flags) } {
            Ok(library) => Ok(Versioned { name, handle: library.into_raw() }),
            Err(error) => {
                // The message of the loader, without the names of functions around it.
                let reason =
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), |cause| cause.to_string());
                Err(Error { library: name, reason: reason.replace('\n', " ") })
            }
        }
    }

    #[cfg(target_env = "gnu")]
    fn find(&self, name: &CStr, version: &CStr) -> *mut c_void {
        // SAFETY: the handle is of an open library, which is never closed; both texts end with a NUL.
        unsafe { libc::dlvsym(self.handle, name.as_ptr(), version.as_ptr()) }
    }

    /// Other C libraries know no versions: they find the newest symbol, that of 1.1.
    #[cfg(not(target_env = "gnu"))]
    fn find(&self, name: &CStr, _version: &CStr) -> *mut c_void {
        // SAFETY: the handle is of an open library, which is never closed; the name ends with a NUL.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    fn need(&self, name: &CStr, version: &CStr) -> Result<*mut c_void, Error> {
        let found = self.find(name, version);
        if found.is_null() {
            let (name, version) = (name.to_string_lossy(), version.to_string_lossy());
            return Err(Error { library: self.name, reason: format!("{name} of version {version} is not in it") });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_and_a_missing_function_are_one_line_that_names_them() {
        let error = Versioned::open("libibverbs-absent.so.1").err().expect("no such library").to_string();
        assert!(error.starts_with("cannot open libibverbs-absent.so.1: "), "{error}");
        assert!(error.contains("ibverbs-providers") && !error.contains('\n'), "{error}");

        let c = Versioned::open("libc.so.6").expect("the C library");
        let error = c.need(c"ibv_reg_mr", c"IBVERBS_1.1").expect_err("not a function of C").to_string();
        assert!(error.contains("ibv_reg_mr of version IBVERBS_1.1 is not in it"), "{error}");
    }
}
