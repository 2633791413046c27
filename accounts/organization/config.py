"""Configuration of the provider, as the settings have it."""

from dataclasses import dataclass

__all__ = ["OidcConfig"]


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
