//! GetRecords bodies to Arrow columns, for `kinesis_spout/service/native_decoder.py`.

mod arrow;
mod cbor;
mod columns;
mod json;
mod lists;
mod page;
mod pool;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Mutex;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::arrow::{ArrowArray, ArrowSchema, PooledColumns};
use crate::page::{Declined, Page, Record, Result, Text, MAX_BODY};
use crate::pool::{Pool, Reusable};

/// Counts up with each change that another version of the door would not understand.
const INTERFACE: u32 = 1;

/// Of a page of 10,000 records half a megabyte, for each thread that decodes at a time.
static SPANS: Pool<Page> = Pool::new(4 << 20);

impl Reusable for Page {
    fn bytes(&self) -> usize {
        self.records.capacity() * std::mem::size_of::<Record>()
    }
}

/// An answer of GetRecords. Its records are in `lists`, or they are handed over once, by Arrow's
/// PyCapsule interface.
#[pyclass(frozen, module = "kinesis_spout_native")]
struct DecodedPage {
    columns: Mutex<Option<PooledColumns>>,
    /// Those of `lists.rs`; None where they were not asked for.
    #[pyo3(get)]
    lists: Option<Py<PyTuple>>,
    #[pyo3(get)]
    count: usize,
    /// Sequence number of the first record; None without records.
    #[pyo3(get)]
    first: Option<String>,
    #[pyo3(get)]
    last: Option<String>,
    /// Of the last record, milliseconds since 1970; None where it has none.
    #[pyo3(get)]
    last_arrival_ms: Option<i64>,
    #[pyo3(get)]
    next_iterator: Option<String>,
    #[pyo3(get)]
    millis_behind_latest: Option<i64>,
    /// Of an event of SubscribeToShard.
    #[pyo3(get)]
    continuation: Option<String>,
}

#[pymethods]
impl DecodedPage {
    /// Capsules of the schema and of the records. A second call raises ValueError, and so does the
    /// first one where the records are lists.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // the interface lets a producer ignore it
        let columns = self.columns.lock().ok().and_then(|mut columns| columns.take());
        let columns =
            columns.ok_or_else(|| PyValueError::new_err("the records are handed over"))?;
        // A consumer that takes a struct clears its `release`; else it is still the capsule's.
        let schema = PyCapsule::new_with_destructor(
            py,
            arrow::schema(),
            Some(c"arrow_schema".to_owned()),
            |mut schema: ArrowSchema, _| {
                if let Some(release) = schema.release {
                    unsafe { release(&mut schema) } // SAFETY: nobody else has it any more
                }
            },
        )?;
        let array = PyCapsule::new_with_destructor(
            py,
            arrow::array(columns),
            Some(c"arrow_array".to_owned()),
            |mut array: ArrowArray, _| {
                if let Some(release) = array.release {
                    unsafe { release(&mut array) } // SAFETY: as above
                }
            },
        )?;
        Ok((schema, array))
    }
}

/// Decode the body of a GetRecords answer, or of an event of SubscribeToShard: bytes, or another
/// contiguous buffer that nobody writes to meanwhile. Parses it, and fills columns, without the GIL.
/// Keeps nothing of the body.
///
/// Returns None for a body that the plain decoder has to read: one that is malformed, or that is
/// not as the service writes it.
#[pyfunction]
#[pyo3(signature = (body, *, is_cbor, as_lists=false))]
fn decode(
    py: Python<'_>,
    body: &Bound<'_, PyAny>,
    is_cbor: bool,
    as_lists: bool,
) -> PyResult<Option<DecodedPage>> {
    let buffer = PyBuffer::<u8>::get(body)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the body is not contiguous"));
    }
    if buffer.len_bytes() == 0 || buffer.len_bytes() > MAX_BODY {
        return Ok(None); // the pointer to nothing may be null
    }
    // SAFETY: `buffer` holds these bytes in their place until it is released, below.
    let bytes: &[u8] =
        unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) };
    // A panic would be a mistake in here, which must cost time and nothing else.
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        let mut page = SPANS.take();
        page.clear();
        let decoded = decoded_page(py, bytes, is_cbor, as_lists, &mut page);
        SPANS.give_back(page);
        decoded.ok()
    }));
    buffer.release(py);
    Ok(decoded.unwrap_or(None))
}

fn decoded_page(
    py: Python<'_>,
    body: &[u8],
    is_cbor: bool,
    as_lists: bool,
    page: &mut Page,
) -> Result<DecodedPage> {
    let mut decoded = py.allow_threads(|| {
        if is_cbor {
            cbor::parse(body, page)?;
        } else {
            json::parse(body, page)?;
        }
        let columns = if as_lists { None } else { Some(filled(body, page, is_cbor)?) };
        let (first, last) = (page.records.first(), page.records.last());
        Ok(DecodedPage {
            columns: Mutex::new(columns),
            lists: None,
            count: page.records.len(),
            first: first.map(|record| string(body, record.number)).transpose()?,
            last: last.map(|record| string(body, record.number)).transpose()?,
            last_arrival_ms: last
                .and_then(|record| record.arrival_us)
                .map(|us| us.div_euclid(1_000)),
            next_iterator: page.next_iterator.map(|text| string(body, text)).transpose()?,
            millis_behind_latest: page.millis_behind_latest,
            continuation: page.continuation.map(|text| string(body, text)).transpose()?,
        })
    })?;
    if as_lists {
        decoded.lists = Some(lists::lists(py, body, page, !is_cbor)?.unbind());
    }
    Ok(decoded)
}

fn filled(body: &[u8], page: &Page, is_cbor: bool) -> Result<PooledColumns> {
    let mut columns = PooledColumns::take();
    columns.0.fill(body, page, !is_cbor)?;
    Ok(columns)
}

fn string(body: &[u8], text: Text) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.span.len());
    if text.has_escapes {
        json::unescape(text.span.of(body), |piece| bytes.extend_from_slice(piece))?;
    } else {
        bytes.extend_from_slice(text.span.of(body));
    }
    String::from_utf8(bytes).map_err(|_| Declined)
}

#[pymodule]
fn kinesis_spout_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<DecodedPage>()?;
    module.add_function(wrap_pyfunction!(decode, module)?)
}
