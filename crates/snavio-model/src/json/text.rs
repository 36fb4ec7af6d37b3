//! Strings in their shortest form, as RFC 8785 writes them.

/// Appends `text` as a JSON string in canonical form: with no escape that is not required.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = plain_end(bytes, at);
        out.extend_from_slice(&bytes[at..end]);
        if let Some(&byte) = bytes.get(end) {
            write_ascii(out, byte);
        }
        at = end + 1;
    }
    out.push(b'"');
}

/// Appends one character of a string.
pub(super) fn write_char(out: &mut Vec<u8>, char: char) {
    match u8::try_from(char) {
        Ok(byte) if byte.is_ascii() => write_ascii(out, byte),
        _ => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn write_ascii(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        0..0x20 => {
            let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit & 15)];
            return out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte)]);
        }
        _ => return out.push(byte),
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// The end of the run of bytes that need no escape: a quote, a backslash, a control character or the end of
/// the text. It examines eight bytes at once, because strings are most of a message.
#[inline]
pub(super) fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let special = special_of_eight(u64::from_le_bytes(*eight));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|&byte| is_special(byte)).unwrap_or(rest.len())
}

fn is_special(byte: u8) -> bool {
    matches!(byte, 0..0x20 | b'"' | b'\\')
}

/// Sets the high bit of every special byte. A borrow may set bits above the first special byte, never below
/// it, so that the lowest bit is exact.
fn special_of_eight(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zero(word ^ (ONES * b'"' as u64));
    let backslash = zero(word ^ (ONES * b'\\' as u64));
    (control | quote | backslash) & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// MSG-8
        #[test]
        fn run_ends_where_a_simple_search_finds(bytes: Vec<u8>, from in 0..40usize) {
            let from = from.min(bytes.len());
            let plain = bytes[from..].iter().position(|&b| is_special(b)).map_or(bytes.len(), |n| from + n);
            prop_assert_eq!(plain_end(&bytes, from), plain);
        }

        /// MSG-8
        #[test]
        fn written_string_reads_back(text: String) {
            let mut out = Vec::new();
            write_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
