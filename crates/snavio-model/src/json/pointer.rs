//! JSON pointers (RFC 6901): to members that the content hash leaves out (MSG-9), and to values that are
//! looked up.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bounds::JSON_DEPTH_MAX;

/// A text that is not a pointer to an object's member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a pointer to a member must be /name or /name/name, with ~0 for ~ and ~1 for /")]
pub struct InvalidPointer;

/// A pointer to a member of an object. Only members of objects can be left out: arrays are not cut. The
/// derived order puts pointers with the same beginning next to each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct Pointer(Vec<String>);

impl Pointer {
    /// Reads a pointer. The empty pointer names the whole document, which is not a member.
    pub fn new(text: &str) -> Result<Self, InvalidPointer> {
        let names = text.strip_prefix('/').ok_or(InvalidPointer)?;
        let names = names.split('/').map(unescaped).collect::<Option<Vec<_>>>().ok_or(InvalidPointer)?;
        if names.len() > JSON_DEPTH_MAX { Err(InvalidPointer) } else { Ok(Self(names)) }
    }

    /// The names on the path, the outermost first.
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

fn unescaped(token: &str) -> Option<String> {
    let mut parts = token.split('~');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        name.push(if part.starts_with('0') { '~' } else { '/' });
        name.push_str(part.strip_prefix(['0', '1'])?);
    }
    Some(name)
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|name| write!(f, "/{}", name.replace('~', "~0").replace('/', "~1")))
    }
}

impl TryFrom<String> for Pointer {
    type Error = InvalidPointer;
    fn try_from(text: String) -> Result<Self, InvalidPointer> {
        Self::new(&text)
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> Self {
        pointer.to_string()
    }
}

/// The members to leave out of a value: the rest of each pointer that leads into the value.
pub(super) struct Cuts<'p>(Vec<&'p [String]>);

/// The treatment of one member.
pub(super) enum Cut<'p> {
    Whole,
    Inside(Cuts<'p>),
}

impl<'p> Cuts<'p> {
    pub(super) fn of(pointers: &'p [Pointer]) -> Self {
        Self(pointers.iter().map(Pointer::names).collect())
    }

    /// The treatment of the member called `name`.
    pub(super) fn at(&self, name: &str) -> Cut<'p> {
        let mut inside = Vec::new();
        for path in &self.0 {
            match path.split_first() {
                Some((first, [])) if first == name => return Cut::Whole,
                Some((first, rest)) if first == name => inside.push(rest),
                _ => {}
            }
        }
        Cut::Inside(Self(inside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MSG-9
    #[test]
    fn pointer_names_a_member_and_prints_its_text() {
        for (text, names) in [
            ("/meta", Some(vec!["meta"])),
            ("/a/b", Some(vec!["a", "b"])),
            ("/", Some(vec![""])),
            ("/a~1b/~0~01", Some(vec!["a/b", "~~1"])),
            ("/0", Some(vec!["0"])),
            ("", None),
            ("meta", None),
            ("#/meta", None),
            ("/a~", None),
            ("/a~2", None),
        ] {
            let pointer = Pointer::new(text).ok();
            assert_eq!(
                pointer.as_ref().map(|p| p.names().iter().map(String::as_str).collect()),
                names,
                "{text}"
            );
            assert_eq!(pointer.map(|p| p.to_string()), names.map(|_| text.to_owned()));
        }
        assert!(Pointer::new(&"/a".repeat(64)).is_ok());
        assert!(Pointer::new(&"/a".repeat(65)).is_err());
    }
}
