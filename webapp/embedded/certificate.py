"""The certificate by which `up --wmla-ports` speaks TLS: self-signed, so clients trust its file or do not verify."""

import ipaddress
import os
import socket
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from webapp.environment import certificate_file

__all__ = ["CertificateFiles", "certificate_names", "ensure_certificate"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Period of validity: browsers refuse certificates that are valid for longer than 398 days.
_VALID = timedelta(days=397)
#: A certificate that expires sooner is replaced when the stack starts, because the stack may run for long.
_LEAST_LEFT = timedelta(days=30)
#: A client's clock may be a little behind.
_BACKDATED = timedelta(hours=1)
_SIGNS_ONLY = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


class CertificateFiles:
    """`server.pem` has the key and the certificate in one file, so that they always belong together."""

    def __init__(self, home: Path) -> None:
        #: For clients.
        self.public = certificate_file(home)
        self.folder = self.public.parent
        #: For the server alone, readable by its owner only.
        self.server = self.folder / "server.pem"


def certificate_names(address: str, allowed_hosts: Iterable[str]) -> list[str]:
    """Return the host names and addresses of the site: those it listens on, the allowed hosts, and this machine's."""
    allowed = [name.strip("[]").removeprefix(".") for name in allowed_hosts if name != "*"]
    served = [] if ipaddress.ip_address(address).is_unspecified else [address]
    names = dict.fromkeys([*_LOOPBACK, socket.gethostname(), *served, *allowed])
    # A certificate has names as the network has them: in ASCII.
    return [name for name in names if name and name.isascii()]


def ensure_certificate(home: Path, names: list[str], now: datetime) -> CertificateFiles:
    """Reuse the home's certificate if it is valid and has these names; otherwise create one with a new key."""
    files = CertificateFiles(home)
    files.folder.mkdir(mode=0o700, exist_ok=True)
    certificate = _usable(files.server, names, now)
    if certificate is None:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _self_signed(key, names, now)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _replace(files.server, private + _pem(certificate), mode=0o600)
    _replace(files.public, _pem(certificate), mode=0o644)
    return files


def _usable(server: Path, names: list[str], now: datetime) -> x509.Certificate | None:
    try:
        content = server.read_bytes()
        certificate = x509.load_pem_x509_certificate(content)
        key = serialization.load_pem_private_key(content, password=None)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, x509.ExtensionNotFound):
        # The file is missing or damaged: create a new one.
        return None
    is_whole = key.public_key() == certificate.public_key()
    is_valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - _LEAST_LEFT
    return certificate if is_whole and is_valid and set(_general_names(names)) <= set(found) else None


def _self_signed(key: ec.EllipticCurvePrivateKey, names: list[str], now: datetime) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tidepool")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        # Not a CA: a client that trusts the certificate trusts only this server, not certificates signed by its key.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_SIGNS_ONLY, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )


def _general_names(names: list[str]) -> list[x509.GeneralName]:
    return [_general_name(name) for name in names]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _replace(file: Path, content: bytes, mode: int) -> None:
    scratch = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    scratch.replace(file)
