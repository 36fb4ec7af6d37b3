//! JSON as Python writes it: byte for byte the output of `json.dumps(json.loads(text), sort_keys=True)`
//! (MSG-7).
//!
//! This is not the canonical form. Python writes a space after commas and colons, escapes all characters
//! outside ASCII, sorts names by code points, keeps whole numbers as they are and converts all others to
//! doubles.

use crate::json::{Fault, Kind, Reader};

/// Writes a document as Python does.
pub fn dumps(document: &[u8]) -> Result<String, Fault> {
    let mut reader = Reader::new(document)?;
    let mut out = String::with_capacity(document.len() + document.len() / 4);
    write_value(&mut reader, &mut out)?;
    reader.finish()?;
    Ok(out)
}

fn write_value(reader: &mut Reader<'_>, out: &mut String) -> Result<(), Fault> {
    match reader.kind()? {
        Kind::Object => write_object(reader, out),
        Kind::Array => write_array(reader, out),
        Kind::String => {
            write_text(&reader.string()?, out);
            Ok(())
        }
        Kind::Number => {
            write_number(&String::from_utf8_lossy(reader.skip()?), out);
            Ok(())
        }
        Kind::Bool | Kind::Null => {
            out.push_str(&String::from_utf8_lossy(reader.skip()?));
            Ok(())
        }
    }
}

fn write_object(reader: &mut Reader<'_>, out: &mut String) -> Result<(), Fault> {
    let mut object = reader.object()?;
    let mut members = Vec::new();
    while let Some(name) = reader.member(&mut object)? {
        let mut value = String::new();
        write_value(reader, &mut value)?;
        members.push((name.into_owned(), value));
    }
    // The order of code points is the byte order of UTF-8.
    members.sort_unstable();
    out.push('{');
    for (place, (name, value)) in members.iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        write_text(name, out);
        out.push_str(": ");
        out.push_str(value);
    }
    out.push('}');
    Ok(())
}

fn write_array(reader: &mut Reader<'_>, out: &mut String) -> Result<(), Fault> {
    let mut array = reader.array()?;
    out.push('[');
    let mut is_first = true;
    while reader.element(&mut array)? {
        if !std::mem::take(&mut is_first) {
            out.push_str(", ");
        }
        write_value(reader, out)?;
    }
    out.push(']');
    Ok(())
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(char),
            _ => {
                let mut units = [0; 2];
                for unit in char.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

/// Python reads a number with a point or an exponent as a double, any other as a whole number of any length.
fn write_number(raw: &str, out: &mut String) {
    if !raw.contains(['.', 'e', 'E']) {
        return out.push_str(if raw == "-0" { "0" } else { raw });
    }
    // The reader has accepted the number, so `parse` accepts it too.
    let value: f64 = raw.parse().unwrap_or_default();
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    write_double(value, out);
}

/// Writes the shortest digits that identify the double, with an exponent below 1e-4 and from 1e16 on.
fn write_double(value: f64, out: &mut String) {
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    out.push_str(sign);
    match usize::try_from(exponent) {
        Ok(exponent @ 0..16) => {
            let whole = digits.len().min(exponent + 1);
            out.push_str(&digits[..whole]);
            out.extend(std::iter::repeat_n('0', exponent + 1 - whole));
            out.push('.');
            out.push_str(if whole < digits.len() { &digits[whole..] } else { "0" });
        }
        Err(_) if exponent >= -4 => {
            out.push_str("0.");
            out.extend((1..exponent.unsigned_abs()).map(|_| '0'));
            out.push_str(&digits);
        }
        _ => {
            out.push_str(&digits[..1]);
            if digits.len() > 1 {
                out.push('.');
                out.push_str(&digits[1..]);
            }
            out.push_str(if exponent < 0 { "e-" } else { "e+" });
            out.push_str(&format!("{:02}", exponent.unsigned_abs()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-7
    #[test]
    fn documents_are_written_as_python_writes_them() {
        for (document, written) in [
            ("{}", "{}"),
            ("[ ]", "[]"),
            (
                r#"{"b":[1,true,null],"a":{"d":2,"c":"x"}}"#,
                r#"{"a": {"c": "x", "d": 2}, "b": [1, true, null]}"#,
            ),
            (
                "\"é\u{7f}/\\/\\u0001\\b\\f\\n\\r\\t\\\"\\\\😀\"",
                r#""\u00e9\u007f//\u0001\b\f\n\r\t\"\\\ud83d\ude00""#,
            ),
            // By code points, not by UTF-16: the emoji comes last.
            ("{\"\u{1f600}\":1,\"\u{ffff}\":2}", r#"{"\uffff": 2, "\ud83d\ude00": 1}"#),
            ("-0", "0"),
            ("-0.0", "-0.0"),
            ("0e5", "0.0"),
            ("1.0", "1.0"),
            ("1e0", "1.0"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("9007199254740993.0", "9007199254740992.0"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("1.5E+300", "1.5e+300"),
            ("12345678901234567.0", "1.2345678901234568e+16"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("-1.25e-7", "-1.25e-07"),
            ("5e-324", "5e-324"),
            ("1e-400", "0.0"),
            ("1e400", "Infinity"),
            ("-1e400", "-Infinity"),
            ("0.1", "0.1"),
            ("100.5", "100.5"),
        ] {
            assert_eq!(dumps(document.as_bytes()).unwrap(), written, "{document}");
        }
        assert!(dumps(b"{\"a\":1,\"a\":2}").is_err());
    }
}
