//! The records of a page as Python lists, for a caller that wants an object for each value. Unlike
//! all else in here this has the GIL.

use base64_simd::{AsOut, STANDARD};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::json::unescape;
use crate::page::{Declined, Page, Result, Span, Text};

/// Sequence numbers (str), partition keys (str or None), payloads (bytes or None), and bytes: the
/// arrivals, microseconds since 1970 in 64 bits each. Declines a page in which one has no arrival.
pub fn lists<'py>(
    py: Python<'py>,
    body: &[u8],
    page: &Page,
    is_json: bool,
) -> Result<Bound<'py, PyTuple>> {
    let mut room = Vec::new();
    let (mut numbers, mut keys, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
    let mut arrivals: Vec<u8> = Vec::new();
    for record in &page.records {
        numbers.push(text(py, body, record.number, &mut room)?);
        keys.push(record.key.map(|key| text(py, body, key, &mut room)).transpose()?);
        payloads.push(record.data.map(|data| payload(py, body, data, is_json)).transpose()?);
        arrivals.extend_from_slice(&record.arrival_us.ok_or(Declined)?.to_ne_bytes());
    }
    let lists = (
        PyList::new(py, numbers).map_err(|_| Declined)?,
        PyList::new(py, keys).map_err(|_| Declined)?,
        PyList::new(py, payloads).map_err(|_| Declined)?,
        PyBytes::new(py, &arrivals),
    );
    lists.into_pyobject(py).map_err(|_| Declined)
}

fn text<'py>(
    py: Python<'py>,
    body: &[u8],
    text: Text,
    room: &mut Vec<u8>,
) -> Result<Bound<'py, PyString>> {
    let mut written = text.span.of(body);
    if text.has_escapes {
        room.clear();
        unescape(written, |piece| room.extend_from_slice(piece))?;
        written = room;
    }
    Ok(PyString::new(py, std::str::from_utf8(written).map_err(|_| Declined)?))
}

fn payload<'py>(
    py: Python<'py>,
    body: &[u8],
    span: Span,
    is_json: bool,
) -> Result<Bound<'py, PyBytes>> {
    let written = span.of(body);
    if !is_json || written.is_empty() {
        return Ok(PyBytes::new(py, written));
    }
    let length = STANDARD.decoded_length(written).map_err(|_| Declined)?;
    let mut is_whole = false;
    let found = PyBytes::new_with(py, length, |room| {
        is_whole = STANDARD.decode(written, room.as_out()).is_ok_and(|data| data.len() == length);
        Ok(())
    });
    found.ok().filter(|_| is_whole).ok_or(Declined)
}
