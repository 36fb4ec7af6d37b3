//! A foreign webhook as the gateway received it.

use crate::refusal::{Reason, Refusal};

/// A request of a provider. The gateway trusts none of it before verification.
#[derive(Debug, Clone, Copy)]
pub struct WebhookRequest<'a> {
    /// Names in any case, values as text.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
}

impl<'a> WebhookRequest<'a> {
    /// The value of a header. Refuses a header that comes twice: two readers could take two values.
    pub fn header(&self, name: &str) -> Result<Option<&'a str>, Refusal> {
        let mut values = self.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
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
