//! Registers the disks as an SQLite VFS.
//!
//! This is the one file with `unsafe`: SQLite's VFS is a table of C functions that receive pointers, and no crate builds one
//! without a C compiler's headers at build time. The reasons why it is sound:
//!
//! - SQLite calls a file's methods with the `sqlite3_file` that `open` filled in, until `close`. Its size is `szOsFile`.
//! - Each buffer has the length that SQLite passes with it, and no other code uses it during the call.
//! - The table and the names are never freed.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr;
use std::sync::{Mutex, Once, PoisonError};

use rusqlite::ffi;

use crate::{Shared, VFS, find};

#[repr(C)]
struct Open {
    base: ffi::sqlite3_file,
    file: *mut Handle,
}

/// An open file: one of a disk, or a temporary file of SQLite, which is lost in a power cut.
enum Handle {
    OnDisk { disk: Shared, name: String },
    Temporary(Mutex<Vec<u8>>),
}

/// SQLite's default VFS reports this for most files too: a write does not damage adjacent bytes.
const CHARACTERISTICS: c_int = ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE;

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Registers the VFS with SQLite, once per process.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let name = CString::new(VFS).expect("no zero in it").into_raw();
        let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: c_int::try_from(size_of::<Open>()).expect("a small size"),
            mxPathname: 512,
            pNext: ptr::null_mut(),
            zName: name,
            pAppData: ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: None,
            xCurrentTimeInt64: Some(current_time_int64),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: the table is leaked, so it lives for the rest of the process.
        let answer = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
        assert_eq!(answer, ffi::SQLITE_OK, "registering the test disk");
    });
}

fn code(answer: Result<(), i32>) -> c_int {
    answer.err().unwrap_or(ffi::SQLITE_OK)
}

unsafe fn handle<'a>(file: *mut ffi::sqlite3_file) -> &'a Handle {
    // SAFETY: `open` stored the handle, and `close` has not been called.
    unsafe { &*(*file.cast::<Open>()).file }
}

unsafe fn text<'a>(name: *const c_char) -> Option<&'a str> {
    // SAFETY: SQLite's names end with a zero.
    if name.is_null() {
        None
    } else {
        unsafe { CStr::from_ptr(name) }.to_str().ok()
    }
}

fn temporary(content: &Mutex<Vec<u8>>) -> std::sync::MutexGuard<'_, Vec<u8>> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    let open = file.cast::<Open>();
    // SAFETY: SQLite allocated `szOsFile` bytes, the size of an `Open`. Null methods mean that no file is open yet.
    unsafe { (*open).base.pMethods = ptr::null() };
    // SAFETY: see `text`.
    let new = match unsafe { text(name) } {
        None => Handle::Temporary(Mutex::default()),
        Some(path) => {
            let Some((disk, name)) = find(path) else {
                return ffi::SQLITE_CANTOPEN;
            };
            let mut state = disk.lock();
            if !state.exists(&name) {
                if flags & ffi::SQLITE_OPEN_CREATE == 0 {
                    return ffi::SQLITE_CANTOPEN;
                }
                if let Err(code) = state.create(&name) {
                    return code;
                }
            }
            if !flags_out.is_null() {
                let read_only = if state.is_read_only() {
                    ffi::SQLITE_OPEN_READONLY
                } else {
                    0
                };
                // SAFETY: the pointer is not null.
                unsafe { *flags_out = flags | read_only };
            }
            drop(state);
            Handle::OnDisk { disk, name }
        }
    };
    // SAFETY: SQLite allocated `szOsFile` bytes, the size of an `Open`.
    unsafe {
        (*open).file = Box::into_raw(Box::new(new));
        (*open).base.pMethods = &raw const METHODS;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` made the handle with `Box::into_raw`, and SQLite does not use the file after this call.
    drop(unsafe { Box::from_raw((*file.cast::<Open>()).file) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    len: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite's buffer is `len` bytes long.
    let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), usize::try_from(len).unwrap_or(0)) };
    let offset = usize::try_from(offset).unwrap_or(0);
    // SAFETY: see `handle`.
    let answer = match unsafe { handle(file) } {
        Handle::OnDisk { disk, name } => disk.lock().read(name, offset, into),
        Handle::Temporary(content) => {
            let content = temporary(content);
            let there = content.get(offset..).unwrap_or_default();
            let len = there.len().min(into.len());
            into[..len].copy_from_slice(&there[..len]);
            Ok(len)
        }
    };
    match answer {
        Ok(len) if len < into.len() => {
            into[len..].fill(0);
            ffi::SQLITE_IOERR_SHORT_READ
        }
        Ok(_) => ffi::SQLITE_OK,
        Err(code) => code,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    len: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite's buffer is `len` bytes long.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(len).unwrap_or(0)) };
    let offset = usize::try_from(offset).unwrap_or(0);
    // SAFETY: see `handle`.
    match unsafe { handle(file) } {
        Handle::OnDisk { disk, name } => code(disk.lock().write(name, offset, bytes)),
        Handle::Temporary(content) => {
            let mut content = temporary(content);
            let end = offset + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[offset..end].copy_from_slice(bytes);
            ffi::SQLITE_OK
        }
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: ffi::sqlite3_int64) -> c_int {
    let len = usize::try_from(len).unwrap_or(0);
    // SAFETY: see `handle`.
    match unsafe { handle(file) } {
        Handle::OnDisk { disk, name } => code(disk.lock().truncate(name, len)),
        Handle::Temporary(content) => {
            temporary(content).resize(len, 0);
            ffi::SQLITE_OK
        }
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: see `handle`.
    match unsafe { handle(file) } {
        Handle::OnDisk { disk, name } => code(disk.sync(name)),
        Handle::Temporary(_) => ffi::SQLITE_OK,
    }
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: see `handle`.
    let len = match unsafe { handle(file) } {
        Handle::OnDisk { disk, name } => disk.lock().len(name),
        Handle::Temporary(content) => temporary(content).len(),
    };
    // SAFETY: SQLite passes a valid pointer for the size.
    unsafe { *size = ffi::sqlite3_int64::try_from(len).unwrap_or(0) };
    ffi::SQLITE_OK
}

/// Always succeeds: only one connection uses a disk, so no lock is needed.
unsafe extern "C" fn lock(_file: *mut ffi::sqlite3_file, _level: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_file: *mut ffi::sqlite3_file, answer: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a valid pointer for the result.
    unsafe { *answer = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_file: *mut ffi::sqlite3_file, _op: c_int, _argument: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    CHARACTERISTICS
}

unsafe extern "C" fn delete(_vfs: *mut ffi::sqlite3_vfs, name: *const c_char, _sync_folder: c_int) -> c_int {
    // SAFETY: see `text`.
    let Some((disk, name)) = unsafe { text(name) }.and_then(find) else {
        return ffi::SQLITE_IOERR_DELETE;
    };
    let mut state = disk.lock();
    if state.exists(&name) {
        code(state.delete(&name))
    } else {
        ffi::SQLITE_IOERR_DELETE_NOENT
    }
}

unsafe extern "C" fn access(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    answer: *mut c_int,
) -> c_int {
    // SAFETY: see `text`.
    let is_there = unsafe { text(name) }
        .and_then(find)
        .is_some_and(|(disk, name)| disk.lock().exists(&name));
    // SAFETY: SQLite passes a valid pointer for the result.
    unsafe { *answer = c_int::from(is_there) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    to: *mut c_char,
) -> c_int {
    // SAFETY: see `text`.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if name.len() > usize::try_from(room).unwrap_or(0) {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: `to` has `room` bytes, and the name fits into them.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), to, name.len()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_vfs: *mut ffi::sqlite3_vfs, len: c_int, to: *mut c_char) -> c_int {
    // SAFETY: SQLite's buffer is `len` bytes long.
    unsafe { ptr::write_bytes(to, 7, usize::try_from(len).unwrap_or(0)) };
    len
}

unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

unsafe extern "C" fn current_time(_vfs: *mut ffi::sqlite3_vfs, now: *mut f64) -> c_int {
    // SAFETY: SQLite passes a valid pointer for the time.
    unsafe { *now = 2_460_000.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_int64(_vfs: *mut ffi::sqlite3_vfs, now: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes a valid pointer for the time.
    unsafe { *now = 212_544_043_200_000 };
    ffi::SQLITE_OK
}
