//! A foreign webhook as it came.

use crate::refusal::{Reason, Refusal};

/// A request of a provider. Nothing of it is true before it is verified.
#[derive(Debug, Clone, Copy)]
pub struct WebhookRequest<'a> {
    /// Its headers: names in any case, values as text.
    pub headers: &'a [(&'a str, &'a str)],
    /// Its body, as it came.
    pub body: &'a [u8],
}

impl<'a> WebhookRequest<'a> {
    /// The value of a header. One that comes twice is refused: two readers would take two values.
    pub fn header(&self, name: &str) -> Result<Option<&'a str>, Refusal> {
        let mut values = self.headers.iter().filter(|(it, _)| it.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| *value);
        match values.next() {
            None => Ok(value),
            Some(_) => {
                let detail = format!("the header {} came twice", name.to_ascii_lowercase());
                Err(Refusal::new(Reason::DuplicateMember, detail))
            }
        }
    }
}
