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

#[derive(Clone, Copy)]
pub enum RecordField {
    Number = 1,
    Key = 2,
    Data = 4,
    Arrival = 8,
}

impl RecordField {
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"SequenceNumber" => Some(Self::Number),
            b"PartitionKey" => Some(Self::Key),
            b"Data" => Some(Self::Data),
            b"ApproximateArrivalTimestamp" => Some(Self::Arrival),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
pub enum BodyField {
    Records = 1,
    NextIterator = 2,
    Behind = 4,
    Children = 8,
    Continuation = 16,
}

impl BodyField {
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"Records" => Some(Self::Records),
            b"NextShardIterator" => Some(Self::NextIterator),
            b"MillisBehindLatest" => Some(Self::Behind),
            b"ChildShards" => Some(Self::Children),
            b"ContinuationSequenceNumber" => Some(Self::Continuation),
            _ => None,
        }
    }
}

/// Marks a field as seen. Declines the second one of its name: which of the two counts is for the
/// plain decoder to say.
pub fn once(seen: &mut u8, field: u8) -> Result<()> {
    if *seen & field != 0 {
        return Err(Declined);
    }
    *seen |= field;
    Ok(())
}
