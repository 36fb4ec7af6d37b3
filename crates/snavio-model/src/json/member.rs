//! The members of objects, and their order in the canonical form.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

/// A member of an object that is still open.
#[derive(Debug)]
pub(super) struct Member<'a> {
    /// The beginning of the name, which decides most comparisons.
    pub(super) key: u64,
    pub(super) name: Cow<'a, str>,
    /// The position of the name in the text.
    pub(super) at: usize,
    /// The range in the output that holds the canonical form of name and value, and a comma.
    pub(super) written: Range<usize>,
}

impl Member<'_> {
    #[inline]
    pub(super) fn order(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then_with(|| utf16_order(&self.name, &other.name))
    }
}

/// The order of RFC 8785, by UTF-16 code units, computed on UTF-8.
///
/// UTF-8 and UTF-16 order two characters differently only if one is above U+FFFF, a surrogate pair in UTF-16,
/// and the other is in U+E000 to U+FFFF. The first byte of the former is F0 or above, of the latter EE or EF.
/// Lifting EE and EF above the others gives the order of UTF-16.
fn utf16_order(a: &str, b: &str) -> Ordering {
    let unequal = a.bytes().zip(b.bytes()).find(|(a, b)| a != b);
    unequal.map_or(a.len().cmp(&b.len()), |(a, b)| lifted(a).cmp(&lifted(b)))
}

fn lifted(byte: u8) -> u8 {
    if matches!(byte, 0xee | 0xef) { byte | 0x10 } else { byte }
}

/// The first eight bytes of a name, as a number that sorts as the names do. Zeros fill up a shorter name; no
/// name contains them. The bytes after the name may follow in the slice, so that eight bytes are read at
/// once.
#[inline]
pub(super) fn sort_key(name_and_more: &[u8], len: usize) -> u64 {
    let Some(eight) = name_and_more.first_chunk() else {
        let mut eight = [0; 8];
        eight.iter_mut().zip(name_and_more).for_each(|(to, from)| *to = *from);
        return sort_key(&eight, len);
    };
    let word = u64::from_be_bytes(*eight);
    let word = if len < 8 { word & !(u64::MAX >> (8 * len)) } else { word };
    if word & HIGH_BITS == 0 {
        return word;
    }
    u64::from_be_bytes(word.to_be_bytes().map(lifted))
}

const HIGH_BITS: u64 = u64::MAX / 255 * 0x80;
