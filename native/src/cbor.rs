//! An answer in CBOR (RFC 8949): times are milliseconds, or seconds where they are below 10^11.

use crate::page::{micros, read_answer, Declined, Page, Result, Span, Text, Values, MAX_DEPTH};

const SECONDS_BELOW: f64 = 1e11;
const BREAK: u8 = 0xff;

pub fn parse(body: &[u8], page: &mut Page) -> Result<()> {
    let mut reader = Reader { body, at: 0 };
    read_answer(&mut reader, body, page)?;
    if reader.at != body.len() {
        return Err(Declined);
    }
    Ok(())
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8> {
        let byte = *self.body.get(self.at).ok_or(Declined)?;
        self.at += 1;
        Ok(byte)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let end = self.at.checked_add(N).ok_or(Declined)?;
        let found = self.body.get(self.at..end).ok_or(Declined)?;
        self.at = end;
        found.try_into().map_err(|_| Declined)
    }

    /// The argument of a head. None: of indefinite length.
    fn argument(&mut self, head: u8) -> Result<Option<u64>> {
        Ok(Some(match head & 0x1f {
            short @ 0..=23 => u64::from(short),
            24 => u64::from(self.byte()?),
            25 => u64::from(u16::from_be_bytes(self.bytes()?)),
            26 => u64::from(u32::from_be_bytes(self.bytes()?)),
            27 => u64::from_be_bytes(self.bytes()?),
            31 => return Ok(None),
            _ => return Err(Declined),
        }))
    }

    /// The head of an array (4) or a map (5): how many items or pairs follow.
    fn container(&mut self, major: u8) -> Result<Option<u64>> {
        let head = self.byte()?;
        if head >> 5 != major {
            return Err(Declined);
        }
        self.argument(head)
    }

    /// Whether another item of a container follows.
    fn more(&mut self, left: &mut Option<u64>) -> Result<bool> {
        match left {
            Some(0) => Ok(false),
            Some(count) => {
                *count -= 1;
                Ok(true)
            }
            None if self.body.get(self.at) == Some(&BREAK) => {
                self.at += 1;
                Ok(false)
            }
            None => Ok(true),
        }
    }

    fn string(&mut self, major: u8) -> Result<Span> {
        let head = self.byte()?;
        if head >> 5 != major {
            return Err(Declined);
        }
        let length = self.argument(head)?.ok_or(Declined)?; // one in chunks is rare
        let length = usize::try_from(length).map_err(|_| Declined)?;
        let begin = self.at;
        let end = begin.checked_add(length).ok_or(Declined)?;
        if end > self.body.len() {
            return Err(Declined);
        }
        self.at = end;
        Span::new(begin, end)
    }
}

impl Values for Reader<'_> {
    fn text(&mut self) -> Result<Text> {
        let span = self.string(3)?;
        std::str::from_utf8(span.of(self.body)).map_err(|_| Declined)?;
        Ok(Text { span, has_escapes: false })
    }

    fn data(&mut self) -> Result<Span> {
        self.string(2)
    }

    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.body.get(self.at) == Some(&0xf6) {
            self.at += 1;
            return Ok(None);
        }
        read(self).map(Some)
    }

    fn integer(&mut self) -> Result<i64> {
        let head = self.byte()?;
        let value = self.argument(head)?.ok_or(Declined)?;
        let value = i64::try_from(value).map_err(|_| Declined)?;
        match head >> 5 {
            0 => Ok(value),
            1 => Ok(-1 - value),
            _ => Err(Declined),
        }
    }

    fn time(&mut self) -> Result<i64> {
        let mut head = *self.body.get(self.at).ok_or(Declined)?;
        if head == 0xc1 {
            self.at += 1; // the tag of a time
            head = *self.body.get(self.at).ok_or(Declined)?;
        }
        let time = match head {
            0xfa => {
                self.at += 1;
                f64::from(f32::from_be_bytes(self.bytes()?))
            }
            0xfb => {
                self.at += 1;
                f64::from_be_bytes(self.bytes()?)
            }
            _ => {
                let value = self.integer()?;
                if value.unsigned_abs() >= 1 << 52 {
                    return Err(Declined);
                }
                value as f64
            }
        };
        micros(time, if time.abs() < SECONDS_BELOW { 1_000_000 } else { 1_000 })
    }

    fn object(&mut self, mut member: impl FnMut(&mut Self, Text) -> Result<()>) -> Result<()> {
        let mut left = self.container(5)?;
        while self.more(&mut left)? {
            let name = self.text()?;
            member(self, name)?;
        }
        Ok(())
    }

    fn array(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let mut left = self.container(4)?;
        while self.more(&mut left)? {
            item(self)?;
        }
        Ok(())
    }

    fn no_children(&mut self) -> Result<()> {
        match self.byte()? {
            0x80 | 0xf6 => Ok(()),
            _ => Err(Declined),
        }
    }

    fn skip(&mut self, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Declined);
        }
        let head = *self.body.get(self.at).ok_or(Declined)?;
        match head >> 5 {
            0 | 1 => self.integer().map(drop),
            2 => self.data().map(drop),
            3 => self.text().map(drop),
            4 => self.array(|reader| reader.skip(depth + 1)),
            5 => self.object(|reader, _| reader.skip(depth + 1)),
            _ => {
                self.at += 1;
                match head {
                    0xf4..=0xf6 => Ok(()),
                    0xfb => self.bytes::<8>().map(drop),
                    0xfa => self.bytes::<4>().map(drop),
                    _ => Err(Declined), // tags, and what is rare
                }
            }
        }
    }
}
