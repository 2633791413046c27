"""An OpenID provider in a process of its own, for tests: codes with PKCE, RS256, userinfo, back-channel log-out.

It lets in the one person that `/control` names, and makes the mistake that it names. It checks what a provider must
check of the site: redirect address, client, code, PKCE, and that state and nonce are there.

    python -m tests.accounts.organization.oidc_provider     prints the address that it serves
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import httpx
from joserfc import jws, jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT_ID = "tidepool"
CLIENT_SECRET = "a secret of the client, of 32 letters"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


@dataclass
class Provider:
    issuer: str
    #: Claims of the person who logs in, and the name of the mistake that the provider makes.
    person: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    #: Claims that only the userinfo endpoint says.
    userinfo: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "first"}))
    stranger: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "first"}))
    #: Code -> parameters of the request that it was given for.
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def description(self) -> dict[str, Any]:
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/jwks",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
        }
        if self.fault == "another issuer's description":
            found["issuer"] = "https://elsewhere.example"
        if self.fault == "description without an address":
            del found["token_endpoint"]
        return found

    def authorize(self, query: dict[str, str]) -> str:
        """Return the address that the browser is sent to."""
        assert (query["client_id"], query["response_type"]) == (CLIENT_ID, "code"), query
        assert "openid" in query["scope"].split(), query
        assert query["code_challenge_method"] == "S256", query
        assert all(query[name] for name in ("state", "nonce", "code_challenge")), query
        back = {"state": query["state"]}
        if self.fault == "denied":
            back |= {"error": "access_denied", "error_description": "The person said <b>no</b>."}
        else:
            code = secrets.token_urlsafe(16)
            self.codes[code] = query
            back |= {"code": code}
        if self.fault == "another issuer's answer":
            back["iss"] = "https://elsewhere.example"
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def token(self, form: dict[str, str], client: tuple[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self.codes.pop(form.get("code", ""), None)
        if client != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        proof = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or asked["code_challenge"] != proof or asked["redirect_uri"] != form.get("redirect_uri"):
            return 400, {"error": "invalid_grant", "error_description": "no such code"}
        answer = {"access_token": "open sesame", "token_type": "Bearer", "expires_in": 300}
        if self.fault != "no ID token":
            answer["id_token"] = self.id_token(asked["nonce"])
        return 200, answer

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce, **self.person}
        claims |= _wrong_claims(self.fault, now)
        return self.signed({name: value for name, value in claims.items() if value is not None})

    def logout_token(self, said: Mapping[str, Any]) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 120, "jti": secrets.token_hex(8)}
        claims |= {"events": {LOGOUT_EVENT: {}}, **said, **_wrong_claims(self.fault, now)}
        return self.signed({name: value for name, value in claims.items() if value is not None})

    def signed(self, claims: dict[str, Any]) -> str:
        if self.fault == "unsigned":
            return jws.serialize_compact(
                {"alg": "none"}, json.dumps(claims), OctKey.generate_key(), algorithms=["none"]
            )
        if self.fault == "signed with the client's secret":
            return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(CLIENT_SECRET))
        key = self.stranger if self.fault == "a stranger's signature" else self.key
        return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)


def _wrong_claims(fault: str, now: int) -> dict[str, Any]:
    return {
        "another audience": {"aud": "another client"},
        "another audience, azp ours": {"aud": "another client", "azp": CLIENT_ID},
        "another issuer": {"iss": "https://elsewhere.example"},
        "expired": {"iat": now - 3600, "exp": now - 3000},
        "no end": {"exp": None},
        "another nonce": {"nonce": "x"},
        "no nonce": {"nonce": None},
        "no subject": {"sub": None},
        "wrong access token": {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
        "from the future": {"iat": now + 3600, "exp": now + 7200},
    }.get(fault, {})


class Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match parts.path:
            case "/.well-known/openid-configuration":
                self._send(200, self.provider.description())
            case "/authorize":
                self.send_response(302)
                self.send_header("Location", self.provider.authorize(query))
                self.end_headers()
            case "/jwks" if self.provider.fault == "no keys":
                self._send(200, ["none"])
            case "/jwks":
                self._send(200, {"keys": [self.provider.key.as_dict(private=False)]})
            case "/userinfo":
                assert self.headers["Authorization"] == "Bearer open sesame"
                self._send(200, {"sub": self.provider.person.get("sub"), **self.provider.userinfo})
            case _:
                self._send(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        match self.path:
            case "/control":
                self._control(json.loads(body))
            case "/sign-out":
                self._sign_out(json.loads(body))
            case "/token" if self.provider.fault == "token endpoint broken":
                self._send(500, {}, "<h1>Oops</h1>")
            case "/token" if self.provider.fault == "token endpoint answers a page":
                self._send(200, {}, "<h1>Welcome</h1>")
            case "/token":
                form = {name: values[0] for name, values in parse_qs(body).items()}
                self._send(*self.provider.token(form, self._client()))
            case _:
                self._send(404, {})

    def _control(self, wanted: dict[str, Any]) -> None:
        if wanted.pop("new key", None):
            self.provider.key = RSAKey.generate_key(2048, {"kid": "second"})
        self.provider.fault, self.provider.userinfo = "", {}
        for name, value in wanted.items():
            setattr(self.provider, name, value)
        self._send(200, {})

    def _sign_out(self, wanted: dict[str, Any]) -> None:
        """Tell the site that the person has logged out, and return what it answered."""
        answer = httpx.post(wanted["to"], data={"logout_token": self.provider.logout_token(wanted["claims"])})
        self._send(200, {"status": answer.status_code, "body": answer.text, "cache": answer.headers["Cache-Control"]})

    def _client(self) -> tuple[str, str]:
        kind, _, text = self.headers.get("Authorization", "").partition(" ")
        name, _, secret = base64.b64decode(text).decode().partition(":") if kind == "Basic" else ("", "", "")
        return unquote(name), unquote(secret)

    def _send(self, status: int, content: Any, text: str = "") -> None:
        body = (text or json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if text else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the tests' output free of requests."""


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.provider = Provider(f"http://127.0.0.1:{server.server_port}")
    print(Handler.provider.issuer, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
