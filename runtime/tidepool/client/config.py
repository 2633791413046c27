"""Site and token of a client: from an argument, the environment, or the file that `tidepool login` writes.

This is the client's only module that reads the environment. The file is `~/.config/tidepool/config.toml` (below
`XDG_CONFIG_HOME` if set), which only its owner can read.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tidepool.client.errors import InvalidRequest, NotLoggedIn

__all__ = [
    "DEFAULT",
    "Profile",
    "Profiles",
    "checked_url",
    "config_file",
    "profiles",
    "proxy_of",
    "resolve",
    "wants_colour",
]

DEFAULT = "default"


@dataclass(frozen=True)
class Profile:
    url: str
    token: str
    #: File of CA certificates of the site; "": the system's.
    ca_file: str = ""
    #: Default instance group of submissions; "": the only one.
    instance_group: str = ""


@dataclass(frozen=True)
class Profiles:
    """Content of the file."""

    by_name: Mapping[str, Profile]

    def keep(self, name: str, profile: Profile | None) -> None:
        """Rewrite the file with this profile under its name; None: remove the profile."""
        kept = {**self.by_name, name: profile}
        lines = ["# Written by `tidepool login`.\n"]
        for each, values in sorted(kept.items()):
            if values is not None:
                lines.append(f"\n[profiles.{json.dumps(each, ensure_ascii=False)}]\n")
                lines += [
                    f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
                    for key, value in asdict(values).items()
                    if value
                ]
        file = config_file()
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.writelines(lines)
        fresh.replace(file)


def config_file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "tidepool" / "config.toml"


def profiles() -> Profiles:
    """Read the file. Raise InvalidRequest if it is invalid."""
    import tomllib

    file = config_file()
    try:
        found = tomllib.loads(file.read_text()).get("profiles", {})
        known = Profile.__dataclass_fields__
        rows = {
            name: Profile(**{key: str(value) for key, value in row.items() if key in known})
            for name, row in found.items()
        }
    except FileNotFoundError:
        return Profiles({})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise InvalidRequest(f"{file} cannot be read ({error}): remove it and log in again.") from error
    return Profiles(rows)


def resolve(url: str | None, token: str | None, profile: str | None) -> Profile:
    """Return the site and token to use. Raise NotLoggedIn if there are none."""
    url, token = url or os.environ.get("TIDEPOOL_URL"), token or os.environ.get("TIDEPOOL_TOKEN")
    if url and token:
        return Profile(checked_url(url), token, ca_file=os.environ.get("TIDEPOOL_CA_FILE", ""))
    name = profile or os.environ.get("TIDEPOOL_PROFILE") or DEFAULT
    kept = profiles().by_name.get(name)
    if kept is None:
        missing = f" by the profile {name!r}" if name != DEFAULT else ""
        raise NotLoggedIn(f"Not logged in{missing}: run `tidepool login {url or 'https://…'}` first.")
    if url and checked_url(url) != kept.url:
        raise NotLoggedIn(f"Not logged in at {url}: run `tidepool login {url}` first.")
    return Profile(kept.url, token or kept.token, kept.ca_file, kept.instance_group)


def checked_url(url: str) -> str:
    """Return the site's URL without a trailing slash. Raise InvalidRequest if it is invalid."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        scheme, host, _ = parts.scheme, parts.hostname, parts.port
    except ValueError:  # an IPv6 address without brackets, or a port that is no number
        scheme, host = "", ""
    if scheme not in ("http", "https") or not host:
        raise InvalidRequest(
            f"{url!r} is not the address of a site: write it like https://tidepool.example.org or http://[fd00::1]:8000."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def proxy_of(url: str) -> str:
    """Return the URL of the proxy for this site from the environment; "": none."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""
    from urllib.request import getproxies_environment, proxy_bypass  # takes as long as all of this file

    parts = urlsplit(url)
    proxies = getproxies_environment()
    if proxy_bypass(parts.netloc):
        return ""
    return proxies.get(parts.scheme) or proxies.get("all") or ""


def wants_colour() -> bool:
    """Return False where NO_COLOR is set (no-color.org), or the terminal has none."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
