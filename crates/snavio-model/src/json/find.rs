//! Looks up values of a document that was checked before: however many there are, in one pass over it.

use std::ops::Range;

use super::{Fault, Kind, Pointer, Reader};

/// A value within a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its bytes as they came.
    pub raw: &'a [u8],
}

impl<'a> Found<'a> {
    /// The value that a pointer names, if the document has it. Here a name that is a whole number counts the elements of
    /// an array, from zero. What comes behind the value is not looked at.
    pub fn at(document: &'a [u8], pointer: &Pointer) -> Result<Option<Self>, Fault> {
        let mut found = [Sought::Open];
        Walk::over(document, &[pointer], &mut found)?;
        Ok(found[0].found())
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<String> {
        let mut reader = Reader::new(self.raw).ok().filter(|_| self.kind == Kind::String)?;
        reader.string().ok().map(std::borrow::Cow::into_owned)
    }

    /// The number in canonical form, if it is a whole one: `7` of `7.0`, `1000` of `1e3`.
    pub fn whole_number(&self) -> Option<String> {
        let mut text = Vec::new();
        Reader::new(self.raw).ok().filter(|_| self.kind == Kind::Number)?.canonical(&mut text).ok()?;
        // From 1e21 on a number has an exponent; it is whole if that reaches over all digits behind the point.
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

/// The values that many pointers name: each as [`Found::at`] finds it, and the document is read once.
#[derive(Debug)]
pub struct Lookups<'p, 'a> {
    /// In order, each once.
    pointers: Vec<&'p Pointer>,
    /// What each of them names.
    found: Vec<Sought<'a>>,
}

impl<'p, 'a> Lookups<'p, 'a> {
    /// Looks up what the pointers name. What comes behind all of it is not looked at.
    pub fn of(document: &'a [u8], pointers: impl IntoIterator<Item = &'p Pointer>) -> Result<Self, Fault> {
        let mut pointers: Vec<_> = pointers.into_iter().collect();
        pointers.sort_unstable();
        pointers.dedup();
        let mut found = vec![Sought::Open; pointers.len()];
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

/// What is known of a value that is looked for.
#[derive(Debug, Clone, Copy)]
enum Sought<'a> {
    /// Nothing yet.
    Open,
    /// It is not there.
    Missing,
    /// It is this one.
    There(Found<'a>),
}

impl<'a> Sought<'a> {
    fn found(self) -> Option<Found<'a>> {
        match self {
            Self::There(found) => Some(found),
            Self::Open | Self::Missing => None,
        }
    }
}

/// One way through a document, by all pointers. They are in order, so that those that go through one value are beside each
/// other, one that ends there before those that go on.
struct Walk<'w, 'p, 'a> {
    reader: Reader<'a>,
    pointers: &'w [&'p Pointer],
    found: &'w mut [Sought<'a>],
    /// The canonical form of what is only passed over.
    passed: Vec<u8>,
}

impl<'w, 'p, 'a> Walk<'w, 'p, 'a> {
    fn over(
        document: &'a [u8],
        pointers: &'w [&'p Pointer],
        found: &'w mut [Sought<'a>],
    ) -> Result<(), Fault> {
        let all = 0..pointers.len();
        let mut walk = Self { reader: Reader::new(document)?, pointers, found, passed: Vec::new() };
        walk.enter(all, 0, false)
    }

    /// Reads the value that comes next, through which these pointers go with so many of their names. Where nothing is read
    /// behind it, it is read no further than is needed.
    fn enter(&mut self, of: Range<usize>, names: usize, goes_on: bool) -> Result<(), Fault> {
        let kind = self.reader.kind()?;
        let ends_here = self.pointers[of.start].names().len() == names;
        let inside = of.start + usize::from(ends_here)..of.end;
        // White space was passed over to tell the kind.
        let start = self.reader.at;
        match kind {
            Kind::Object if !inside.is_empty() => self.object(inside.clone(), names, goes_on || ends_here)?,
            Kind::Array if !inside.is_empty() => self.array(inside.clone(), names, goes_on || ends_here)?,
            _ if goes_on || ends_here => self.pass()?,
            _ => {}
        }
        for sought in &mut self.found[inside] {
            if let Sought::Open = sought {
                *sought = Sought::Missing;
            }
        }
        if ends_here {
            let raw = &self.reader.text.as_bytes()[start..self.reader.at];
            self.found[of.start] = Sought::There(Found { kind, raw });
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
        let mut open = self.pointers[of.clone()].iter().filter(|it| is_index(&it.names()[names])).count();
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

    /// Reads the part of an object or array that has this name there, and says how many pointers go through it.
    fn part(
        &mut self,
        of: &Range<usize>,
        names: usize,
        name: &str,
        open: usize,
        goes_on: bool,
    ) -> Result<usize, Fault> {
        let through = self.through(of, names, name);
        // Of a name that comes again the first one counts, until the repetition is found at the object's end.
        let is_new = through.clone().next().is_some_and(|first| matches!(self.found[first], Sought::Open));
        if !is_new {
            self.pass()?;
            return Ok(0);
        }
        let count = through.len();
        self.enter(through, names + 1, goes_on || open > count)?;
        Ok(count)
    }

    /// Those of the pointers whose next name is this one.
    fn through(&self, of: &Range<usize>, names: usize, name: &str) -> Range<usize> {
        let pointers = &self.pointers[of.clone()];
        let next = |it: &&Pointer| it.names()[names].as_str().cmp(name);
        let before = pointers.partition_point(|it| next(it).is_lt());
        let same = pointers[before..].partition_point(|it| next(it).is_eq());
        of.start + before..of.start + before + same
    }

    fn pass(&mut self) -> Result<(), Fault> {
        self.passed.clear();
        self.reader.canonical(&mut self.passed)?;
        Ok(())
    }
}

/// Whether a name counts elements: in one way only, as they are counted here.
fn is_index(name: &str) -> bool {
    (name == "0" || !name.starts_with(['0', '+'])) && name.parse::<usize>().is_ok()
}

/// The number of an element as text, which is made for each of them.
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
    /// More than any document has elements.
    const DIGITS: usize = 20;

    fn text(&self) -> &str {
        std::str::from_utf8(&self.digits[self.start..]).unwrap_or_default()
    }

    /// One more.
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
        found.map(|it| String::from_utf8(it.raw.to_vec()).unwrap())
    }

    /// MSG-7, ORD-1
    #[test]
    fn a_pointer_finds_members_and_elements() {
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
        texts.iter().map(|it| Pointer::new(it).unwrap()).collect()
    }

    /// ORD-1, MSG-7
    #[test]
    fn many_pointers_find_what_each_finds_alone() {
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

    /// ORD-1: a value is taken as soon as it is there, and of a name that comes twice the first one, by however many.
    #[test]
    fn what_comes_behind_all_that_is_looked_for_is_not_looked_at() {
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
                let raw = asked.iter().filter_map(|it| read.at(it)).map(|it| it.raw);
                raw.map(|it| std::str::from_utf8(it).unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(read, found.map(<[_]>::to_vec), "{document}");
        }
    }

    /// QUA-1: as many as a type has subscriptions that look for entity and number each in another place.
    #[test]
    fn thousands_of_pointers_are_looked_up_at_once() {
        let members = |n: usize| format!(r#""m{n}":{{"entity":"e{n}","number":{n}}}"#);
        let document = format!("{{{}}}", (0..2_000).map(members).collect::<Vec<_>>().join(","));
        let asked: Vec<_> = (0..2_000).map(|n| Pointer::new(&format!("/m{n}/number")).unwrap()).collect();
        let found = Lookups::of(document.as_bytes(), asked.iter().rev().chain(&asked)).unwrap();
        for (n, pointer) in asked.iter().enumerate() {
            assert_eq!(found.at(pointer).unwrap().raw, n.to_string().as_bytes());
        }
    }

    /// Names that meet, and some that count elements.
    const NAMES: [&str; 9] = ["a", "b", "", "é", "a/b~", "0", "1", "01", "10"];

    fn document() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec!["1", "\"x\"", "null", " true "]).prop_map(str::to_owned);
        leaf.prop_recursive(5, 60, 12, |inner| {
            let names = || prop::sample::subsequence(NAMES.to_vec(), 0..NAMES.len()).prop_shuffle();
            let members = (names(), prop::collection::vec(inner.clone(), NAMES.len()));
            let array = prop::collection::vec(inner, 0..12).prop_map(|it| format!("[ {} ]", it.join(" ,")));
            let object = members.prop_map(|(names, values)| {
                let member = |(name, value): (&str, String)| format!("\n{name:?} : {value}");
                let members: Vec<_> = names.into_iter().zip(values).map(member).collect();
                format!("{{{} }}", members.join(","))
            });
            prop_oneof![array, object]
        })
    }

    fn any_pointer() -> impl Strategy<Value = Pointer> {
        let names = prop::collection::vec(prop::sample::select(NAMES.to_vec()), 1..5);
        names.prop_map(|it| {
            Pointer::new(
                &it.iter()
                    .map(|it| format!("/{}", it.replace('~', "~0").replace('/', "~1")))
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
                let read = alone.map(|it| serde_json::from_slice::<serde_json::Value>(it.raw).unwrap());
                prop_assert_eq!(read.as_ref(), expected.pointer(&pointer.to_string()));
            }
        }
    }

    /// ORD-1, MSG-8
    #[test]
    fn a_whole_number_is_one_by_its_value() {
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
