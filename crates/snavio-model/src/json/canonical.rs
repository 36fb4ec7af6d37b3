//! Writes the canonical form of a value while it reads the value (MSG-8).
//!
//! It writes members in the order of their arrival and remembers their ranges. It sorts them only if they did
//! not arrive in order.

use super::member::Member;
use super::pointer::{Cut, Cuts};
use super::text::{write_char, write_string};
use super::{Fault, Pointer, Reader, number};

impl<'a> Reader<'a> {
    /// Checks a value of any kind, appends its canonical form and returns its bytes as received.
    pub fn canonical(&mut self, out: &mut Vec<u8>) -> Result<&'a [u8], Fault> {
        self.canonical_with(None, out)
    }

    /// As [`Reader::canonical`], without the members that the pointers name. The reader still checks these
    /// members.
    pub fn canonical_without(&mut self, left_out: &[Pointer], out: &mut Vec<u8>) -> Result<&'a [u8], Fault> {
        self.canonical_with(Some(&Cuts::of(left_out)), out)
    }

    fn canonical_with(&mut self, cuts: Option<&Cuts<'_>>, out: &mut Vec<u8>) -> Result<&'a [u8], Fault> {
        self.skip_space();
        let start = self.at;
        self.write_value(cuts, out)?;
        Ok(&self.text.as_bytes()[start..self.at])
    }

    fn write_value(&mut self, cuts: Option<&Cuts<'_>>, out: &mut Vec<u8>) -> Result<(), Fault> {
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
            self.write_value(None, out)?;
            out.push(b',');
        }
        close(out, body, b']');
        Ok(())
    }

    fn write_object(&mut self, cuts: Option<&Cuts<'_>>, out: &mut Vec<u8>) -> Result<(), Fault> {
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

    /// Writes the member that was read last.
    fn write_member(&mut self, cuts: Option<&Cuts<'_>>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let index = self.members.len() - 1;
        let start = out.len();
        self.write_name(index, out);
        match cuts.map(|cuts| cuts.at(&self.members[index].name)) {
            Some(Cut::Whole) => {
                self.write_value(None, out)?;
                out.truncate(start);
            }
            Some(Cut::Inside(cuts)) => self.write_member_value(Some(&cuts), out)?,
            None => self.write_member_value(None, out)?,
        }
        self.members[index].written = start..out.len();
        Ok(())
    }

    #[inline]
    fn write_member_value(&mut self, cuts: Option<&Cuts<'_>>, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.write_value(cuts, out)?;
        out.push(b',');
        Ok(())
    }

    /// Writes a member's name and a colon. The reader is behind the colon.
    #[inline]
    fn write_name(&self, index: usize, out: &mut Vec<u8>) {
        let Member { name, at, .. } = &self.members[index];
        let as_sent = &self.text.as_bytes()[*at..self.at];
        if as_sent.len() == name.len() + br#""":"#.len() {
            // The usual case, without escapes and white space, is copied as received.
            return out.extend_from_slice(as_sent);
        }
        write_string(out, name);
        out.push(b':');
    }

    /// Sorts the output of the innermost object by the order of its members.
    fn reorder(&mut self, base: usize, body: usize, out: &mut Vec<u8>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&out[body..]);
        out.truncate(body);
        for member in &self.members[base..] {
            out.extend_from_slice(&self.scratch[member.written.start - body..member.written.end - body]);
        }
    }
}

/// Ends an object or array. Each of its parts ended with a comma.
fn close(out: &mut Vec<u8>, body: usize, bracket: u8) {
    if out.len() > body {
        out.pop();
    }
    out.push(bracket);
}
