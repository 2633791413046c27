"""Secrets that a training's source must not carry: credentials in addresses, secret files, secret words of a command.

The client applies these rules before it sends a source, and the site applies those of addresses and tokens again.
"""

import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit, urlunsplit

__all__ = ["command_text", "is_secret_file", "without_credentials", "without_tokens"]

HIDDEN = "***"
_SECRET_FILES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.gpg", "*.asc"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*credential*", "*secret*", "*password*"),
    *("token", "token.*", "*.token", "*_token.txt", "*_token.json", "kaggle.json", "kubeconfig*"),
)
#: Files that explain which secrets are needed, without any.
_EXAMPLES = (".env.example", ".env.sample", ".env.template")
_SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".azure", "secrets", ".secrets"})
_SOURCES = (".py", ".pyi", ".ipynb", ".md", ".rst", ".c", ".cc", ".cpp", ".cu", ".h")
_SENSITIVE_NAME = (
    r"[\w.-]*(?:token(?![a-z])|passw(?:or)?d|secret|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)[\w.-]*"
)
_IS_SECRET_OPTION = re.compile(rf"--?{_SENSITIVE_NAME}", re.IGNORECASE)
_ASSIGNED = re.compile(rf"((?:--?)?{_SENSITIVE_NAME}[\"']?\s*[=:]\s*)(?!\s).*", re.IGNORECASE | re.DOTALL)
#: Tokens of well-known services, which their form gives away.
_TOKENS = re.compile(
    r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|npm_\w{30,}|pypi-[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,})"
)
_ADDRESSES = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/@]+@")


def is_secret_file(path: str) -> bool:
    """Return whether the file's name, or a folder above it, says that its content is secret."""
    *folders, name = path.lower().split("/")
    if _SECRET_FOLDERS.intersection(folders):
        return True
    if name in _EXAMPLES or name.endswith(_SOURCES):
        return False
    return any(fnmatchcase(name, pattern) for pattern in _SECRET_FILES)


def without_credentials(address: str) -> str:
    """Return a repository's address without user, password and query.

    The user of an ssh address stays, because it belongs to the service: git@github.com.
    """
    address = "".join(address.split())
    if "::" in address.partition("/")[0]:  # of a remote helper, whose rest has no known form
        return address.partition("::")[0]
    if "://" not in address:
        return address  # a path, or user@host:path of ssh, which has no place for a password
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    user, _, host = parts.netloc.rpartition("@")
    if user and parts.scheme in ("ssh", "git+ssh", "ssh+git"):
        host = f"{user.partition(':')[0]}@{host}"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def without_tokens(text: str) -> str:
    """Return the text with the tokens of well-known services replaced."""
    return _TOKENS.sub(HIDDEN, text)


def command_text(words: Sequence[str]) -> str:
    """Return the command as a line of a shell, with secret values replaced."""
    shown = list(words)
    for place, word in enumerate(words):
        if place and _IS_SECRET_OPTION.fullmatch(words[place - 1]) and not word.startswith("-"):
            shown[place] = HIDDEN
        else:
            shown[place] = without_tokens(_ASSIGNED.sub(rf"\1{HIDDEN}", _ADDRESSES.sub(_without_user, word)))
    return shlex.join(shown)


def _without_user(found: re.Match[str]) -> str:
    scheme = found[0].partition("://")[0]
    return found[0] if scheme == "ssh" else f"{scheme}://{HIDDEN}@"
