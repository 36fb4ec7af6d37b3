//! The reader: parses a document and checks all of it.
//!
//! It visits every value once. The depth limit bounds the recursion. All work is linear in the text, except
//! for the sort that finds duplicates among members that did not arrive in order.

use std::borrow::Cow;

use super::member::{Member, sort_key};
use super::text::plain_end;
use super::{Fault, FaultKind};
use crate::bounds::{JSON_DEPTH_MAX, JSON_MEMBERS_MAX};

/// Reads one document from front to back. After a fault the reader is unusable.
#[derive(Debug)]
pub struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    depth: usize,
    /// The number of members so far.
    count: usize,
    /// The members of all open objects, the innermost last.
    pub(super) members: Vec<Member<'a>>,
    /// A buffer for sorting members.
    pub(super) scratch: Vec<u8>,
}

/// An object that is being read, member by member.
#[derive(Debug)]
#[must_use = "an object must be read to its end"]
pub struct Object {
    /// The index of its first member among those of all open objects.
    pub(super) base: usize,
    /// Whether every name so far came after the one before it. Then there is nothing to sort, and there are
    /// no duplicates.
    pub(super) ascending: bool,
}

/// An array that is being read, element by element.
#[derive(Debug)]
#[must_use = "an array must be read to its end"]
pub struct Array {
    empty: bool,
}

/// The kind of a value, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kinds of JSON values need no explanation")]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    Bool,
    Null,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`, which must be UTF-8 without a byte-order mark.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(bytes).map_err(|error| FaultKind::NotUtf8.at(error.valid_up_to()))?;
        if text.starts_with('\u{feff}') {
            return Err(FaultKind::ByteOrderMark.at(0));
        }
        // Enough for the members of most messages, so that it need not grow.
        let members = Vec::with_capacity(16);
        Ok(Self { text, at: 0, depth: 0, count: 0, members, scratch: Vec::new() })
    }

    /// A reader of a text that will be part of another document, with so many levels around it and so many
    /// members beside it.
    pub fn within(bytes: &'a [u8], levels: usize, members: usize) -> Result<Self, Fault> {
        Ok(Self { depth: levels, count: members, ..Self::new(bytes)? })
    }

    /// The number of members in all objects so far.
    pub fn members_read(&self) -> usize {
        self.count
    }

    /// The kind of the next value, without reading it.
    pub fn kind(&mut self) -> Result<Kind, Fault> {
        match self.peek()? {
            b'{' => Ok(Kind::Object),
            b'[' => Ok(Kind::Array),
            b'"' => Ok(Kind::String),
            b'-' | b'0'..=b'9' => Ok(Kind::Number),
            b't' | b'f' => Ok(Kind::Bool),
            b'n' => Ok(Kind::Null),
            _ => Err(self.unexpected()),
        }
    }

    /// Begins an object.
    pub fn object(&mut self) -> Result<Object, Fault> {
        self.open(b'{')?;
        Ok(Object { base: self.members.len(), ascending: true })
    }

    /// Reads the name of the object's next member. Its value must be read next. `None` at the object's end.
    /// A repeated name is refused, there at the latest.
    pub fn member(&mut self, object: &mut Object) -> Result<Option<Cow<'a, str>>, Fault> {
        if self.next_member(object)? {
            return Ok(self.members.last().map(|member| member.name.clone()));
        }
        if !object.ascending {
            self.sort(object.base)?;
        }
        self.members.truncate(object.base);
        Ok(None)
    }

    /// Begins an array.
    pub fn array(&mut self) -> Result<Array, Fault> {
        self.open(b'[')?;
        Ok(Array { empty: true })
    }

    /// Whether the array has a next element, which must be read next.
    pub fn element(&mut self, array: &mut Array) -> Result<bool, Fault> {
        let more = self.more(array.empty, b']')?;
        array.empty = false;
        Ok(more)
    }

    /// Reads a string.
    #[inline]
    pub fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        let start = self.open_string()?;
        let end = self.plain_run()?;
        if self.close_string() {
            return Ok(Cow::Borrowed(&self.text[start..end]));
        }
        self.escaped_string(start).map(Cow::Owned)
    }

    /// Checks a value of any kind and returns its bytes as received.
    pub fn skip(&mut self) -> Result<&'a [u8], Fault> {
        self.canonical(&mut Vec::new())
    }

    /// The number of bytes that were not read yet.
    pub fn bytes_left(&self) -> usize {
        self.text.len().saturating_sub(self.at)
    }

    /// Ends the document. Only white space may follow.
    pub fn finish(mut self) -> Result<(), Fault> {
        self.skip_space();
        if self.at < self.text.len() { Err(FaultKind::TrailingText.at(self.at)) } else { Ok(()) }
    }
}

/// Bytes and structure.
impl<'a> Reader<'a> {
    /// Sorts the innermost object's members by their names, and finds repeated names.
    pub(super) fn sort(&mut self, base: usize) -> Result<(), Fault> {
        let members = &mut self.members[base..];
        members.sort_unstable_by(|a, b| a.order(b).then(a.at.cmp(&b.at)));
        let pairs = members.windows(2);
        let again = pairs.filter(|pair| pair[0].order(&pair[1]).is_eq()).map(|pair| pair[1].at).min();
        again.map_or(Ok(()), |at| Err(FaultKind::DuplicateMember.at(at)))
    }

    /// Reads on to the value of the next member, and keeps the member's name. `false` at the object's end.
    pub(super) fn next_member(&mut self, object: &mut Object) -> Result<bool, Fault> {
        if !self.more(self.members.len() == object.base, b'}')? {
            return Ok(false);
        }
        self.count += 1;
        if self.count > JSON_MEMBERS_MAX {
            return Err(FaultKind::TooMany.at(self.at));
        }
        self.skip_space();
        let at = self.at;
        let name = self.string()?;
        self.skip_space();
        self.expect(b':')?;
        let key = match &name {
            Cow::Borrowed(name) => sort_key(&self.text.as_bytes()[at + 1..], name.len()),
            Cow::Owned(name) => sort_key(name.as_bytes(), name.len()),
        };
        let member = Member { key, name, at, written: 0..0 };
        if let Some(before) = self.members[object.base..].last() {
            object.ascending &= before.order(&member).is_lt();
        }
        self.members.push(member);
        Ok(true)
    }

    /// Whether another member or element follows. It reads the comma, or else closes the object or array.
    #[inline]
    fn more(&mut self, empty: bool, bracket: u8) -> Result<bool, Fault> {
        let next = self.peek()?;
        if next == bracket {
            self.at += 1;
            self.depth = self.depth.saturating_sub(1);
            return Ok(false);
        }
        if !empty {
            self.expect(b',')?;
        }
        Ok(true)
    }

    fn open(&mut self, bracket: u8) -> Result<(), Fault> {
        self.skip_space();
        let at = self.at;
        self.expect(bracket)?;
        self.depth += 1;
        if self.depth > JSON_DEPTH_MAX { Err(FaultKind::TooDeep.at(at)) } else { Ok(()) }
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The first byte that is not white space.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<u8, Fault> {
        self.skip_space();
        self.byte().ok_or(FaultKind::UnexpectedEnd.at(self.at))
    }

    #[inline]
    pub(super) fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
    }

    #[inline]
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.byte() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected())
    }

    #[cold]
    pub(super) fn unexpected(&self) -> Fault {
        let kind = if self.byte().is_some() { FaultKind::Unexpected } else { FaultKind::UnexpectedEnd };
        kind.at(self.at)
    }
}

/// Strings.
impl Reader<'_> {
    /// Reads the opening quote and returns where the string's text begins.
    #[inline]
    pub(super) fn open_string(&mut self) -> Result<usize, Fault> {
        self.skip_space();
        self.expect(b'"')?;
        Ok(self.at)
    }

    /// Reads on to the next quote or backslash, and returns its position.
    #[inline]
    pub(super) fn plain_run(&mut self) -> Result<usize, Fault> {
        self.at = plain_end(self.text.as_bytes(), self.at);
        match self.byte() {
            Some(b'"' | b'\\') => Ok(self.at),
            Some(_) => Err(FaultKind::ControlCharacter.at(self.at)),
            None => Err(FaultKind::UnexpectedEnd.at(self.at)),
        }
    }

    #[inline]
    pub(super) fn close_string(&mut self) -> bool {
        let closes = self.byte() == Some(b'"');
        self.at += usize::from(closes);
        closes
    }

    /// Reads the rest of a string that began at `start` and has its first escape here.
    fn escaped_string(&mut self, start: usize) -> Result<String, Fault> {
        let mut text = self.text[start..self.at].to_owned();
        while !self.close_string() {
            text.push(self.escape()?);
            let start = self.at;
            let end = self.plain_run()?;
            text.push_str(&self.text[start..end]);
        }
        Ok(text)
    }

    /// Reads the escape that begins at the backslash.
    pub(super) fn escape(&mut self) -> Result<char, Fault> {
        let start = self.at;
        self.at += 2;
        match self.text.as_bytes().get(start + 1) {
            Some(&plain @ (b'"' | b'\\' | b'/')) => Ok(char::from(plain)),
            Some(b'b') => Ok('\u{8}'),
            Some(b'f') => Ok('\u{c}'),
            Some(b'n') => Ok('\n'),
            Some(b'r') => Ok('\r'),
            Some(b't') => Ok('\t'),
            Some(b'u') => self.code_point(start),
            Some(_) => Err(FaultKind::UnknownEscape.at(start)),
            None => Err(FaultKind::UnexpectedEnd.at(start + 1)),
        }
    }

    /// Reads the digits of a `\u` escape, and the second half of a surrogate pair.
    fn code_point(&mut self, start: usize) -> Result<char, Fault> {
        let lone = FaultKind::LoneSurrogate.at(start);
        let first = self.code_unit(start)?;
        let code = match first {
            0 => return Err(FaultKind::NullCharacter.at(start)),
            0xd800..0xdc00 => {
                if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
                    return Err(lone);
                }
                self.at += 2;
                let second = self.code_unit(start)?;
                let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400).ok_or(lone)?;
                0x10000 + ((first - 0xd800) << 10) + low
            }
            _ => first,
        };
        char::from_u32(code).ok_or(lone)
    }

    /// Reads the four digits of the escape that begins at `start`.
    fn code_unit(&mut self, start: usize) -> Result<u32, Fault> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.ok_or(FaultKind::UnexpectedEnd.at(self.text.len()))?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, &digit| {
            let value = char::from(digit).to_digit(16).ok_or(FaultKind::UnknownEscape.at(start))?;
            Ok(unit << 4 | value)
        })
    }
}
