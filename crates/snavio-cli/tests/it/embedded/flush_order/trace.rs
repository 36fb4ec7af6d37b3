//! Parses a trace of strace into calls, in the order in which they began, each with the positions of its
//! begin and return.
//!
//! strace writes a call in two parts, `… <unfinished ...>` and `<... name resumed>…`, if other threads made
//! calls meanwhile. Positions are line numbers: strace handles one stop of one thread at a time, so an
//! earlier line happened earlier.

use std::collections::HashMap;

/// One system call of the traced node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// Arguments and result as strace writes them.
    pub(crate) text: String,
    /// The position of its begin.
    pub(crate) begun: usize,
    /// The position of its return, if it returned.
    pub(crate) returned: Option<usize>,
}

impl Call {
    /// The file of the descriptor in the first argument, which strace names with `-y`.
    pub(crate) fn file(&self) -> &str {
        let described = self.text.split_once('<').filter(|(number, _)| number.parse::<u32>().is_ok());
        described.and_then(|(_, rest)| rest.split_once('>')).map_or("", |(file, _)| file)
    }

    /// Whether the call returned without an error.
    pub(crate) fn succeeded(&self) -> bool {
        self.returned.is_some()
            && self.text.rsplit_once(" = ").is_some_and(|(_, result)| {
                !result.starts_with('-') && !result.starts_with('?') && !result.contains("INJECTED")
            })
    }
}

/// Parses all calls of a trace made with `-f -y`.
pub(crate) fn parse(trace: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut unfinished: HashMap<&str, usize> = HashMap::new();
    for (position, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let call = unfinished.remove(thread).and_then(|index| calls.get_mut(index));
            if let (Some(call), Some((_, tail))) = (call, resumed.split_once(" resumed>")) {
                call.text.push_str(tail);
                call.returned = Some(position);
            }
            continue;
        }
        let Some((name, text)) = rest.split_once('(').filter(|(name, _)| is_name(name)) else { continue };
        let begun = text.strip_suffix("<unfinished ...>");
        if begun.is_some() {
            unfinished.insert(thread, calls.len());
        }
        calls.push(Call {
            name: name.to_owned(),
            text: begun.unwrap_or(text).to_owned(),
            begun: position,
            returned: begun.is_none().then_some(position),
        });
    }
    calls
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"
7  pwrite64(12</d/snavio.db-wal>, "a(b) = \"c\"", 10, 0) = 10
7  fsync(12</d/snavio.db-wal> <unfinished ...>
9  sendto(20<socket:[45]>, "HTTP/1.1 202", 12, MSG_NOSIGNAL, NULL, 0 <unfinished ...>
7  <... fsync resumed>)              = 0
9  <... sendto resumed>)             = 12
7  fsync(12</d/snavio.db-wal>)       = -1 EIO (Input/output error) (INJECTED)
8  --- SIGTERM {si_signo=SIGTERM} ---
8  write(2</dev/null>, "x", 1 <unfinished ...>
8  +++ exited with 0 +++
"#;

    fn summary(call: &Call) -> (&str, &str, usize, Option<usize>, bool) {
        (&call.name, call.file(), call.begun, call.returned, call.succeeded())
    }

    #[test]
    fn calls_are_joined_from_their_parts() {
        let calls = parse(TRACE);
        let summary: Vec<_> = calls.iter().map(summary).collect();
        let wal = "/d/snavio.db-wal";
        assert_eq!(
            summary,
            [
                ("pwrite64", wal, 1, Some(1), true),
                ("fsync", wal, 2, Some(4), true),
                ("sendto", "socket:[45]", 3, Some(5), true),
                ("fsync", wal, 6, Some(6), false),
                ("write", "/dev/null", 8, None, false),
            ]
        );
    }

    #[test]
    fn arguments_of_calls_stay_readable() {
        let calls = parse(TRACE);
        assert!(calls[0].text.contains(r#"a(b) = \"c\""#));
        assert_eq!(
            calls[2].text,
            r#"20<socket:[45]>, "HTTP/1.1 202", 12, MSG_NOSIGNAL, NULL, 0 )             = 12"#
        );
    }
}
