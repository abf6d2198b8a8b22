//! The functions of OpenSSL 3, looked up by name: ssl.h and err.h of OpenSSL 3.0 to 3.5.
//!
//! The SAFETY comments of this crate name one contract, *as declared*: a field has the type that OpenSSL's headers give
//! the function of its name. The author of each row checks its declaration.

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

use crate::Error;

macro_rules! opaque {
    ($($name:ident)*) => {
        $(#[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        })*
    };
}

opaque! { Method Context Ssl Session SslCipher }

/// Tells whether a key of this identity is there: SSL_psk_find_session_cb_func.
pub type FindSession = unsafe extern "C" fn(*mut Ssl, *const c_uchar, usize, *mut *mut Session) -> c_int;
/// Gives the key to offer: SSL_psk_use_session_cb_func.
pub type UseSession =
    unsafe extern "C" fn(*mut Ssl, *const c_void, *mut *const c_uchar, *mut usize, *mut *mut Session) -> c_int;
/// Sees each message: the callback of SSL_CTX_set_msg_callback.
pub type Message = unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, usize, *mut Ssl, *mut c_void);
/// Sees a ClientHello before anything is decided: SSL_client_hello_cb_fn.
pub type ClientHello = unsafe extern "C" fn(*mut Ssl, *mut c_int, *mut c_void) -> c_int;

pub const CLIENT_HELLO_SUCCESS: c_int = 1;

pub const ERROR_WANT_READ: c_int = 2;
pub const ERROR_WANT_WRITE: c_int = 3;
pub const ERROR_SYSCALL: c_int = 5;
pub const ERROR_ZERO_RETURN: c_int = 6;
pub const KEY_UPDATE_NONE: c_int = -1;

pub const CTRL_MODE: c_int = 33;
pub const CTRL_SET_READ_AHEAD: c_int = 41;
pub const CTRL_SET_SESS_CACHE_MODE: c_int = 44;
pub const CTRL_SET_MIN_PROTO_VERSION: c_int = 123;

pub const MODE_ACCEPT_MOVING_WRITE_BUFFER: c_long = 0x2;
pub const MODE_RELEASE_BUFFERS: c_long = 0x10;

pub const OP_ENABLE_KTLS: u64 = 1 << 3;
pub const OP_IGNORE_UNEXPECTED_EOF: u64 = 1 << 7;

pub const VERIFY_PEER: c_int = 1;
pub const TLS1_3: c_int = 0x0304;
pub const CONTENT_HANDSHAKE: c_int = 22;

/// Declares the table of functions, and how it is filled.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// All functions that are used.
        #[allow(non_snake_case, reason = "the functions keep OpenSSL's names")]
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn look_up(opened: &libloading::Library) -> Result<Library, libloading::Error> {
                Ok(Library {
                    $(
                        // SAFETY: as declared; the library is never closed, so the address stays good.
                        $name: *unsafe { opened.get(concat!(stringify!($name), "\0").as_bytes()) }?,
                    )*
                })
            }
        }
    };
}

functions! {
    TLS_method: fn() -> *const Method;
    SSL_CTX_new: fn(*const Method) -> *mut Context;
    SSL_CTX_free: fn(*mut Context);
    SSL_CTX_ctrl: fn(*mut Context, c_int, c_long, *mut c_void) -> c_long;
    SSL_CTX_set_options: fn(*mut Context, u64) -> u64;
    SSL_CTX_set_ciphersuites: fn(*mut Context, *const c_char) -> c_int;
    SSL_CTX_set_num_tickets: fn(*mut Context, usize) -> c_int;
    SSL_CTX_set_verify: fn(*mut Context, c_int, *const c_void);
    SSL_CTX_set_msg_callback: fn(*mut Context, Message);
    SSL_CTX_set_client_hello_cb: fn(*mut Context, ClientHello, *mut c_void);
    SSL_CTX_set_psk_find_session_callback: fn(*mut Context, FindSession);
    SSL_CTX_set_psk_use_session_callback: fn(*mut Context, UseSession);
    SSL_new: fn(*mut Context) -> *mut Ssl;
    SSL_free: fn(*mut Ssl);
    SSL_set_ciphersuites: fn(*mut Ssl, *const c_char) -> c_int;
    SSL_set_fd: fn(*mut Ssl, c_int) -> c_int;
    SSL_set_accept_state: fn(*mut Ssl);
    SSL_set_connect_state: fn(*mut Ssl);
    SSL_set_ex_data: fn(*mut Ssl, c_int, *mut c_void) -> c_int;
    SSL_get_ex_data: fn(*const Ssl, c_int) -> *mut c_void;
    SSL_set_default_read_buffer_len: fn(*mut Ssl, usize);
    SSL_do_handshake: fn(*mut Ssl) -> c_int;
    SSL_session_reused: fn(*const Ssl) -> c_int;
    SSL_read_ex: fn(*mut Ssl, *mut c_void, usize, *mut usize) -> c_int;
    SSL_write_ex: fn(*mut Ssl, *const c_void, usize, *mut usize) -> c_int;
    SSL_has_pending: fn(*const Ssl) -> c_int;
    SSL_get_key_update_type: fn(*const Ssl) -> c_int;
    SSL_get_error: fn(*const Ssl, c_int) -> c_int;
    SSL_shutdown: fn(*mut Ssl) -> c_int;
    SSL_SESSION_new: fn() -> *mut Session;
    SSL_SESSION_free: fn(*mut Session);
    SSL_SESSION_set1_master_key: fn(*mut Session, *const c_uchar, usize) -> c_int;
    SSL_SESSION_set_cipher: fn(*mut Session, *const SslCipher) -> c_int;
    SSL_SESSION_set_protocol_version: fn(*mut Session, c_int) -> c_int;
    SSL_CIPHER_find: fn(*mut Ssl, *const c_uchar) -> *const SslCipher;
    ERR_clear_error: fn();
    ERR_get_error: fn() -> c_ulong;
    ERR_error_string_n: fn(c_ulong, *mut c_char, usize);
}

const _: () = assert!(size_of::<c_uint>() == 4);

impl Library {
    /// The oldest error of this thread in OpenSSL's words; forgets all of them.
    pub fn reason(&self) -> String {
        // SAFETY: as declared.
        let code = unsafe { (self.ERR_get_error)() };
        // SAFETY: as declared.
        unsafe { (self.ERR_clear_error)() };
        if code == 0 {
            return "no reason is given".into();
        }
        let mut text = [0 as c_char; 256];
        // SAFETY: as declared; the text has room for the given number of bytes, and gets a NUL at its end.
        unsafe { (self.ERR_error_string_n)(code, text.as_mut_ptr(), text.len()) };
        // SAFETY: a NUL ends the text.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
        // error:NUMBER:LIBRARY:FUNCTION:REASON
        text.rsplit(':').next().filter(|reason| !reason.is_empty()).unwrap_or(&text).to_owned()
    }
}

/// The library, opened by the first call of this process and never closed.
///
/// # Errors
/// [`Error::Library`] if OpenSSL 3 cannot be loaded or lacks a function.
pub fn library() -> Result<&'static Library, Error> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| {
        // Another name is for tests, and for libraries in unusual places.
        let name = std::env::var("PLIMSOLL_LIBSSL").unwrap_or_else(|_| "libssl.so.3".to_owned());
        // SAFETY: OpenSSL's initialisers do nothing that this program could be harmed by.
        let opened = unsafe { libloading::Library::new(&name) }.map_err(|error| cause(&error))?;
        let library = Library::look_up(&opened).map_err(|error| cause(&error));
        std::mem::forget(opened);
        library
    });
    found.as_ref().map_err(|why| Error::Library(why.clone()))
}

/// The message of the loader, without the names of functions around it.
fn cause(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
