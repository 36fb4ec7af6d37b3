//! Percent-encodes text for URLs and headers, as bytes of UTF-8.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but the unreserved characters of a URL.
const NOT_IN_URL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Control characters, non-ASCII characters, spaces, double quotes and percent signs.
const NOT_IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Encodes a text as a part of a path or a query.
pub fn in_url(text: &str) -> String {
    utf8_percent_encode(text, NOT_IN_URL).to_string()
}

/// Encodes a text as the value of a header.
pub fn in_header(text: &str) -> String {
    utf8_percent_encode(text, NOT_IN_HEADER).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_are_encoded_in_urls() {
        assert_eq!(in_url("a-Z.0_~"), "a-Z.0_~");
        assert_eq!(in_url("a/b?c=d&e#f g+%é"), "a%2Fb%3Fc%3Dd%26e%23f%20g%2B%25%C3%A9");
    }

    #[test]
    fn header_values_become_printable_ascii() {
        assert_eq!(in_header("Euro € 😀\"%"), "Euro%20%E2%82%AC%20%F0%9F%98%80%22%25");
        assert_eq!(in_header("a/b?c~\u{7f}"), "a/b?c~%7F");
    }
}
