//! Media types: whether one declares JSON or text.

/// Whether a text is a media type that a header can carry: `type/subtype` with any parameters.
pub(super) fn is_media_type(text: &str) -> bool {
    let is_token = |token: &str| !token.is_empty() && token.bytes().all(is_token_byte);
    let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_printable && essence(text).split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub))
}

/// `type/subtype` in lower case, without parameters.
pub(super) fn essence(media_type: &str) -> String {
    let essence = media_type.split_once(';').map_or(media_type, |(essence, _)| essence);
    essence.trim_matches([' ', '\t']).to_ascii_lowercase()
}

/// Whether data of this type is JSON: `*/json` and `*/*+json`.
pub(super) fn is_json(media_type: &str) -> bool {
    essence(media_type).split_once('/').is_some_and(|(_, sub)| sub == "json" || sub.ends_with("+json"))
}

/// Whether people expect data of this type to be readable text, in UTF-8.
pub(super) fn is_utf8_text(media_type: &str) -> bool {
    let essence = essence(media_type);
    let Some((kind, sub)) = essence.split_once('/') else { return false };
    let is_text = kind == "text"
        || ["xml", "yaml", "toml", "javascript", "graphql", "sql", "x-www-form-urlencoded", "x-ndjson"]
            .contains(&sub)
        || ["+xml", "+yaml"].iter().any(|ending| sub.ends_with(ending));
    is_text && is_utf8(media_type)
}

/// Whether a media type names no charset other than UTF-8 or ASCII, which is a part of UTF-8.
pub fn is_utf8(media_type: &str) -> bool {
    let parameters = media_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let mut charsets = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    charsets.all(|(_, value)| {
        let charset = value.trim().trim_matches('"');
        ["utf-8", "utf8", "us-ascii"].iter().any(|name| charset.eq_ignore_ascii_case(name))
    })
}

/// Whether the type declares JSON in UTF-8, as every reader expects it (RFC 8259).
pub(super) fn is_json_in_utf8(media_type: &str) -> bool {
    is_json(media_type) && is_utf8(media_type)
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-6
    #[test]
    fn media_type_declares_json_or_text() {
        for (text, fits, json, utf8) in [
            ("application/json", true, true, false),
            ("Application/JSON ; charset=utf-8", true, true, false),
            ("application/vnd.acme+json", true, true, false),
            ("text/json", true, true, true),
            ("application/jsonp", true, false, false),
            ("text/plain", true, false, true),
            ("text/plain; charset=\"UTF-8\"", true, false, true),
            ("text/plain;charset=iso-8859-1", true, false, false),
            ("application/xml", true, false, true),
            ("image/svg+xml", true, false, true),
            ("application/x-www-form-urlencoded", true, false, true),
            ("application/octet-stream", true, false, false),
            ("json", false, false, false),
            ("a/b/c", false, false, false),
            ("/json", false, true, false),
            ("", false, false, false),
            ("text/plain\r\nx: y", false, false, true),
        ] {
            assert_eq!(is_media_type(text), fits, "{text:?}");
            assert_eq!((is_json(text), is_utf8_text(text)), (json, utf8), "{text:?}");
        }
    }

    /// MSG-6, MSG-10
    #[test]
    fn only_utf_8_and_ascii_charsets_are_accepted() {
        for (parameters, expected) in [
            ("", true),
            (";", true),
            ("; charset=utf-8", true),
            (";charset=UTF-8", true),
            ("; Charset=\"Utf-8\"", true),
            ("; charset=us-ascii; profile=x", true),
            ("; profile=x; charset=US-ASCII", true),
            ("; charset=utf-16", false),
            ("; charset=\"UTF-16LE\"", false),
            ("; CHARSET = iso-8859-1", false),
            ("; charset=utf-8; charset=utf-16", false),
            ("; charset=", false),
            ("; xcharset=utf-16", true),
        ] {
            assert_eq!(is_utf8(&format!("application/json{parameters}")), expected, "{parameters}");
        }
    }
}
