//! What both encodings have in common: where the values of a page are in its body.
//!
//! The decoders take regular answers. Whatever they are not sure about they decline, and the plain
//! decoder in Python reads the same body: it gives the page, or the error that says what is wrong.
//! So a wrong "decline" costs time, and nothing else. A page that they do take must be the one that
//! the plain decoder gives (`tests/property/test_native_decoder.py`).

/// A body that the plain decoder has to read.
#[derive(Debug, PartialEq, Eq)]
pub struct Declined;

pub type Result<T> = std::result::Result<T, Declined>;

/// Arrow's offsets have 32 bits.
pub const MAX_BODY: usize = i32::MAX as usize;
/// Deeper values are left to the plain decoder: a body must not be able to use up the stack.
pub const MAX_DEPTH: usize = 32;
const MIN_MICROS: i64 = -62_135_596_800_000_000; // the year 1
const MAX_MICROS: i64 = 253_402_300_799_999_999; // the year 9999

/// A place in a body of at most `MAX_BODY` bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    begin: u32,
    end: u32,
}

impl Span {
    /// Declines what is not a place in a body. The reader has made sure that it is in this one.
    pub fn new(begin: usize, end: usize) -> Result<Self> {
        let at = |place: usize| u32::try_from(place).map_err(|_| Declined);
        Ok(Self { begin: at(begin)?, end: at(end)? })
    }

    pub fn of(self, body: &[u8]) -> &[u8] {
        &body[self.begin as usize..self.end as usize]
    }

    pub fn len(self) -> usize {
        (self.end - self.begin) as usize
    }
}

/// A text of the body. One with escapes (JSON) has to be rewritten, and becomes shorter by that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text {
    pub span: Span,
    pub has_escapes: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    pub number: Text,
    pub key: Option<Text>,
    pub data: Option<Span>,
    pub arrival_us: Option<i64>,
}

/// An answer of GetRecords, or an event of SubscribeToShard, without child shards, as spans of its
/// body.
#[derive(Debug, Default)]
pub struct Page {
    pub records: Vec<Record>,
    pub next_iterator: Option<Text>,
    pub millis_behind_latest: Option<i64>,
    /// Of an event: the sequence number after which the next subscription continues.
    pub continuation: Option<Text>,
}

impl Page {
    /// Forgets the answer, and keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        *self = Self { records: std::mem::take(&mut self.records), ..Self::default() };
    }

    pub fn push(&mut self, record: Record) -> Result<()> {
        if self.records.len() == self.records.capacity() {
            self.records.try_reserve(1).map_err(|_| Declined)?; // doubles it
        }
        self.records.push(record);
        Ok(())
    }
}

/// Microseconds of a time in whole units and a fraction of one. The fraction is rounded half to
/// even, as `datetime.fromtimestamp` does.
pub fn micros(time: f64, per_unit: i64) -> Result<i64> {
    const EXACT: f64 = 4_503_599_627_370_496.0; // 2^52: up to there a double has its fraction
    if time.is_nan() || time.abs() >= EXACT {
        return Err(Declined);
    }
    let whole = time.trunc();
    let fraction = ((time - whole) * per_unit as f64).round_ties_even();
    let total = (whole as i64)
        .checked_mul(per_unit)
        .and_then(|value| value.checked_add(fraction as i64))
        .ok_or(Declined)?;
    if (MIN_MICROS..=MAX_MICROS).contains(&total) {
        Ok(total)
    } else {
        Err(Declined)
    }
}

/// What the readers of both encodings can do. The fields of an answer are read over it, once.
pub trait Values: Sized {
    fn text(&mut self) -> Result<Text>;
    /// A payload: of JSON, as it is written in base64.
    fn data(&mut self) -> Result<Span>;
    fn integer(&mut self) -> Result<i64>;
    /// Microseconds since 1970.
    fn time(&mut self) -> Result<i64>;
    /// None for null.
    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>>;
    /// Calls `member` with each name; it reads the value.
    fn object(&mut self, member: impl FnMut(&mut Self, Text) -> Result<()>) -> Result<()>;
    fn array(&mut self, item: impl FnMut(&mut Self) -> Result<()>) -> Result<()>;
    /// Children stand in the last answer of a shard alone: the plain decoder reads them.
    fn no_children(&mut self) -> Result<()>;
    fn skip(&mut self, depth: usize) -> Result<()>;
}

/// Reads an answer into the page. `reader` is at its begin.
pub fn read_answer<R: Values>(reader: &mut R, body: &[u8], page: &mut Page) -> Result<()> {
    let mut seen = Seen::default();
    reader.object(|reader, name| {
        match name.span.of(body) {
            b"Records" => {
                seen.once(0)?;
                return reader.array(|reader| {
                    let record = read_record(reader, body)?;
                    page.push(record)
                });
            }
            b"NextShardIterator" => {
                seen.once(1)?;
                page.next_iterator = reader.optional(R::text)?;
            }
            b"MillisBehindLatest" => {
                seen.once(2)?;
                page.millis_behind_latest = reader.optional(R::integer)?;
            }
            b"ChildShards" => {
                seen.once(3)?;
                reader.no_children()?;
            }
            b"ContinuationSequenceNumber" => {
                seen.once(4)?;
                page.continuation = reader.optional(R::text)?;
            }
            _ => reader.skip(0)?,
        }
        Ok(())
    })?;
    seen.needs(0)
}

fn read_record<R: Values>(reader: &mut R, body: &[u8]) -> Result<Record> {
    let mut record = Record::default();
    let mut seen = Seen::default();
    reader.object(|reader, name| {
        match name.span.of(body) {
            b"SequenceNumber" => {
                seen.once(0)?;
                record.number = reader.text()?;
            }
            b"PartitionKey" => {
                seen.once(1)?;
                record.key = reader.optional(R::text)?;
            }
            b"Data" => {
                seen.once(2)?;
                record.data = reader.optional(R::data)?;
            }
            b"ApproximateArrivalTimestamp" => {
                seen.once(3)?;
                record.arrival_us = reader.optional(R::time)?;
            }
            _ => reader.skip(0)?,
        }
        Ok(())
    })?;
    seen.needs(0)?;
    Ok(record)
}

/// Which fields of an object were read, by number.
#[derive(Default)]
struct Seen(u8);

impl Seen {
    /// Declines the second field of a name: which of the two counts is for the plain decoder to say.
    fn once(&mut self, field: u8) -> Result<()> {
        if self.0 & 1 << field != 0 {
            return Err(Declined);
        }
        self.0 |= 1 << field;
        Ok(())
    }

    fn needs(&self, field: u8) -> Result<()> {
        if self.0 & 1 << field == 0 {
            return Err(Declined);
        }
        Ok(())
    }
}
