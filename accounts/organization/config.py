"""Configuration of the OpenID provider and of the LDAP directory, as the settings have them."""

from dataclasses import dataclass

__all__ = ["GROUP_TYPES", "LDAP_PROVIDER", "LdapConfig", "OidcConfig"]

#: Provider of people from the directory, in `Identity`.
LDAP_PROVIDER = "ldap"
#: Object classes of groups -> the type of django-auth-ldap that finds a user's groups, nested ones as well.
GROUP_TYPES = {
    "groupOfNames": "NestedGroupOfNamesType",
    "groupOfUniqueNames": "NestedGroupOfUniqueNamesType",
    "posixGroup": "PosixGroupType",
    "group": "NestedActiveDirectoryGroupType",
}


@dataclass(frozen=True)
class OidcConfig:
    #: Identifier of the provider, which is also the address below which it describes itself.
    issuer: str
    client_id: str
    #: "": the provider knows this site as a public client, without a secret.
    client_secret: str
    #: Name on the button of the log-in page.
    name: str
    #: Scopes that are requested, separated by spaces.
    scopes: str
    username_claim: str
    groups_claim: str
    #: File of the authority that signed the provider's certificate; "": those that the machine trusts.
    ca_file: str = ""


@dataclass(frozen=True)
class LdapConfig:
    #: Address, such as ldaps://ldap.example.org.
    url: str
    #: Name in sentences.
    name: str
    #: The account that searches, and its password; "": anonymous.
    bind_dn: str
    bind_password: str
    #: Names below which users and groups are.
    users: str
    groups: str
    #: Attribute with the name that a user types, and object class of groups.
    user_attribute: str
    group_class: str
    #: File of the authority that signed the directory's certificate; "": those that the machine trusts.
    ca_file: str
    #: Whether the connection is encrypted by StartTLS.
    starts_tls: bool
