//! Looks up any number of values in a document that was checked before, in one pass over it.

use std::ops::Range;

use super::{Fault, Kind, Pointer, Reader};

/// A value within a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    pub kind: Kind,
    /// Its bytes as received.
    pub raw: &'a [u8],
}

impl<'a> Found<'a> {
    /// The value that a pointer names, if the document has it. In an array, a name that is a whole number is
    /// the index of an element, from zero. Reading ends with the value.
    pub fn at(document: &'a [u8], pointer: &Pointer) -> Result<Option<Self>, Fault> {
        let mut found = [LookupState::Open];
        Walk::over(document, &[pointer], &mut found)?;
        Ok(found[0].found())
    }

    /// The text, if the value is a string.
    pub fn text(&self) -> Option<String> {
        let mut reader = Reader::new(self.raw).ok().filter(|_| self.kind == Kind::String)?;
        reader.string().ok().map(std::borrow::Cow::into_owned)
    }

    /// The number in canonical form, if it is a whole one: `7` for `7.0`, `1000` for `1e3`.
    pub fn whole_number(&self) -> Option<String> {
        let mut text = Vec::new();
        Reader::new(self.raw).ok().filter(|_| self.kind == Kind::Number)?.canonical(&mut text).ok()?;
        // From 1e21 on a number has an exponent. It is whole if the exponent reaches over all digits after
        // the point.
        let text = String::from_utf8(text).ok()?;
        let is_whole = match text.split_once("e+") {
            None => !text.contains(['.', 'e']),
            Some((digits, exponent)) => {
                let behind_point = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
                exponent.parse().is_ok_and(|exponent: usize| behind_point <= exponent)
            }
        };
        is_whole.then_some(text)
    }
}

/// The values that many pointers name. Each is as [`Found::at`] finds it, and the document is read once.
#[derive(Debug)]
pub struct Lookups<'p, 'a> {
    /// Sorted, each pointer once.
    pointers: Vec<&'p Pointer>,
    /// The result of each pointer.
    found: Vec<LookupState<'a>>,
}

impl<'p, 'a> Lookups<'p, 'a> {
    /// Looks up the values that the pointers name. Reading ends with the last of them.
    pub fn of(document: &'a [u8], pointers: impl IntoIterator<Item = &'p Pointer>) -> Result<Self, Fault> {
        let mut pointers: Vec<_> = pointers.into_iter().collect();
        pointers.sort_unstable();
        pointers.dedup();
        let mut found = vec![LookupState::Open; pointers.len()];
        if !pointers.is_empty() {
            Walk::over(document, &pointers, &mut found)?;
        }
        Ok(Self { pointers, found })
    }

    /// The value that one of the pointers names, if the document has it.
    pub fn at(&self, pointer: &Pointer) -> Option<Found<'a>> {
        let place = self.pointers.binary_search(&pointer).ok()?;
        self.found[place].found()
    }
}

/// The state of one look-up.
#[derive(Debug, Clone, Copy)]
enum LookupState<'a> {
    /// Not found yet.
    Open,
    /// The document does not have the value.
    Missing,
    Present(Found<'a>),
}

impl<'a> LookupState<'a> {
    fn found(self) -> Option<Found<'a>> {
        match self {
            Self::Present(found) => Some(found),
            Self::Open | Self::Missing => None,
        }
    }
}

/// One pass through a document, for all pointers. The pointers are sorted: those through one value are next
/// to each other, and a pointer that ends at the value comes before those that go deeper.
struct Walk<'w, 'p, 'a> {
    reader: Reader<'a>,
    pointers: &'w [&'p Pointer],
    found: &'w mut [LookupState<'a>],
    /// A buffer for the canonical form of values that are only checked.
    passed: Vec<u8>,
}

impl<'w, 'p, 'a> Walk<'w, 'p, 'a> {
    fn over(
        document: &'a [u8],
        pointers: &'w [&'p Pointer],
        found: &'w mut [LookupState<'a>],
    ) -> Result<(), Fault> {
        let all = 0..pointers.len();
        let mut walk = Self { reader: Reader::new(document)?, pointers, found, passed: Vec::new() };
        walk.enter(all, 0, false)
    }

    /// Reads the next value. The pointers `of` lead to it or through it by their first `names` names. Unless
    /// the document is read further (`goes_on`), the value is read no further than needed.
    fn enter(&mut self, of: Range<usize>, names: usize, goes_on: bool) -> Result<(), Fault> {
        let kind = self.reader.kind()?;
        let ends_here = self.pointers[of.start].names().len() == names;
        let inside = of.start + usize::from(ends_here)..of.end;
        // Telling the kind has skipped white space.
        let start = self.reader.at;
        match kind {
            Kind::Object if !inside.is_empty() => self.object(inside.clone(), names, goes_on || ends_here)?,
            Kind::Array if !inside.is_empty() => self.array(inside.clone(), names, goes_on || ends_here)?,
            _ if goes_on || ends_here => self.pass()?,
            _ => {}
        }
        for sought in &mut self.found[inside] {
            if let LookupState::Open = sought {
                *sought = LookupState::Missing;
            }
        }
        if ends_here {
            let raw = &self.reader.text.as_bytes()[start..self.reader.at];
            self.found[of.start] = LookupState::Present(Found { kind, raw });
        }
        Ok(())
    }

    fn object(&mut self, of: Range<usize>, names: usize, goes_on: bool) -> Result<(), Fault> {
        let mut object = self.reader.object()?;
        let mut open = of.len();
        while open > 0 || goes_on {
            let Some(name) = self.reader.member(&mut object)? else { return Ok(()) };
            open -= self.part(&of, names, &name, open, goes_on)?;
        }
        Ok(())
    }

    fn array(&mut self, of: Range<usize>, names: usize, goes_on: bool) -> Result<(), Fault> {
        let mut open =
            self.pointers[of.clone()].iter().filter(|pointer| is_index(&pointer.names()[names])).count();
        if open == 0 {
            return if goes_on { self.pass() } else { Ok(()) };
        }
        let mut array = self.reader.array()?;
        let mut index = Index::default();
        while open > 0 || goes_on {
            if !self.reader.element(&mut array)? {
                return Ok(());
            }
            open -= self.part(&of, names, index.text(), open, goes_on)?;
            index.rise();
        }
        Ok(())
    }

    /// Reads the member or element called `name`, and returns how many pointers lead to it or through it.
    fn part(
        &mut self,
        of: &Range<usize>,
        names: usize,
        name: &str,
        open: usize,
        goes_on: bool,
    ) -> Result<usize, Fault> {
        let through = self.through(of, names, name);
        // If a name comes twice, the first one counts. The end of the object reveals the repetition, if it is
        // read.
        let is_new =
            through.clone().next().is_some_and(|first| matches!(self.found[first], LookupState::Open));
        if !is_new {
            self.pass()?;
            return Ok(0);
        }
        let count = through.len();
        self.enter(through, names + 1, goes_on || open > count)?;
        Ok(count)
    }

    /// The pointers with `name` as their next name.
    fn through(&self, of: &Range<usize>, names: usize, name: &str) -> Range<usize> {
        let pointers = &self.pointers[of.clone()];
        let next = |pointer: &&Pointer| pointer.names()[names].as_str().cmp(name);
        let before = pointers.partition_point(|pointer| next(pointer).is_lt());
        let same = pointers[before..].partition_point(|pointer| next(pointer).is_eq());
        of.start + before..of.start + before + same
    }

    fn pass(&mut self) -> Result<(), Fault> {
        self.passed.clear();
        self.reader.canonical(&mut self.passed)?;
        Ok(())
    }
}

/// Whether a name is an index in its only valid form, without a plus sign or leading zeros.
fn is_index(name: &str) -> bool {
    (name == "0" || !name.starts_with(['0', '+'])) && name.parse::<usize>().is_ok()
}

/// The index of an element as text, counted up in place for every element.
struct Index {
    digits: [u8; Self::DIGITS],
    start: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { digits: [b'0'; Self::DIGITS], start: Self::DIGITS - 1 }
    }
}

impl Index {
    /// More digits than any index has.
    const DIGITS: usize = 20;

    fn text(&self) -> &str {
        std::str::from_utf8(&self.digits[self.start..]).unwrap_or_default()
    }

    /// Counts up by one.
    fn rise(&mut self) {
        for at in (0..Self::DIGITS).rev() {
            self.start = self.start.min(at);
            if self.digits[at] < b'9' {
                self.digits[at] += 1;
                return;
            }
            self.digits[at] = b'0';
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(document: &str, pointer: &str) -> Option<String> {
        let found = Found::at(document.as_bytes(), &Pointer::new(pointer).unwrap()).unwrap();
        found.map(|value| String::from_utf8(value.raw.to_vec()).unwrap())
    }

    /// MSG-7, ORD-1
    #[test]
    fn pointer_finds_members_and_elements() {
        let document = r#"{"a": {"b~/": [10, {"c": "x"}]}, "": 1.0, "\u0061b": null}"#;
        for (pointer, found) in [
            ("/a/b~0~1/0", Some("10")),
            ("/a/b~0~1/1/c", Some(r#""x""#)),
            ("/a/b~0~1/2", None),
            ("/a/b~0~1/01", None),
            ("/a/b~0~1/+1", None),
            ("/a/b~0~1/-", None),
            ("/", Some("1.0")),
            ("/ab", Some("null")),
            ("/ab/c", None),
            ("/x", None),
            ("/a/b", None),
        ] {
            assert_eq!(at(document, pointer).as_deref(), found, "{pointer}");
        }
        assert_eq!(at("[1,[2]]", "/1/0").as_deref(), Some("2"));
        assert_eq!(at("7", "/a"), None);
        assert!(Found::at(b"{\"a\":", &Pointer::new("/a").unwrap()).is_err());
    }

    fn pointers(texts: &[&str]) -> Vec<Pointer> {
        texts.iter().map(|text| Pointer::new(text).unwrap()).collect()
    }

    /// ORD-1, MSG-7
    #[test]
    fn many_pointers_find_the_same_as_each_alone() {
        let document = r#" {"a": {"b": [10, {"c": "x"}, [ ], 3], "b~/": true}, "": {"": 1}, "\u00e9": {"\"": null}, "a/b": 7} "#;
        let asked = pointers(&[
            "/a",
            "/a/b",
            "/a/b/0",
            "/a/b/1",
            "/a/b/1/c",
            "/a/b/1/c/d",
            "/a/b/2",
            "/a/b/2/0",
            "/a/b/3",
            "/a/b/4",
            "/a/b/10",
            "/a/b/01",
            "/a/b/-",
            "/a/b/+1",
            "/a/b/x",
            "/a/b~0~1",
            "/a/c",
            "/",
            "//",
            "///",
            "/é",
            "/é/\"",
            "/a~1b",
            "/b",
        ]);
        let found = Lookups::of(document.as_bytes(), &asked).unwrap();
        for pointer in &asked {
            assert_eq!(found.at(pointer), Found::at(document.as_bytes(), pointer).unwrap(), "{pointer}");
        }
        assert_eq!(found.at(&asked[1]).unwrap().raw, br#"[10, {"c": "x"}, [ ], 3]"#);
        assert_eq!(found.at(&Pointer::new("/a/b~1c").unwrap()), None, "it was not asked for");
        assert!(Lookups::of(b"", &[]).is_ok(), "nothing is read for nothing");
    }

    /// ORD-1: reading ends once all values are found. If a name comes twice, the first one counts, for any
    /// number of pointers.
    #[test]
    fn reading_ends_after_the_last_requested_value() {
        for (document, asked, found) in [
            (r#"{"a":1,"b":[2,{"c":3,"#, &["/a", "/b/0", "/b/1/c"][..], Ok(&["1", "2", "3"][..])),
            (r#"{"a":{"b":1},"a":{"b":2,"c":3},"d":4,"#, &["/a/b", "/d"], Ok(&["1", "4"])),
            (r#"{"a":{"b":1,"#, &["/a", "/a/b"], Err(())),
            (r#"{"a":{"b":1},"a":2}"#, &["/a/b", "/d"], Err(())),
            (r#"{"a":[1,2"#, &["/a/x"], Ok(&[])),
            (r#"{"a":[1,2"#, &["/a/0", "/a/x"], Ok(&["1"])),
            (r#"{"a":[1,2"#, &["/a/2"], Err(())),
        ] {
            let asked = pointers(asked);
            let read = Lookups::of(document.as_bytes(), &asked).map_err(drop).map(|read| {
                let raw = asked.iter().filter_map(|pointer| read.at(pointer)).map(|value| value.raw);
                raw.map(|value| std::str::from_utf8(value).unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(read, found.map(<[_]>::to_vec), "{document}");
        }
    }

    /// QUA-1: as many pointers as a type has subscriptions, each with entity and number in another place.
    #[test]
    fn thousands_of_pointers_are_looked_up_at_once() {
        let members = (0..2_000).map(|n| format!(r#""m{n}":{{"entity":"e{n}","number":{n}}}"#));
        let document = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        let asked: Vec<_> = (0..2_000).map(|n| Pointer::new(&format!("/m{n}/number")).unwrap()).collect();
        let found = Lookups::of(document.as_bytes(), asked.iter().rev().chain(&asked)).unwrap();
        for (n, pointer) in asked.iter().enumerate() {
            assert_eq!(found.at(pointer).unwrap().raw, n.to_string().as_bytes());
        }
    }

    /// Names that repeat, and some that are indexes.
    const NAMES: [&str; 9] = ["a", "b", "", "é", "a/b~", "0", "1", "01", "10"];

    fn document() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec!["1", "\"x\"", "null", " true "]).prop_map(str::to_owned);
        leaf.prop_recursive(5, 60, 12, |inner| {
            let names = || prop::sample::subsequence(NAMES.to_vec(), 0..NAMES.len()).prop_shuffle();
            let members = (names(), prop::collection::vec(inner.clone(), NAMES.len()));
            let array = prop::collection::vec(inner, 0..12)
                .prop_map(|elements| format!("[ {} ]", elements.join(" ,")));
            let object = members.prop_map(|(names, values)| {
                let members = names.into_iter().zip(values);
                let members: Vec<_> = members.map(|(name, value)| format!("\n{name:?} : {value}")).collect();
                format!("{{{} }}", members.join(","))
            });
            prop_oneof![array, object]
        })
    }

    fn any_pointer() -> impl Strategy<Value = Pointer> {
        let names = prop::collection::vec(prop::sample::select(NAMES.to_vec()), 1..5);
        names.prop_map(|names| {
            Pointer::new(
                &names
                    .iter()
                    .map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1")))
                    .collect::<String>(),
            )
            .unwrap()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// ORD-1, MSG-7
        #[test]
        fn values_are_found_in_one_pass_as_one_by_one(
            document in document(), asked in prop::collection::vec(any_pointer(), 0..40),
        ) {
            let expected: serde_json::Value = serde_json::from_str(&document).unwrap();
            let together = Lookups::of(document.as_bytes(), &asked).unwrap();
            for pointer in &asked {
                let alone = Found::at(document.as_bytes(), pointer).unwrap();
                prop_assert_eq!(together.at(pointer), alone);
                let read = alone.map(|value| serde_json::from_slice::<serde_json::Value>(value.raw).unwrap());
                prop_assert_eq!(read.as_ref(), expected.pointer(&pointer.to_string()));
            }
        }
    }

    /// ORD-1, MSG-8
    #[test]
    fn whole_number_is_judged_by_its_value() {
        for (text, whole) in [
            ("7", Some("7")),
            ("7.0", Some("7")),
            ("-0", Some("0")),
            ("-7", Some("-7")),
            ("1e3", Some("1000")),
            ("1500e-2", Some("15")),
            ("15e-1", None),
            ("7.5", None),
            ("1e-7", None),
            ("9007199254740993", Some("9007199254740993")),
            ("1e21", Some("1e+21")),
            ("1.5e21", Some("1.5e+21")),
            ("1234567890123456789012.5", None),
            ("\"7\"", None),
            ("true", None),
        ] {
            let mut reader = Reader::new(text.as_bytes()).unwrap();
            let found = Found { kind: reader.kind().unwrap(), raw: text.as_bytes() };
            assert_eq!(found.whole_number().as_deref(), whole, "{text}");
        }
    }
}
