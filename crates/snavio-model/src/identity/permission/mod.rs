//! The permissions of roles (REG-9): one table, and its application to registry entries and their changes. No
//! other code decides permissions.

use std::borrow::Cow;

use crate::name::ServiceName;
use crate::registry::{Change, Entry, GrantRequest, Registry, Role, Wish};

/// A kind of action that needs permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Read the entries and messages of a tenant.
    Read,
    /// Change the entries of a tenant: services, routes, grants, keys.
    Manage,
    /// Repair the delivery of messages: redrive, purge, receive and acknowledge for others.
    Mend,
    /// Resolve conflicts about the content of an id (CLM-12), hold ids and erase their content (CLM-18).
    Resolve,
    /// Read the audit log and the changelog.
    Record,
    /// Run the platform: tenants, issuers, tokens, bans.
    Operate,
}

impl Permission {
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Manage, Self::Mend, Self::Resolve, Self::Record, Self::Operate];
}

/// The principal of a request, as permissions see it.
#[derive(Debug, Clone, Copy)]
pub enum Standing<'a> {
    /// The holder of the operator's own token.
    Operator,
    /// A person with a role in one tenant or on the platform.
    Person {
        role: Role,
        /// `None` for a platform-wide token.
        tenant: Option<&'a str>,
    },
    /// A service, in its own tenant.
    Service(&'a ServiceName),
}

/// The owner of the objects of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over<'a> {
    /// The platform itself.
    Platform,
    Tenant(&'a str),
}

impl<'a> Over<'a> {
    /// The owner of an entry.
    pub fn owner(entry: &'a Entry) -> Self {
        match entry.owner() {
            "" => Self::Platform,
            tenant => Self::Tenant(tenant),
        }
    }
}

/// The judgement of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Allowed,
    /// The principal reaches the owner and lacks the permission.
    Forbidden,
    /// The owner is another tenant. The answer must not reveal that the object exists (QUA-5).
    Hidden,
}

/// The owners that a principal reaches.
enum Reach<'a> {
    All,
    Tenant(&'a str),
    Nothing,
}

impl<'a> Standing<'a> {
    /// The one tenant that the principal acts for; `None` if there is no single one.
    pub fn tenant(self) -> Option<&'a str> {
        match self.reach() {
            Reach::Tenant(tenant) => Some(tenant),
            Reach::All | Reach::Nothing => None,
        }
    }

    /// Judges an action on the objects of an owner.
    pub fn judge(self, permission: Permission, over: Over<'_>) -> Verdict {
        match (self.reach(), over) {
            (Reach::All, _) => self.granted(permission),
            (Reach::Tenant(own), Over::Tenant(tenant)) if own == tenant => self.granted(permission),
            (_, Over::Tenant(_)) => Verdict::Hidden,
            (_, Over::Platform) => Verdict::Forbidden,
        }
    }

    /// Whether the principal sees an entry. Personal tokens show who can act in a tenant, so they need
    /// [`Permission::Record`]. The producer of a grant request sees it too.
    pub fn sees(self, entry: &Entry) -> bool {
        let may = |permission, over| self.judge(permission, over) == Verdict::Allowed;
        match entry {
            Entry::PersonalToken(_) => may(Permission::Record, Over::owner(entry)),
            Entry::GrantRequest(request) => {
                self.reads(request.target.tenant()) || self.reads(request.source.tenant())
            }
            _ => may(Permission::Read, Over::owner(entry)),
        }
    }

    /// An entry as the principal sees it. Only the requesting tenant sees the person who requested a grant;
    /// the other tenant sees the name of the requesting tenant (REG-8).
    pub fn view(self, entry: &Entry) -> Cow<'_, Entry> {
        match entry {
            Entry::GrantRequest(request) if !self.reads(request.source.tenant()) => {
                let asked_by = request.source.tenant().to_owned();
                Cow::Owned(Entry::GrantRequest(GrantRequest { asked_by, ..request.clone() }))
            }
            _ => Cow::Borrowed(entry),
        }
    }

    /// Whether the principal may read the objects of a tenant.
    pub fn reads(self, tenant: &str) -> bool {
        self.judge(Permission::Read, Over::Tenant(tenant)) == Verdict::Allowed
    }

    /// Whether the principal sees a change of the registry. The entry's owner before or after the change sees
    /// it.
    pub fn sees_change(self, change: &Change) -> bool {
        let mut entries = change.before.iter().chain(&change.after);
        entries.any(|entry| self.judge(Permission::Record, Over::owner(entry)) == Verdict::Allowed)
    }

    /// Judges a requested change of the registry. The owners of the entry before and after the change must
    /// both allow it, so that no principal takes over the entry of another tenant. A change without an effect
    /// needs the same permission, because a positive answer would reveal that the entry exists.
    pub fn judge_wish(self, registry: &Registry, wish: &Wish) -> Verdict {
        let before = registry.get(&wish.key());
        let after = match wish {
            Wish::Put(entry) => Some(entry),
            Wish::Remove(_) => None,
        };
        if let (_, Some(Entry::GrantRequest(request))) | (Some(Entry::GrantRequest(request)), None) =
            (before, after)
        {
            let is_removed = after.is_none();
            return self.judge_request(&request.source, is_removed.then_some(&request.target));
        }
        let permission = required_permission(before, after);
        let over = before.into_iter().chain(after).map(Over::owner);
        // The removal of a missing entry is `Hidden`, like that of another tenant's entry: the two answers
        // must not differ.
        over.map(|over| self.judge(permission, over)).max().unwrap_or(Verdict::Hidden)
    }

    /// Judges a grant request (REG-8). The source itself and the people of its tenant create and withdraw the
    /// request; the owner of the target may remove it too.
    fn judge_request(self, source: &ServiceName, target: Option<&ServiceName>) -> Verdict {
        if matches!(self, Self::Service(own) if own == source) {
            return Verdict::Allowed;
        }
        let manages = |service: &ServiceName| self.judge(Permission::Manage, Over::Tenant(service.tenant()));
        target.map(manages).into_iter().chain([manages(source)]).min().unwrap_or(Verdict::Hidden)
    }

    fn reach(self) -> Reach<'a> {
        match self {
            Self::Operator | Self::Person { role: Role::Operator, .. } => Reach::All,
            Self::Person { role: Role::Auditor, tenant: None } => Reach::All,
            Self::Person { tenant: Some(tenant), .. } => Reach::Tenant(tenant),
            Self::Person { tenant: None, .. } => Reach::Nothing,
            Self::Service(service) => Reach::Tenant(service.tenant()),
        }
    }

    /// The table of permissions.
    fn granted(self, permission: Permission) -> Verdict {
        use Permission::{Manage, Mend, Operate, Read, Record, Resolve};
        let granted: &[Permission] = match self {
            Self::Operator => &[Read, Manage, Mend, Resolve, Record, Operate],
            Self::Person { role, .. } => match role {
                Role::Operator => &[Read, Manage, Mend, Resolve, Record, Operate],
                Role::TenantAdmin => &[Read, Manage, Mend, Record],
                Role::TenantViewer => &[Read],
                Role::AccountingOps => &[Read, Mend, Resolve],
                Role::Auditor => &[Read, Record],
            },
            Self::Service(_) => &[Read, Mend],
        };
        if granted.contains(&permission) { Verdict::Allowed } else { Verdict::Forbidden }
    }
}

/// The permission that a change of an entry requires. The people of a tenant may change its contact; the
/// platform creates, removes and suspends tenants.
fn required_permission(before: Option<&Entry>, after: Option<&Entry>) -> Permission {
    match (before, after) {
        (Some(Entry::Tenant(before)), Some(Entry::Tenant(after))) if before.suspended == after.suspended => {
            Permission::Manage
        }
        // One issuer attests workloads of all tenants, so only the platform assigns its subjects to services.
        (_, Some(Entry::Workload(_))) => Permission::Operate,
        _ => match after.or(before) {
            Some(Entry::Tenant(_) | Entry::PersonalToken(_) | Entry::Issuer(_) | Entry::Ban(_)) => {
                Permission::Operate
            }
            _ => Permission::Manage,
        },
    }
}

#[cfg(test)]
mod tests;
