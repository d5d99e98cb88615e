//! An answer in JSON (RFC 8259): times are seconds, payloads are base64.

use memchr::{memchr, memchr2};

use crate::page::{micros, read_answer, Declined, Page, Result, Span, Text, Values, MAX_DEPTH};

pub fn parse(body: &[u8], page: &mut Page) -> Result<()> {
    // Once for all strings: the rest of the reader may cut them anywhere at a quote.
    std::str::from_utf8(body).map_err(|_| Declined)?;
    let mut reader = Reader { body, at: 0 };
    read_answer(&mut reader, body, page)?;
    if reader.next().is_some() {
        return Err(Declined);
    }
    Ok(())
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// The next byte that is not white space; it stays.
    fn next(&mut self) -> Option<u8> {
        loop {
            match self.body.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<()> {
        if self.next() == Some(wanted) {
            self.at += 1;
            Ok(())
        } else {
            Err(Declined)
        }
    }

    fn literal(&mut self, text: &[u8]) -> Result<()> {
        if self.body[self.at..].starts_with(text) {
            self.at += text.len();
            Ok(())
        } else {
            Err(Declined)
        }
    }

    /// A number, as text by the grammar of JSON.
    fn number(&mut self) -> Result<&str> {
        self.next();
        let begin = self.at;
        let digits = |reader: &mut Self| -> Result<usize> {
            let first = reader.at;
            while matches!(reader.body.get(reader.at), Some(b'0'..=b'9')) {
                reader.at += 1;
            }
            if reader.at == first {
                Err(Declined)
            } else {
                Ok(reader.at - first)
            }
        };
        if self.body.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        let first = self.at;
        if digits(self)? > 1 && self.body[first] == b'0' {
            return Err(Declined);
        }
        if self.body.get(self.at) == Some(&b'.') {
            self.at += 1;
            digits(self)?;
        }
        if matches!(self.body.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.body.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            digits(self)?;
        }
        std::str::from_utf8(&self.body[begin..self.at]).map_err(|_| Declined)
    }
}

impl Values for Reader<'_> {
    fn object(&mut self, mut member: impl FnMut(&mut Self, Text) -> Result<()>) -> Result<()> {
        self.expect(b'{')?;
        if self.next() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let name = self.text()?;
            if name.has_escapes {
                return Err(Declined); // it might be a name that we know
            }
            self.expect(b':')?;
            self.next();
            member(self, name)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(Declined),
            }
            self.next();
        }
    }

    fn array(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[')?;
        if self.next() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.next();
            item(self)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(Declined),
            }
        }
    }

    /// A text. Its escapes are checked when they are rewritten.
    fn text(&mut self) -> Result<Text> {
        self.expect(b'"')?;
        let begin = self.at;
        let mut has_escapes = false;
        loop {
            let found = memchr2(b'"', b'\\', &self.body[self.at..]).ok_or(Declined)?;
            self.at += found;
            if self.body[self.at] == b'"' {
                break;
            }
            has_escapes = true;
            self.at += 2; // the byte behind a backslash is never the end
            if self.at > self.body.len() {
                return Err(Declined);
            }
        }
        let end = self.at;
        self.at += 1;
        // A control character has to be escaped. Without an end before the last byte, the compiler
        // compares many bytes at a time.
        if self.body[begin..end].iter().fold(false, |found, byte| found | (*byte < 0x20)) {
            return Err(Declined);
        }
        Ok(Text { span: Span::new(begin, end)?, has_escapes })
    }

    /// A payload. Its characters are checked when they are decoded.
    fn data(&mut self) -> Result<Span> {
        self.expect(b'"')?;
        let begin = self.at;
        let found = memchr2(b'"', b'\\', &self.body[begin..]).ok_or(Declined)?;
        if self.body[begin + found] != b'"' {
            return Err(Declined);
        }
        self.at = begin + found + 1;
        Span::new(begin, begin + found)
    }

    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.next() == Some(b'n') {
            return self.literal(b"null").map(|()| None);
        }
        read(self).map(Some)
    }

    fn integer(&mut self) -> Result<i64> {
        self.number()?.parse().map_err(|_| Declined)
    }

    fn time(&mut self) -> Result<i64> {
        micros(self.number()?.parse().map_err(|_| Declined)?, 1_000_000)
    }

    fn no_children(&mut self) -> Result<()> {
        if self.next() == Some(b'n') {
            return self.literal(b"null");
        }
        self.array(|_| Err(Declined))
    }

    fn skip(&mut self, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Declined);
        }
        match self.next().ok_or(Declined)? {
            b'{' => self.object(|reader, _| reader.skip(depth + 1)),
            b'[' => self.array(|reader| reader.skip(depth + 1)),
            b'"' => {
                let text = self.text()?;
                unescape(text.span.of(self.body), |_| ())
            }
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => self.number().map(drop),
        }
    }
}

/// Passes on a text without its escapes, piece by piece: never more bytes than it had. Declines a
/// half of a surrogate pair.
pub fn unescape(text: &[u8], mut pass: impl FnMut(&[u8])) -> Result<()> {
    let mut rest = text;
    while let Some(at) = memchr(b'\\', rest) {
        pass(&rest[..at]);
        let escape = *rest.get(at + 1).ok_or(Declined)?;
        rest = &rest[at + 2..];
        let one = match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => unicode(&mut rest)?,
            _ => return Err(Declined),
        };
        pass(one.encode_utf8(&mut [0; 4]).as_bytes());
    }
    pass(rest);
    Ok(())
}

/// The character behind `\u`: of four digits, or of twelve with another `\u` between them.
fn unicode(rest: &mut &[u8]) -> Result<char> {
    let mut unit = hex(rest)?;
    if (0xd800..0xdc00).contains(&unit) {
        *rest = rest.strip_prefix(b"\\u").ok_or(Declined)?;
        let low = hex(rest)?;
        if !(0xdc00..0xe000).contains(&low) {
            return Err(Declined);
        }
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    }
    char::from_u32(unit).ok_or(Declined)
}

fn hex(rest: &mut &[u8]) -> Result<u32> {
    let digits = rest.get(..4).ok_or(Declined)?;
    *rest = &rest[4..];
    digits.iter().try_fold(0, |value, digit| {
        char::from(*digit).to_digit(16).map(|digit| value * 16 + digit).ok_or(Declined)
    })
}
