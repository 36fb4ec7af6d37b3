//! The reader: pulls a document apart, checks all of it, and writes the canonical form of any value in it.
//!
//! Every value is visited once. Members are written in the order they arrive, with their ranges remembered,
//! and put in order only if they did not come sorted; duplicates show while sorting. Recursion ends at the
//! depth limit, and all work is linear in the text but for that sort.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use super::pointer::{Cut, Cuts};
use super::text::{plain_end, write_char, write_string};
use super::{Fault, FaultKind, Pointer, number};
use crate::limits::{JSON_DEPTH_MAX, JSON_MEMBERS_MAX};

/// Reads one document from front to back. After a fault there is nothing more to be had from it.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Members and elements so far.
    count: usize,
    /// Members of all objects that are open, the innermost last.
    members: Vec<Member<'a>>,
    /// Room to put members in order.
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Member<'a> {
    name: Cow<'a, str>,
    /// Where the name stands in the text.
    at: usize,
    /// The canonical form of name and value with a comma behind it, in the output.
    written: Range<usize>,
}

/// An object that is being read, member by member.
#[derive(Debug)]
#[must_use = "an object must be read to its end"]
pub struct Object {
    /// Its first member among those of all open objects.
    base: usize,
    /// Every name so far came after the one before it: nothing to sort, no duplicates.
    ascending: bool,
}

/// An array that is being read, element by element.
#[derive(Debug)]
#[must_use = "an array must be read to its end"]
pub struct Array {
    empty: bool,
}

/// What a value is, by its first byte.
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
        Ok(Self { text, at: 0, depth: 0, count: 0, members: Vec::new(), scratch: Vec::new() })
    }

    /// What comes next, without reading it.
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

    /// The name of the object's next member, whose value must be read next; nothing at the object's end.
    /// A name that came before is refused, there at the latest.
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
    pub fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        let start = self.open_string()?;
        let end = self.plain_run()?;
        if self.close_string() {
            return Ok(Cow::Borrowed(&self.text[start..end]));
        }
        let mut text = self.text[start..end].to_owned();
        while !self.close_string() {
            text.push(self.escape()?);
            let start = self.at;
            let end = self.plain_run()?;
            text.push_str(&self.text[start..end]);
        }
        Ok(Cow::Owned(text))
    }

    /// Checks a value of any kind and returns its bytes as they came.
    pub fn skip(&mut self) -> Result<&'a [u8], Fault> {
        self.canonical(&mut Vec::new())
    }

    /// Checks a value of any kind, appends its canonical form and returns its bytes as they came.
    pub fn canonical(&mut self, out: &mut Vec<u8>) -> Result<&'a [u8], Fault> {
        self.canonical_with(&Cuts::NONE, out)
    }

    /// As [`Reader::canonical`], without the members that the pointers name. They are checked all the same.
    pub fn canonical_without(&mut self, left_out: &[Pointer], out: &mut Vec<u8>) -> Result<&'a [u8], Fault> {
        self.canonical_with(&Cuts::of(left_out), out)
    }

    /// Ends the document: nothing but white space may follow.
    pub fn finish(mut self) -> Result<(), Fault> {
        self.skip_space();
        if self.at < self.text.len() { Err(FaultKind::TrailingText.at(self.at)) } else { Ok(()) }
    }
}

/// Canonical form.
impl<'a> Reader<'a> {
    fn canonical_with(&mut self, cuts: &Cuts<'_>, out: &mut Vec<u8>) -> Result<&'a [u8], Fault> {
        self.skip_space();
        let start = self.at;
        self.write_value(cuts, out)?;
        Ok(&self.text.as_bytes()[start..self.at])
    }

    fn write_value(&mut self, cuts: &Cuts<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self.peek()? {
            b'"' => self.write_text(out),
            b'{' => self.write_object(cuts, out),
            b'[' => self.write_array(out),
            b'-' | b'0'..=b'9' => {
                self.at = number::canonical(self.text.as_bytes(), self.at, out)?;
                Ok(())
            }
            b't' => self.write_word("true", out),
            b'f' => self.write_word("false", out),
            b'n' => self.write_word("null", out),
            _ => Err(self.unexpected()),
        }
    }

    fn write_word(&mut self, word: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
        for &byte in word.as_bytes() {
            self.expect(byte)?;
        }
        out.extend_from_slice(word.as_bytes());
        Ok(())
    }

    fn write_text(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut start = self.at;
        self.open_string()?;
        loop {
            let end = self.plain_run()?;
            if self.close_string() {
                out.extend_from_slice(&self.text.as_bytes()[start..self.at]);
                return Ok(());
            }
            out.extend_from_slice(&self.text.as_bytes()[start..end]);
            write_char(out, self.escape()?);
            start = self.at;
        }
    }

    fn write_array(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut array = self.array()?;
        out.push(b'[');
        let body = out.len();
        while self.element(&mut array)? {
            self.write_value(&Cuts::NONE, out)?;
            out.push(b',');
        }
        close(out, body, b']');
        Ok(())
    }

    fn write_object(&mut self, cuts: &Cuts<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut object = self.object()?;
        out.push(b'{');
        let body = out.len();
        while self.next_member(&mut object)? {
            self.write_member(cuts, out)?;
        }
        if !object.ascending {
            self.sort(object.base)?;
            self.reorder(object.base, body, out);
        }
        self.members.truncate(object.base);
        close(out, body, b'}');
        Ok(())
    }

    /// Writes the member whose name was read last.
    fn write_member(&mut self, cuts: &Cuts<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let index = self.members.len() - 1;
        let start = out.len();
        self.members[index].write_name(out);
        match cuts.at(&self.members[index].name) {
            Cut::Inside(cuts) => {
                self.write_value(&cuts, out)?;
                out.push(b',');
            }
            Cut::Whole => {
                self.write_value(&Cuts::NONE, out)?;
                out.truncate(start);
            }
        }
        self.members[index].written = start..out.len();
        Ok(())
    }

    /// Puts the innermost object's members in the order of their names and finds names that came twice.
    #[cold]
    fn sort(&mut self, base: usize) -> Result<(), Fault> {
        let members = &mut self.members[base..];
        members.sort_unstable_by(|a, b| utf16_order(&a.name, &b.name).then(a.at.cmp(&b.at)));
        let twice =
            members.windows(2).filter(|pair| pair[0].name == pair[1].name).map(|pair| pair[1].at).min();
        twice.map_or(Ok(()), |at| Err(FaultKind::DuplicateMember.at(at)))
    }

    /// Rewrites what was written of the innermost object in the order of its members.
    fn reorder(&mut self, base: usize, body: usize, out: &mut Vec<u8>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&out[body..]);
        out.truncate(body);
        for member in &self.members[base..] {
            out.extend_from_slice(&self.scratch[member.written.start - body..member.written.end - body]);
        }
    }
}

impl Member<'_> {
    /// Appends the name and its colon.
    fn write_name(&self, out: &mut Vec<u8>) {
        match &self.name {
            // Without an escape in the text there is nothing to escape in the canonical form either.
            Cow::Borrowed(name) => {
                out.push(b'"');
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\":");
            }
            Cow::Owned(name) => {
                write_string(out, name);
                out.push(b':');
            }
        }
    }
}

/// Ends an object or array, each part of which left a comma behind.
fn close(out: &mut Vec<u8>, body: usize, bracket: u8) {
    if out.len() > body {
        out.pop();
    }
    out.push(bracket);
}

/// The order of RFC 8785, by UTF-16 code units, without leaving UTF-8.
///
/// The two differ only where a character past U+FFFF, a surrogate pair there, meets one of U+E000 to U+FFFF:
/// their first bytes are F0 and up, and EE or EF. Lifting those two above the others settles it.
fn utf16_order(a: &str, b: &str) -> Ordering {
    let unequal = a.bytes().zip(b.bytes()).find(|(a, b)| a != b);
    let lifted = |byte: u8| if matches!(byte, 0xee | 0xef) { byte | 0xfe } else { byte };
    unequal.map_or(a.len().cmp(&b.len()), |(a, b)| lifted(a).cmp(&lifted(b)))
}

/// Bytes and structure.
impl<'a> Reader<'a> {
    /// Reads on to the value of the next member, keeping its name; no at the object's end.
    fn next_member(&mut self, object: &mut Object) -> Result<bool, Fault> {
        if !self.more(self.members.len() == object.base, b'}')? {
            return Ok(false);
        }
        self.skip_space();
        let at = self.at;
        let name = self.string()?;
        self.skip_space();
        self.expect(b':')?;
        if let Some(before) = self.members[object.base..].last() {
            object.ascending &= utf16_order(&before.name, &name).is_lt();
        }
        self.members.push(Member { name, at, written: 0..0 });
        Ok(true)
    }

    /// Whether another member or element follows, past its comma; closes what is open otherwise.
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
        self.count += 1;
        if self.count > JSON_MEMBERS_MAX { Err(FaultKind::TooMany.at(self.at)) } else { Ok(true) }
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
    fn peek(&mut self) -> Result<u8, Fault> {
        self.skip_space();
        self.byte().ok_or(FaultKind::UnexpectedEnd.at(self.at))
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.byte() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected())
    }

    #[cold]
    fn unexpected(&self) -> Fault {
        let kind = if self.byte().is_some() { FaultKind::Unexpected } else { FaultKind::UnexpectedEnd };
        kind.at(self.at)
    }
}

/// Strings.
impl Reader<'_> {
    /// Reads the opening quote and returns where the string's text begins.
    #[inline]
    fn open_string(&mut self) -> Result<usize, Fault> {
        self.skip_space();
        self.expect(b'"')?;
        Ok(self.at)
    }

    /// Reads on to the next quote or backslash and returns where that is.
    #[inline]
    fn plain_run(&mut self) -> Result<usize, Fault> {
        self.at = plain_end(self.text.as_bytes(), self.at);
        match self.byte() {
            Some(b'"' | b'\\') => Ok(self.at),
            Some(_) => Err(FaultKind::ControlCharacter.at(self.at)),
            None => Err(FaultKind::UnexpectedEnd.at(self.at)),
        }
    }

    #[inline]
    fn close_string(&mut self) -> bool {
        let closes = self.byte() == Some(b'"');
        self.at += usize::from(closes);
        closes
    }

    /// Reads the escape that begins at the backslash.
    fn escape(&mut self) -> Result<char, Fault> {
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
