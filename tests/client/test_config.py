"""Tests of the choice of site and token, and of the stored login."""

import stat

import pytest
from tidepool.client.config import Profile, checked_url, config_file, profiles, resolve
from tidepool.client.errors import InvalidRequest, NotLoggedIn

KEPT = Profile("https://site", 'odd"token\\', ca_file="/tmp/ü.pem")


def test_a_login_is_kept_for_its_owner_alone() -> None:
    profiles().keep("default", KEPT)
    profiles().keep("other site", Profile("https://other", "t"))
    assert profiles().by_name == {"default": KEPT, "other site": Profile("https://other", "t")}
    assert stat.S_IMODE(config_file().stat().st_mode) == 0o600
    profiles().keep("default", None)
    assert set(profiles().by_name) == {"other site"}


def test_arguments_go_before_the_environment_and_that_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles().keep("default", KEPT)
    assert resolve(None, None, None) == KEPT
    monkeypatch.setenv("TIDEPOOL_URL", "https://env/")
    monkeypatch.setenv("TIDEPOOL_TOKEN", "env")
    assert resolve(None, None, None) == Profile("https://env", "env")
    assert resolve("https://mine", "given", None) == Profile("https://mine", "given")


def test_a_token_goes_to_no_other_site(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles().keep("default", KEPT)
    with pytest.raises(NotLoggedIn):
        resolve("https://elsewhere", None, None)


def test_without_a_login_it_says_so() -> None:
    with pytest.raises(NotLoggedIn):
        resolve(None, None, None)
    with pytest.raises(NotLoggedIn):
        resolve(None, None, "work")


def test_a_file_that_is_none_of_ours_is_named() -> None:
    config_file().parent.mkdir(parents=True)
    for text in ("[profiles", "profiles = 3", "[profiles]\ndefault = 1"):
        config_file().write_text(text)
        with pytest.raises(InvalidRequest):
            profiles()


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("site", "https://site"),
        ("http://a:1/x/", "http://a:1/x"),
        ("https://s/", "https://s"),
        ("http://[fd00::1]:8000/", "http://[fd00::1]:8000"),
    ],
)
def test_addresses(given: str, address: str) -> None:
    assert checked_url(given) == address


@pytest.mark.parametrize(
    "given", ["", "ftp://site", "http://", "file:///etc/passwd", "http://fd00::1:8000", "http://[fd00::1"]
)
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(InvalidRequest):
        checked_url(given)
