//! Columns behind the Arrow C data interface: its two structs, and who owns what they point to.
//!
//! A consumer moves a struct out of where it lies and calls its `release` once. It may move children
//! out of their parent and release them later, from any thread. So each array has a share of the
//! page's columns, and the last one that is released gives their memory back to the pool.

use std::ffi::{c_char, c_void, CStr};
use std::ptr;
use std::sync::Arc;

use crate::columns::{Bits, Columns, Strings};
use crate::pool::Pool;

/// Of a page of 10 MB, three times: one is decoded, one waits, Spark copies one.
static POOL: Pool<Columns> = Pool::new(32 << 20);

/// Columns that go back to the pool in the end.
pub struct PooledColumns(pub Columns);

impl PooledColumns {
    pub fn take() -> Self {
        Self(POOL.take())
    }
}

impl Drop for PooledColumns {
    fn drop(&mut self) {
        POOL.give_back(std::mem::take(&mut self.0));
    }
}

#[repr(C)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

// SAFETY: whoever has one of them owns it, and what they point to is never changed.
unsafe impl Send for ArrowSchema {}
unsafe impl Send for ArrowArray {}

const NULLABLE: i64 = 2;
/// The columns of `PAGE_SCHEMA` in `get_records_decoder.py`: u is a string, z binary, tsu a
/// timestamp in microseconds.
const FIELDS: [(&CStr, &CStr, i64); 4] = [
    (c"sequenceNumber", c"u", 0),
    (c"partitionKey", c"u", NULLABLE),
    (c"data", c"z", NULLABLE),
    (c"approximateArrivalTimestamp", c"tsu:UTC", NULLABLE),
];

/// The schema of a page. Its release frees the children, and the list of pointers to them.
pub fn schema() -> ArrowSchema {
    let children: Box<[*mut ArrowSchema]> = FIELDS
        .iter()
        .map(|(name, format, flags)| Box::into_raw(Box::new(field(name, format, *flags))))
        .collect();
    let mut page = field(c"", c"+s", 0);
    page.n_children = FIELDS.len() as i64;
    page.children = Box::into_raw(children).cast();
    page.release = Some(release_schema);
    page
}

fn field(name: &'static CStr, format: &'static CStr, flags: i64) -> ArrowSchema {
    ArrowSchema {
        format: format.as_ptr(),
        name: name.as_ptr(),
        metadata: ptr::null(),
        flags,
        n_children: 0,
        children: ptr::null_mut(),
        dictionary: ptr::null_mut(),
        release: Some(release_field),
        private_data: ptr::null_mut(),
    }
}

/// SAFETY: called once, with a struct that `field` made, wherever it was moved to.
unsafe extern "C" fn release_field(schema: *mut ArrowSchema) {
    (*schema).release = None; // its texts are static
}

/// SAFETY: called once, with the struct that `schema` made, wherever it was moved to.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    let children = ptr::slice_from_raw_parts_mut((*schema).children, FIELDS.len());
    for child in Box::from_raw(children).iter() {
        if let Some(release) = (**child).release {
            release(*child);
        }
        drop(Box::from_raw(*child));
    }
    (*schema).release = None;
}

/// What an array's pointers lead to.
struct Owned {
    _columns: Arc<PooledColumns>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

/// The page as an array of structs, one a record.
pub fn array(columns: PooledColumns) -> ArrowArray {
    let shared = Arc::new(columns);
    let columns = &shared.0;
    let rows = columns.rows;
    let validity = |bits: &Bits| -> *const c_void {
        if bits.nulls == 0 {
            ptr::null()
        } else {
            bits.bytes.as_ptr().cast()
        }
    };
    let strings = |column: &Strings| -> ArrowArray {
        let (offsets, bytes) = (column.offsets.as_ptr().cast(), column.bytes.as_ptr().cast());
        let buffers = vec![validity(&column.bits), offsets, bytes];
        array_of(&shared, rows, column.bits.nulls, buffers, Vec::new())
    };
    let buffers = vec![validity(&columns.arrival_bits), columns.arrivals.as_ptr().cast()];
    let arrivals = array_of(&shared, rows, columns.arrival_bits.nulls, buffers, Vec::new());
    let children =
        [strings(&columns.numbers), strings(&columns.keys), strings(&columns.data), arrivals];
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    array_of(&shared, rows, 0, vec![ptr::null()], children)
}

fn array_of(
    columns: &Arc<PooledColumns>,
    rows: usize,
    nulls: usize,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
) -> ArrowArray {
    let mut owned = Box::new(Owned { _columns: Arc::clone(columns), buffers, children });
    ArrowArray {
        length: rows as i64,
        null_count: nulls as i64,
        offset: 0,
        n_buffers: owned.buffers.len() as i64,
        n_children: owned.children.len() as i64,
        buffers: owned.buffers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// SAFETY: called once, with a struct that `array_of` made, wherever it was moved to.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    let owned = Box::from_raw((*array).private_data.cast::<Owned>());
    for child in &owned.children {
        if let Some(release) = (**child).release {
            release(*child); // else the consumer has moved it out
        }
        drop(Box::from_raw(*child));
    }
    (*array).release = None;
}
