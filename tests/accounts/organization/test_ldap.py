"""Log-in with a directory: a real slapd on loopback, with people, groups and a group within a group."""

import base64
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from accounts import actions
from accounts.models import ApiToken
from accounts.organization.config import LdapConfig
from accounts.organization.group_table import parse_group_table
from accounts.tokens import make_token
from core.roles import Role, role_of
from tests.accounts.organization.running_provider import TABLE
from tests.factories import PASSWORD, UserFactory
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db

BACKEND = "accounts.organization.ldap.Directory"
READER = "cn=reader,dc=example,dc=org"
CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
TLSCertificateFile {folder}/certificate.pem
TLSCertificateKeyFile {folder}/key.pem
database mdb
suffix "dc=example,dc=org"
directory {folder}/data
rootdn "cn=root,dc=example,dc=org"
rootpw root
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=reader,dc=example,dc=org" read by * none
"""


def person(name: str, password: str) -> str:
    return f"""dn: uid={name},ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: {name}
cn: {name}
sn: {name}
userPassword: {password}

"""


def group(name: str, *members: str) -> str:
    lines = "".join(f"member: {member},dc=example,dc=org\n" for member in members)
    return f"dn: cn={name},ou=groups,dc=example,dc=org\nobjectClass: groupOfNames\ncn: {name}\n{lines}\n"


ENTRIES = (
    """dn: dc=example,dc=org
objectClass: organization
objectClass: dcObject
o: Example
dc: example

dn: cn=reader,dc=example,dc=org
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: reads

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

"""
    + "".join(person(name, f"password of {name}") for name in ("Ada", "grace", "eve", "admin", "nina"))
    + group("vision", "uid=grace,ou=people", "cn=vision-interns,ou=groups", "uid=admin,ou=people", "uid=nina,ou=people")
    + group("vision-interns", "uid=Ada,ou=people", "cn=vision,ou=groups")
    + group("others", "uid=eve,ou=people")
)


@dataclass(frozen=True)
class Slapd:
    """Addresses of a running directory, and the file with its certificate."""

    url: str
    tls_url: str
    certificate: str


@pytest.fixture(scope="module")
def slapd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    program = shutil.which("slapd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None or find_spec("django_auth_ldap") is None:
        leave_out("log-in with LDAP needs slapd (apt-get install slapd) and `make setup-ldap`")
    folder = tmp_path_factory.mktemp("ldap")
    (folder / "data").mkdir()
    _make_certificate(folder)
    (folder / "slapd.conf").write_text(CONFIGURATION.format(folder=folder))
    add = [str(Path(program).with_name("slapadd")), "-f", str(folder / "slapd.conf")]
    subprocess.run(add, input=ENTRIES, text=True, check=True, capture_output=True)
    port, tls_port = _free_ports()
    found = Slapd(f"ldap://127.0.0.1:{port}", f"ldaps://127.0.0.1:{tls_port}", str(folder / "certificate.pem"))
    with (folder / "log").open("wb") as log:
        command = [program, "-f", str(folder / "slapd.conf"), "-h", f"{found.url} {found.tls_url}", "-d0"]
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                ports = (port, tls_port)
                wait_until(lambda: process.poll() is not None or all(map(_listens, ports)), "slapd listens")
                assert process.poll() is None, (folder / "log").read_text()
                yield found
            finally:
                process.terminate()


def _make_certificate(folder: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1", *files], check=True, capture_output=True)


def _free_ports() -> list[int]:
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in (first, second)]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(autouse=True)
def directory(slapd: Slapd, settings: Any) -> LdapConfig:
    from accounts.organization.ldap import report_errors

    report_errors()
    settings.LOGIN_GROUPS = parse_group_table(TABLE)
    settings.LDAP = LdapConfig(
        url=slapd.url,
        name="the directory of Acme",
        bind_dn=READER,
        bind_password="reads",
        users="ou=people,dc=example,dc=org",
        groups="ou=groups,dc=example,dc=org",
        user_attribute="uid",
        group_class="groupOfNames",
        ca_file="",
        starts_tls=False,
    )
    settings.AUTHENTICATION_BACKENDS = [
        settings.AUTHENTICATION_BACKENDS[0],
        BACKEND,
        *settings.AUTHENTICATION_BACKENDS[1:],
    ]
    return settings.LDAP


def post(client: Client, name: str, password: str) -> Any:
    return client.post("/login/?next=/account/", {"username": name, "password": password, "next": "/account/"})


def basic(name: str, password: str) -> int:
    code = base64.b64encode(f"{name}:{password}".encode()).decode()
    return Client().get("/api/v1/me/", headers={"authorization": f"Basic {code}"}).status_code


def test_a_person_logs_in_with_the_directorys_password(client: Client) -> None:
    answer = post(client, "grace", "password of grace")

    assert (answer.status_code, answer["Location"]) == (302, "/account/")
    user = User.objects.get()
    assert (user.username, role_of(user)) == ("grace", Role.DATA_SCIENTIST)
    assert not user.has_usable_password()
    assert (user.identity.provider, user.identity.subject) == ("ldap", "grace")
    hours = (Session.objects.get().expire_date - timezone.now()).total_seconds() / 3600
    assert 11.9 < hours <= 12
    page = client.get("/account/").content.decode()
    assert "You log in with your organization" in page
    assert "New password" not in page


def test_one_person_is_one_user_however_the_name_is_typed(client: Client) -> None:
    """Also by a group within a group, two of which contain each other."""
    for name in ("Ada", "ada", "ADA"):
        assert post(Client(), name, "password of Ada").status_code == 302
    assert [user.username for user in User.objects.all()] == ["Ada"]


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("grace", "wrong"),
        ("grace", ""),
        ("nobody", "password of nobody"),
        ("*", "password of grace"),
        ("grace)(uid=*", "password of grace"),
        ("grace,ou=people", "password of grace"),
        ("gr*", "password of grace"),
        ("reader", "reads"),
    ],
)
def test_what_is_no_password_of_a_person_is_refused(client: Client, name: str, password: str) -> None:
    assert post(client, name, password).status_code == 200
    assert not User.objects.exists()
    assert basic(name, password) == 401


def test_a_program_logs_in_by_basic(client: Client) -> None:
    assert basic("grace", "password of grace") == 200
    assert basic("grace", "wrong") == 401


def test_who_is_in_no_allowed_group_is_told_so(client: Client) -> None:
    answer = post(client, "eve", "password of eve")
    assert answer.status_code == 403
    assert "None of your groups at the directory of Acme may use this site" in answer.content.decode()
    assert basic("eve", "password of eve") == 403
    assert not User.objects.exists()


def test_a_local_password_stays_and_never_meets_the_directory(client: Client, settings: Any) -> None:
    UserFactory(username="admin", is_staff=True)
    assert post(Client(), "admin", "password of admin").status_code == 200
    settings.LDAP = replace(settings.LDAP, url="ldap://127.0.0.1:9")
    assert post(client, "admin", PASSWORD).status_code == 302


def test_an_account_that_waits_for_its_password_is_not_taken_over(client: Client) -> None:
    carol = UserFactory(username="carol", is_staff=True)
    actions.invite(carol, "nina", Role.VIEWER)
    answer = post(client, "nina", "password of nina")
    assert answer.status_code == 409
    assert "another account of this site already has that name" in answer.content.decode()


@pytest.mark.parametrize(
    "change", [{"url": "ldap://127.0.0.1:9"}, {"bind_password": "wrong"}, {"users": "ou=none,dc=x"}]
)
def test_a_directory_that_does_not_do_its_part_is_said(client: Client, settings: Any, change: dict[str, str]) -> None:
    settings.LDAP = replace(settings.LDAP, **change)
    answer = post(client, "grace", "password of grace")
    assert answer.status_code == 503
    assert "The directory of Acme, which has your password, does not answer" in answer.content.decode()
    assert basic("grace", "password of grace") == 503


def test_a_deactivated_user_is_out_at_once(client: Client) -> None:
    carol = UserFactory(username="carol", is_staff=True)
    post(client, "grace", "password of grace")
    grace = User.objects.get(username="grace")
    token = make_token(grace, "nightly", None, "full").text
    program = {"authorization": f"Bearer {token}"}
    assert client.get("/api/v1/me/").status_code == Client().get("/api/v1/me/", headers=program).status_code == 200
    assert basic("grace", "password of grace") == 200

    actions.deactivate(carol, grace.pk)

    assert client.get("/api/v1/me/").status_code == Client().get("/api/v1/me/", headers=program).status_code == 401
    assert basic("grace", "password of grace") == 403
    assert not ApiToken.objects.exists()
    assert "The account grace is deactivated" in post(Client(), "grace", "password of grace").content.decode()


def test_ten_wrong_passwords_lock_the_name(client: Client) -> None:
    post(client, "grace", "password of grace")
    for _ in range(9):
        assert post(Client(), "grace", "wrong").status_code == 200
    assert post(Client(), "grace", "wrong").status_code == 429
    assert post(Client(), "grace", "password of grace").status_code == 429


def test_a_connection_is_encrypted_to_a_certificate_that_is_trusted(slapd: Slapd, settings: Any) -> None:
    tls = replace(settings.LDAP, url=slapd.tls_url)
    by_start = replace(settings.LDAP, starts_tls=True)
    for config in (tls, by_start):
        settings.LDAP = replace(config, ca_file=slapd.certificate)
        assert post(Client(), "grace", "password of grace").status_code == 302
        settings.LDAP = config
        assert post(Client(), "grace", "password of grace").status_code == 503


def test_an_administrator_connects_a_person_with_an_account_that_is_here(client: Client) -> None:
    carol = UserFactory(username="carol", is_staff=True)
    actions.invite(carol, "nina", Role.VIEWER)
    call_command("connect_login", "nina", "Nina", "--ldap")
    assert post(client, "nina", "password of nina").status_code == 302
    assert role_of(User.objects.get(username="nina")) == Role.DATA_SCIENTIST


def test_who_leaves_all_groups_loses_sessions_and_tokens(client: Client, settings: Any) -> None:
    post(client, "grace", "password of grace")
    make_token(User.objects.get(), "nightly", None, "full")
    settings.LOGIN_GROUPS = parse_group_table('[[groups]]\ngroup = "others"\nrole = "viewer"')
    assert post(Client(), "grace", "password of grace").status_code == 403
    assert client.get("/api/v1/me/").status_code == 401
    assert not ApiToken.objects.exists()
