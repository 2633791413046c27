"""The organization's OpenID provider: where a log-in begins, and the person that it ends with.

Authlib carries the protocol out: the authorization code flow with PKCE, state and nonce, and the checks of tokens. This
module decides what is believed: algorithms, issuer, audience, ages.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import requests
from authlib.integrations.base_client import BaseApp, OAuth2Mixin, OAuthError, OpenIDMixin
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.claims import JWTClaims
from django.utils.crypto import constant_time_compare
from joserfc.errors import ExceededSizeError, InvalidClaimError, JoseError, MissingClaimError

from accounts.organization.arrivals import Person
from accounts.organization.config import OidcConfig
from core.errors import NotAllowed, Unavailable, UserError
from core.text import shown_text

__all__ = ["KEYS_SECONDS", "Attempt", "LoggedOut", "Provider", "claimed_person", "provider_of"]

logger = logging.getLogger(__name__)

#: Signatures that only the provider can make. A shared secret, or none, is not one.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
_TIMEOUT_SECONDS = 10
#: Seconds for which the provider's description is believed.
_KEPT_SECONDS = 300
#: Least time between two requests for its keys.
KEYS_SECONDS = 10
#: Difference of clocks that is tolerated.
_LEEWAY_SECONDS = 60
#: Age of a logout token from which on it is refused, because somebody may be repeating it.
_LOGOUT_SECONDS = 300
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


@dataclass(frozen=True)
class Attempt:
    """A log-in that has begun: what this browser must bring back from the provider."""

    url: str
    state: str
    nonce: str
    code_verifier: str
    redirect_uri: str

    def kept(self) -> dict[str, str]:
        """Return what the browser keeps until it comes back."""
        return {name: value for name, value in asdict(self).items() if name != "url"}


@dataclass(frozen=True)
class LoggedOut:
    """A person, or one session of theirs, who has logged out at the provider. "" stands for what is not named."""

    subject: str
    sid: str


class Provider(OAuth2Mixin, OpenIDMixin, BaseApp):  # type: ignore[misc]
    """The provider of a configuration. Its description and keys are fetched once for each object."""

    client_cls = OAuth2Session

    def __init__(self, config: OidcConfig) -> None:
        self.config = config
        self._keys_asked_at: float | None = None
        kwargs = {"default_timeout": _TIMEOUT_SECONDS, "scope": config.scopes, "code_challenge_method": "S256"}
        super().__init__(
            framework=None,
            client_id=config.client_id,
            client_secret=config.client_secret or None,
            server_metadata_url=config.issuer.rstrip("/") + "/.well-known/openid-configuration",
            client_kwargs={**kwargs, "verify": config.ca_file or True},
        )
        #: The provider's description of itself, as far as this site believes it, and its keys; {}: not fetched yet.
        self.server_metadata: dict[str, Any] = {}

    def begin(self, redirect_uri: str) -> Attempt:
        """Begin a log-in. Raises Unavailable."""
        with _in_words(self.config.name):
            made = self.create_authorization_url(redirect_uri)
        return Attempt(made["url"], made["state"], made["nonce"], made["code_verifier"], redirect_uri)

    def claims(self, kept: Mapping[str, str], answer: Mapping[str, str]) -> dict[str, Any]:
        """Return the checked claims about the person who has come back.

        kept: as `Attempt.kept` returned it. answer: parameters of the provider's redirect.
        Raises Unavailable, and NotAllowed for what does not fit together.
        """
        self._refuse_foreign(kept, answer)
        with _in_words(self.config.name):
            token = self.fetch_access_token(
                kept["redirect_uri"], code=answer["code"], code_verifier=kept["code_verifier"]
            )
            return self._with_userinfo(self._id_claims(token, kept["nonce"]), token)

    def logged_out(self, logout_token: str) -> LoggedOut:
        """Return who has logged out, by a token that the provider sent. Raises Unavailable and NotAllowed."""
        with _in_words(self.config.name):
            claims = self.parse_id_token(
                {"id_token": logout_token},
                nonce=None,
                claims_options=self._expected(),
                claims_cls=_LogoutClaims,
                leeway=_LEEWAY_SECONDS,
            )
        return LoggedOut(claims.get("sub", ""), claims.get("sid", ""))

    def load_server_metadata(self) -> dict[str, Any]:
        """Return the provider's description of itself, with what this site believes of it."""
        if not self.server_metadata:
            with self._get_session() as session:
                response = session.get(self._server_metadata_url, withhold_token=True)
                response.raise_for_status()
                self.server_metadata = self._believed(response.json())
        return dict(self.server_metadata)

    def fetch_jwk_set(self, force: bool = False) -> Any:
        """Return the provider's keys. force: a token names an unknown one, which strangers can cause as well."""
        now = time.monotonic()
        may_ask = self._keys_asked_at is None or now - self._keys_asked_at > KEYS_SECONDS
        if may_ask:
            self._keys_asked_at = now
        keys = super().fetch_jwk_set(force and may_ask)
        if not isinstance(keys, dict) or not isinstance(keys.get("keys"), list):
            raise ValueError("the keys are no JWK set")
        return keys

    def _believed(self, described: Any) -> dict[str, Any]:
        if not isinstance(described, dict) or described.get("issuer") != self.config.issuer:
            raise ValueError("the description names another issuer")
        offered = described.get("id_token_signing_alg_values_supported") or ["RS256"]
        methods = described.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        return {
            **{name: described[name] for name in ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri")},
            "userinfo_endpoint": described.get("userinfo_endpoint"),
            "id_token_signing_alg_values_supported": [name for name in _ALGORITHMS if name in offered],
            "token_endpoint_auth_method": method if self.config.client_secret else "none",
        }

    def _expected(self) -> dict[str, dict[str, Any]]:
        return {
            "iss": {"essential": True, "value": self.config.issuer},
            "aud": {"essential": True, "value": self.config.client_id},
            "exp": {"essential": True},
            "iat": {"essential": True},
        }

    def _id_claims(self, token: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        if not isinstance(token.get("id_token"), str):
            raise MissingClaimError("id_token")
        expected = {**self._expected(), "sub": {"essential": True}, "nonce": {"essential": True, "value": nonce}}
        found = self.parse_id_token(token, nonce=nonce, claims_options=expected, leeway=_LEEWAY_SECONDS)
        return dict(found)

    def _with_userinfo(self, claims: dict[str, Any], token: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the userinfo endpoint for what the ID token lacks. What it says of another person is not believed."""
        wanted = {self.config.username_claim, self.config.groups_claim}
        if wanted <= claims.keys() or not self.load_server_metadata()["userinfo_endpoint"]:
            return claims
        further = self.userinfo(token=token)
        if further.get("sub") != claims["sub"]:
            raise InvalidClaimError("sub")
        return {**further, **claims}

    def _refuse_foreign(self, kept: Mapping[str, str], answer: Mapping[str, str]) -> None:
        name = self.config.name
        if not constant_time_compare(kept["state"], answer.get("state", "")):
            raise NotAllowed(f"This browser has begun another login since then: log in with {name} again.")
        if answer.get("iss", self.config.issuer) != self.config.issuer:
            raise NotAllowed(f"The answer is not from {name}: log in again.")
        if error := answer.get("error"):
            said = shown_text(answer.get("error_description") or error)[:300]
            raise NotAllowed(f"{name} has refused the login ({said}): log in again, or ask its administrators.")
        if not answer.get("code"):
            raise NotAllowed(f"The answer of {name} has no code: log in again.")


def provider_of(config: OidcConfig) -> Provider:
    """Return the provider, whose description and keys this process knows for a few minutes."""
    return _provider(config, int(time.time() // _KEPT_SECONDS))


@lru_cache(maxsize=2)
def _provider(config: OidcConfig, _period: int) -> Provider:
    return Provider(config)


def claimed_person(config: OidcConfig, claims: Mapping[str, Any]) -> Person:
    """Return the person of these claims. Raises NotAllowed if one is missing, or is not what it should be."""
    username, groups = claims.get(config.username_claim), claims.get(config.groups_claim)
    if not isinstance(username, str) or not username:
        raise NotAllowed(_missing(config, config.username_claim, "your user name"))
    names = [groups] if isinstance(groups, str) else groups
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise NotAllowed(_missing(config, config.groups_claim, "the list of your groups"))
    return Person(config.issuer, config.name, claims["sub"], username, frozenset(names))


def _missing(config: OidcConfig, claim: str, what: str) -> str:
    return (
        f"{config.name} does not say {what} (claim {claim}), so you cannot log in with it: ask an administrator to "
        "have the claim sent, or to set another one."
    )


class _LogoutClaims(JWTClaims):  # type: ignore[misc]
    """Claims of a logout token, as OpenID Connect Back-Channel Logout 1.0 wants them."""

    def validate(self, now: float | None = None, leeway: int = 0) -> None:
        super().validate(now, leeway)
        events = self.get("events")
        if not isinstance(events, dict) or not isinstance(events.get(_LOGOUT_EVENT), dict):
            raise MissingClaimError("events")
        if not isinstance(self.get("jti"), str):
            raise MissingClaimError("jti")
        if "nonce" in self:
            raise InvalidClaimError("nonce")
        named = [self[name] for name in ("sub", "sid") if name in self]
        if not named or not all(isinstance(value, str) and value for value in named):
            raise MissingClaimError("sub")
        if self["iat"] < (now or time.time()) - _LOGOUT_SECONDS - leeway:
            raise InvalidClaimError("iat")


@contextmanager
def _in_words(name: str) -> Iterator[None]:
    """Raise what goes wrong with the provider as a sentence for the person. The log has the reason."""
    try:
        yield
    except UserError:
        raise
    except requests.exceptions.JSONDecodeError as error:
        raise _not_understood(name, error) from None
    except requests.RequestException as error:
        logger.warning("the provider does not answer: %s", error)
        raise Unavailable(
            f"{name} does not answer: try again in a minute, or log in with a password if you have one."
        ) from None
    except ExceededSizeError:
        raise NotAllowed(
            f"{name} says too much about you, such as very many groups: ask an administrator to have less sent."
        ) from None
    except (OAuthError, JoseError) as error:
        logger.warning("a log-in was refused: %s", error)
        raise NotAllowed(
            f"The answer of {name} was not accepted: log in again. If it happens again, tell an administrator, who "
            "finds the reason in the log."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _not_understood(name, error) from None


def _not_understood(name: str, error: Exception) -> Unavailable:
    logger.warning("the provider's answer is not understood", exc_info=error)
    return Unavailable(f"{name} gives no answer that this site understands: tell an administrator.")
