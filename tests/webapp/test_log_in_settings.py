"""Settings of log-in with a provider: what does not fit is refused at the start, in one sentence."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp import log_in_settings
from webapp.environment import Environment
from webapp.log_in_settings import group_table, ldap_config, oidc_config

WHOLE = {"TIDEPOOL_OIDC_ISSUER": "https://login.example.org/realms/acme", "TIDEPOOL_OIDC_CLIENT_ID": "tidepool"}


def test_without_an_issuer_there_is_no_provider() -> None:
    assert oidc_config(Environment({"TIDEPOOL_OIDC_CLIENT_ID": "tidepool"})) is None
    assert group_table(Environment({}), is_needed=False) is None


def test_what_is_not_set_is_as_usual() -> None:
    config = oidc_config(Environment(WHOLE))
    assert config is not None
    assert (config.name, config.scopes, config.client_secret) == ("login.example.org", "openid profile email", "")
    assert (config.username_claim, config.groups_claim) == ("preferred_username", "groups")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"TIDEPOOL_OIDC_ISSUER": "login.example.org"}, "TIDEPOOL_OIDC_ISSUER is 'login.example.org': set it to the"),
        ({"TIDEPOOL_OIDC_ISSUER": "http://login.example.org"}, "TIDEPOOL_OIDC_ISSUER is 'http://login.example.org'"),
        ({"TIDEPOOL_OIDC_ISSUER": "https://login.example.org/?a=1"}, "TIDEPOOL_OIDC_ISSUER is 'https://login.example"),
        ({"TIDEPOOL_OIDC_CLIENT_ID": ""}, "TIDEPOOL_OIDC_ISSUER is set, but TIDEPOOL_OIDC_CLIENT_ID is not: set both."),
        ({"TIDEPOOL_OIDC_SCOPES": "profile"}, "TIDEPOOL_OIDC_SCOPES lacks the scope openid: add it."),
        ({"TIDEPOOL_OIDC_CA_FILE": "/no/such/file"}, "TIDEPOOL_OIDC_CA_FILE names /no/such/file, which cannot be read"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        oidc_config(Environment({**WHOLE, **variables}))
    assert str(refused.value).startswith(sentence)


def test_a_provider_needs_the_table_of_groups(tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="TIDEPOOL_LOGIN_GROUPS_FILE is not set: name a file"):
        group_table(Environment({}), is_needed=True)
    file = tmp_path / "groups.toml"
    with pytest.raises(ImproperlyConfigured, match=r"^TIDEPOOL_LOGIN_GROUPS_FILE: .* cannot be read"):
        group_table(Environment({"TIDEPOOL_LOGIN_GROUPS_FILE": str(file)}), is_needed=True)
    file.write_text('[[groups]]\ngroup = "*"\nrole = "viewer"')
    assert group_table(Environment({"TIDEPOOL_LOGIN_GROUPS_FILE": str(file)}), is_needed=True) is not None


LDAP = {
    "TIDEPOOL_LDAP_URL": "ldap://ldap.example.org",
    "TIDEPOOL_LDAP_USERS": "ou=people,dc=example,dc=org",
    "TIDEPOOL_LDAP_GROUPS": "ou=groups,dc=example,dc=org",
}


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have django-auth-ldap be there, whether it is or not."""
    monkeypatch.setattr(log_in_settings, "find_spec", lambda name: object())


def test_passwords_go_to_a_directory_encrypted_or_stay_on_this_machine(packages: None) -> None:
    def starts_tls(url: str) -> bool:
        config = ldap_config(Environment({**LDAP, "TIDEPOOL_LDAP_URL": url}))
        return config is not None and config.starts_tls

    assert starts_tls("ldap://ldap.example.org")
    assert not starts_tls("ldaps://ldap.example.org")
    assert not starts_tls("ldap://127.0.0.1:389")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"TIDEPOOL_LDAP_URL": "ldap.example.org"},
            "TIDEPOOL_LDAP_URL is 'ldap.example.org': set it to the directory's",
        ),
        ({"TIDEPOOL_LDAP_URL": "ldap://x/dc=example"}, "TIDEPOOL_LDAP_URL is 'ldap://x/dc=example'"),
        ({"TIDEPOOL_LDAP_USERS": ""}, "TIDEPOOL_LDAP_URL is set, but TIDEPOOL_LDAP_USERS is not: set it to the entry"),
        ({"TIDEPOOL_LDAP_GROUPS": ""}, "TIDEPOOL_LDAP_URL is set, but TIDEPOOL_LDAP_GROUPS is not"),
        ({"TIDEPOOL_LDAP_GROUP_CLASS": "team"}, "TIDEPOOL_LDAP_GROUP_CLASS is 'team': use groupOfNames, groupOfUnique"),
        ({"TIDEPOOL_LDAP_CA_FILE": "/no/such"}, "TIDEPOOL_LDAP_CA_FILE names /no/such, which cannot be read"),
    ],
)
def test_a_directory_that_does_not_fit_is_refused(packages: None, variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        ldap_config(Environment({**LDAP, **variables}))
    assert str(refused.value).startswith(sentence)


def test_a_directory_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_in_settings, "find_spec", lambda name: None)
    with pytest.raises(ImproperlyConfigured, match="the packages for LDAP are missing: make setup-ldap"):
        ldap_config(Environment(LDAP))
    assert ldap_config(Environment({})) is None
