//! The columns of a page, as Arrow has them in memory: values, offsets, and a bit for each value
//! that is there.

use base64_simd::{Out, STANDARD};

use crate::json::unescape;
use crate::page::{Declined, Page, Record, Result, Span, Text, MAX_BODY};
use crate::pool::Reusable;

/// The buffers of one page.
#[derive(Default)]
pub struct Columns {
    pub rows: usize,
    pub numbers: Strings,
    pub keys: Strings,
    pub data: Strings,
    pub arrivals: Vec<i64>,
    pub arrival_bits: Bits,
}

/// Value `i` is `bytes[offsets[i]..offsets[i + 1]]`.
#[derive(Default)]
pub struct Strings {
    pub offsets: Vec<i32>,
    pub bytes: Vec<u8>,
    pub bits: Bits,
}

/// Which values are there.
#[derive(Default)]
pub struct Bits {
    pub bytes: Vec<u8>,
    pub nulls: usize,
}

impl Bits {
    fn start(&mut self, rows: usize) -> Result<()> {
        self.bytes.clear();
        reserve(&mut self.bytes, rows.div_ceil(8))?;
        self.bytes.resize(rows.div_ceil(8), 0xff);
        self.nulls = 0;
        Ok(())
    }

    fn null(&mut self, row: usize) {
        self.bytes[row / 8] &= !(1 << (row % 8));
        self.nulls += 1;
    }
}

impl Strings {
    fn start(&mut self, rows: usize, bytes: usize) -> Result<()> {
        self.offsets.clear();
        reserve(&mut self.offsets, rows + 1)?;
        self.offsets.push(0);
        self.bytes.clear();
        reserve(&mut self.bytes, bytes)?;
        self.bits.start(rows)
    }

    fn end_value(&mut self) -> Result<()> {
        self.offsets.push(i32::try_from(self.bytes.len()).map_err(|_| Declined)?);
        Ok(())
    }

    fn text(&mut self, body: &[u8], text: Text) -> Result<()> {
        let written = text.span.of(body);
        if text.has_escapes {
            unescape(written, |piece| self.bytes.extend_from_slice(piece))?;
        } else {
            self.bytes.extend_from_slice(written);
        }
        self.end_value()
    }

    fn base64(&mut self, encoded: &[u8]) -> Result<()> {
        let length = match encoded {
            [] => 0, // the decoder takes it for a mistake
            _ => STANDARD.decoded_length(encoded).map_err(|_| Declined)?,
        };
        if length > 0 {
            let filled = self.bytes.len();
            self.bytes.reserve(length);
            let room = &mut self.bytes.spare_capacity_mut()[..length];
            let decoded =
                STANDARD.decode(encoded, Out::from_uninit_slice(room)).map_err(|_| Declined)?;
            let written = decoded.len();
            // SAFETY: `decode` returns the part of the room that it has written, which begins where
            // the filled part ends and is within the capacity.
            unsafe { self.bytes.set_len(filled + written) };
        }
        self.end_value()
    }

    fn null(&mut self, row: usize) -> Result<()> {
        self.bits.null(row);
        self.end_value()
    }

    fn bytes(&self) -> usize {
        self.bytes.capacity() + 4 * self.offsets.capacity() + self.bits.bytes.capacity()
    }
}

impl Columns {
    /// Copies the records of a page out of its body. `is_json`: payloads are base64.
    pub fn fill(&mut self, body: &[u8], page: &Page, is_json: bool) -> Result<()> {
        let records = &page.records;
        if body.len() > MAX_BODY || records.len() >= MAX_BODY {
            return Err(Declined);
        }
        // The sizes as they are in the body, where no value is shorter: nothing grows later.
        let length = |span: fn(&Record) -> Option<Span>| -> usize {
            records.iter().filter_map(span).map(Span::len).sum()
        };
        self.rows = records.len();
        self.numbers.start(self.rows, length(|record| Some(record.number.span)))?;
        self.keys.start(self.rows, length(|record| record.key.map(|key| key.span)))?;
        self.data.start(self.rows, length(|record| record.data))?;
        self.arrivals.clear();
        reserve(&mut self.arrivals, self.rows)?;
        self.arrival_bits.start(self.rows)?;
        for (row, record) in records.iter().enumerate() {
            self.numbers.text(body, record.number)?;
            match record.key {
                Some(key) => self.keys.text(body, key)?,
                None => self.keys.null(row)?,
            }
            match record.data {
                Some(span) if is_json => self.data.base64(span.of(body))?,
                Some(span) => {
                    self.data.bytes.extend_from_slice(span.of(body));
                    self.data.end_value()?;
                }
                None => self.data.null(row)?,
            }
            if record.arrival_us.is_none() {
                self.arrival_bits.null(row);
            }
            self.arrivals.push(record.arrival_us.unwrap_or(0));
        }
        Ok(())
    }
}

impl Reusable for Columns {
    fn bytes(&self) -> usize {
        self.numbers.bytes()
            + self.keys.bytes()
            + self.data.bytes()
            + 8 * self.arrivals.capacity()
            + self.arrival_bits.bytes.capacity()
    }
}

/// Room for so many values. Declines where there is no memory: Python can then raise its own error.
fn reserve<T>(values: &mut Vec<T>, count: usize) -> Result<()> {
    values.try_reserve(count).map_err(|_| Declined)
}
