//! Who may do what (REG-9): one table, and what it means for entries of the registry and changes of them. Nothing
//! else decides it.

use std::borrow::Cow;

use crate::name::ServiceName;
use crate::registry::{Change, Entry, GrantRequest, Registry, Role, Wish};

/// What somebody may want to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// See what a tenant owns.
    Read,
    /// Change what a tenant owns: services, routes, grants, keys.
    Manage,
    /// Mend what went wrong with messages: redrive, purge, receive and acknowledge for others.
    Mend,
    /// Decide what an id means that was used for two contents (CLM-12), and what of it is held or erased (CLM-18).
    Resolve,
    /// See who did what.
    Record,
    /// Run the platform: tenants, issuers, tokens, bans.
    Operate,
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Manage, Self::Mend, Self::Resolve, Self::Record, Self::Operate];
}

/// As whom somebody acts.
#[derive(Debug, Clone, Copy)]
pub enum Standing<'a> {
    /// Whoever shows the operator's own token.
    Operator,
    /// A person, by role, for one tenant or for all.
    Person {
        /// What the person is there for.
        role: Role,
        /// For which tenant; all of them without one.
        tenant: Option<&'a str>,
    },
    /// A service, for its own tenant.
    Service(&'a ServiceName),
}

/// Whose things an act is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over<'a> {
    /// Nobody's but the platform's.
    Platform,
    /// A tenant's.
    Tenant(&'a str),
}

impl<'a> Over<'a> {
    /// What an entry's owner owns.
    pub fn owner(entry: &'a Entry) -> Self {
        match entry.owner() {
            "" => Self::Platform,
            tenant => Self::Tenant(tenant),
        }
    }
}

/// What comes of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It may be done.
    Allowed,
    /// It is within reach and not allowed.
    Forbidden,
    /// It is another tenant's: as if it were not there (QUA-5).
    Hidden,
}

/// How far somebody reaches.
enum Reach<'a> {
    All,
    Tenant(&'a str),
    Nothing,
}

impl<'a> Standing<'a> {
    /// The one tenant somebody acts for; none for whoever acts for all.
    pub fn tenant(self) -> Option<&'a str> {
        match self.reach() {
            Reach::Tenant(tenant) => Some(tenant),
            Reach::All | Reach::Nothing => None,
        }
    }

    /// Whether this may be done.
    pub fn judge(self, permission: Permission, over: Over<'_>) -> Verdict {
        match (self.reach(), over) {
            (Reach::All, _) => self.granted(permission),
            (Reach::Tenant(own), Over::Tenant(tenant)) if own == tenant => self.granted(permission),
            (_, Over::Tenant(_)) => Verdict::Hidden,
            (_, Over::Platform) => Verdict::Forbidden,
        }
    }

    /// Whether an entry is shown. Who may act in a tenant's name is told only to whoever may see who did what; a
    /// request is also its producer's to see.
    pub fn sees(self, entry: &Entry) -> bool {
        let may = |permission, over| self.judge(permission, over) == Verdict::Allowed;
        match entry {
            Entry::PersonalToken(_) => may(Permission::Record, Over::owner(entry)),
            Entry::GrantRequest(it) => self.reads(it.target.tenant()) || self.reads(it.source.tenant()),
            _ => may(Permission::Read, Over::owner(entry)),
        }
    }

    /// An entry as it is shown to somebody who sees it. Who asked for a grant is the asking tenant's affair: the other
    /// one is told which tenant it was (REG-8).
    pub fn view(self, entry: &Entry) -> Cow<'_, Entry> {
        match entry {
            Entry::GrantRequest(it) if !self.reads(it.source.tenant()) => {
                let asked_by = it.source.tenant().to_owned();
                Cow::Owned(Entry::GrantRequest(GrantRequest { asked_by, ..it.clone() }))
            }
            _ => Cow::Borrowed(entry),
        }
    }

    /// Whether what a tenant owns is shown.
    pub fn reads(self, tenant: &str) -> bool {
        self.judge(Permission::Read, Over::Tenant(tenant)) == Verdict::Allowed
    }

    /// Whether a change of the registry is shown.
    pub fn sees_change(self, change: &Change) -> bool {
        let is_seen = |entry| self.judge(Permission::Record, Over::owner(entry)) == Verdict::Allowed;
        change.before.iter().chain(&change.after).any(is_seen)
    }

    /// Whether a wish may be fulfilled. What was another's before is not taken over, and what would change nothing
    /// is judged all the same: a yes would tell that it is there.
    pub fn judge_wish(self, registry: &Registry, wish: &Wish) -> Verdict {
        let before = registry.get(&wish.key());
        let after = match wish {
            Wish::Put(entry) => Some(entry),
            Wish::Remove(_) => None,
        };
        if let (_, Some(Entry::GrantRequest(it))) | (Some(Entry::GrantRequest(it)), None) = (before, after) {
            let is_removed = after.is_none();
            return self.judge_request(&it.source, is_removed.then_some(&it.target));
        }
        let permission = needed(before, after);
        let over = before.into_iter().chain(after).map(Over::owner);
        // Nobody is told that there was nothing to remove, but whoever would be told that there was.
        over.map(|over| self.judge(permission, over)).max().unwrap_or(Verdict::Hidden)
    }

    /// REG-8: a request is made for a source by the source itself or its tenant's people, who may withdraw it; the
    /// target's owner may remove it too.
    fn judge_request(self, source: &ServiceName, target: Option<&ServiceName>) -> Verdict {
        if matches!(self, Self::Service(own) if own == source) {
            return Verdict::Allowed;
        }
        let of = |it: &ServiceName| self.judge(Permission::Manage, Over::Tenant(it.tenant()));
        target.map(of).into_iter().chain([of(source)]).min().unwrap_or(Verdict::Hidden)
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

    /// The table.
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

/// What it takes to make an entry another one. A tenant's people may say how to reach them; that it is there, and
/// whether it is suspended, is the platform's.
fn needed(before: Option<&Entry>, after: Option<&Entry>) -> Permission {
    match (before, after) {
        (Some(Entry::Tenant(before)), Some(Entry::Tenant(after))) if before.suspended == after.suspended => {
            Permission::Manage
        }
        // Issuers speak for workloads of all tenants: whose a subject is, is the platform's to say.
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
