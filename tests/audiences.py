"""Audiences: the terms with which tests/permissions.py says which role may use which address."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ADMINS",
    "CHANGERS",
    "EVERYBODY",
    "GROUP_ADMINS",
    "IN",
    "LOGIN",
    "MISSING",
    "NOBODY",
    "NOT_THERE",
    "NOT_THERE_FOR_CHANGERS",
    "NO_MLFLOW",
    "NO_PUBLIC_REPORTS",
    "ONLY_OWNER_CHANGES",
    "ONLY_OWNER_SEES",
    "OWNER_CHANGES",
    "OWNER_SEES",
    "REFUSED",
    "ROLES",
    "SEEN_OWNER_CHANGES",
    "USERS",
    "Audience",
    "Outcome",
    "Rule",
]

#: Alice owns the things that are asked for, Gail administers the instance group of her trainings.
ROLES = ("nobody", "viewer", "stranger", "owner", "group admin", "cluster admin")

Outcome = str
#: Let in, which may still end with what does not fit; sent to log in; forbidden; told that there is no such thing.
IN, LOGIN, REFUSED, MISSING = "in", "log in", "refused", "missing"
Audience = tuple[Outcome, ...]

#: Without a log-in.
EVERYBODY: Audience = (IN, IN, IN, IN, IN, IN)
#: Addresses that take only a password, which the matrix does not send.
NOBODY: Audience = (LOGIN, LOGIN, LOGIN, LOGIN, LOGIN, LOGIN)
#: Addresses that everybody may read, and those about a user's own account.
USERS: Audience = (LOGIN, IN, IN, IN, IN, IN)
#: Addresses that create an object of the user.
CHANGERS: Audience = (LOGIN, REFUSED, IN, IN, IN, IN)
#: A training: others must not learn that it is there.
OWNER_SEES: Audience = (LOGIN, MISSING, MISSING, IN, MISSING, IN)
OWNER_CHANGES: Audience = (LOGIN, REFUSED, MISSING, IN, MISSING, IN)
#: A dataset, model or template: all see it, its owner changes it.
SEEN_OWNER_CHANGES: Audience = (LOGIN, REFUSED, REFUSED, IN, REFUSED, IN)
#: Private objects, which not even an administrator sees: tokens by "me", filters, uploads.
ONLY_OWNER_SEES: Audience = (LOGIN, MISSING, MISSING, IN, MISSING, MISSING)
ONLY_OWNER_CHANGES: Audience = (LOGIN, REFUSED, MISSING, IN, MISSING, MISSING)
#: Addresses of WMLA that Tidepool does not support: the answer says so.
NOT_THERE: Audience = (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING)
NOT_THERE_FOR_CHANGERS: Audience = (LOGIN, REFUSED, MISSING, MISSING, MISSING, MISSING)
#: A training's owner may ask, and is told that this site has no MLflow; for others there is no such training.
NO_MLFLOW: Audience = (LOGIN, REFUSED, MISSING, REFUSED, MISSING, REFUSED)
#: A report's owner may ask, and is told that this site shares none without a log-in; for others there is none.
NO_PUBLIC_REPORTS: Audience = NO_MLFLOW
#: Administrators of one instance group.
GROUP_ADMINS: Audience = (LOGIN, REFUSED, REFUSED, REFUSED, IN, IN)
#: Administrators of the cluster.
ADMINS: Audience = (LOGIN, REFUSED, REFUSED, REFUSED, REFUSED, IN)


@dataclass(frozen=True)
class Rule:
    audience: Audience
    #: Request body: a form's fields, or JSON. Here and below, a name from the matrix's world stands for its value.
    body: Mapping[str, Any] = field(default_factory=dict)
    #: With such names in braces.
    query: str = ""
    #: Parameters of the address other than the usual ones.
    args: Mapping[str, Any] = field(default_factory=dict)
