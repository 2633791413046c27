"""Strangers cannot keep the processors busy with passwords, from one address or many."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.test import Client

from accounts.verification_limits import Turns, verifying
from core.errors import TooMany
from tests.factories import PASSWORD
from tests.waiting import wait_until


def _turns(**limits: float) -> Turns:
    return Turns(**{"running": 2, "most": 5, "most_of_address": 3, "patience_seconds": 60.0, **limits})  # type: ignore[arg-type]


class _Crowd:
    """Callers that hold their turn until they are let go."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.go = threading.Event()
        self.lock = threading.Lock()
        self.running = self.most_running = 0
        self.refused: list[str] = []

    def come(self, address: str) -> None:
        try:
            with self.turns.turn(address):
                with self.lock:
                    self.running += 1
                    self.most_running = max(self.most_running, self.running)
                self.go.wait(60)
                with self.lock:
                    self.running -= 1
        except TooMany:
            with self.lock:
                self.refused.append(address)


def test_few_run_at_once_and_who_comes_too_often_is_refused_at_once() -> None:
    crowd = _Crowd(_turns())
    with ThreadPoolExecutor(16) as pool:
        for address in ["10.0.0.1"] * 6:
            pool.submit(crowd.come, address)
        wait_until(lambda: len(crowd.refused) == 3, "an address has three, the others are refused")
        for address in ("10.0.0.2", "10.0.0.3", "10.0.0.4"):
            pool.submit(crowd.come, address)
        wait_until(lambda: len(crowd.refused) == 4, "five wait in all, the sixth is refused")
        assert crowd.running == 2
        crowd.go.set()
    assert (crowd.most_running, crowd.running) == (2, 0)
    with crowd.turns.turn("10.0.0.1"):
        assert crowd.turns._here == {"10.0.0.1": 1}


def test_after_many_wrong_ones_an_address_waits_and_others_do_not() -> None:
    now = 100.0
    turns = _turns(failures=3, seconds_per_failure=2.0)
    turns.clock = lambda: now
    for _ in range(3):
        with turns.turn("2001:db8::1"):
            turns.count_failure("2001:db8::1")
    with pytest.raises(TooMany) as refusal, turns.turn("2001:db8::ffff"):
        pass
    assert refusal.value.retry_seconds == 1
    with turns.turn("2001:db8:0:1::1"), turns.turn("10.0.0.1"):
        pass
    now += 2.0
    with turns.turn("2001:db8::1"):
        turns.count_failure("2001:db8::1")
    with pytest.raises(TooMany), turns.turn("2001:db8::1"):
        pass


def test_addresses_are_forgotten() -> None:
    turns = _turns()
    for number in range(10_050):
        turns.count_failure(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}")
    assert len(turns._owed_until) == 10_000


WAYS = [
    ("POST", "/login/", {}),
    ("GET", "/api/v1/me/", {"authorization": "Basic "}),
    ("GET", "/platform/rest/conductor/v1/auth/logon", {"authorization": "Basic "}),
    ("POST", "/auth/v1/logon", {}),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "address", "headers"), WAYS)
def test_every_way_to_log_in_takes_its_turn(
    alice: User, monkeypatch: pytest.MonkeyPatch, method: str, address: str, headers: dict[str, str]
) -> None:
    """Each time under another name, which no lockout by name would stop."""
    hashed = []
    encode = MD5PasswordHasher.encode
    monkeypatch.setattr(MD5PasswordHasher, "encode", lambda *given: hashed.append(1) or encode(*given))

    def ask(name: str, password: str, **further: str) -> int:
        credentials = base64.b64encode(f"{name}:{password}".encode()).decode()
        sent = {word: f"{value}{credentials}" for word, value in headers.items()}
        kind = {} if address == "/login/" else {"content_type": "application/json"}
        body = None if headers else {"username": name, "password": password}
        return getattr(Client(**further), method.lower())(address, body, headers=sent, **kind).status_code

    monkeypatch.setattr(verifying, "clock", lambda: 1000.0)
    answers = [ask(f"nobody-{number}", "wrong") for number in range(35)]
    assert 429 not in answers[:30]
    assert set(answers[30:]) == {429}
    assert len(hashed) == 30
    assert ask("alice", PASSWORD) == 429
    assert ask("alice", PASSWORD, REMOTE_ADDR="10.0.0.9") in {200, 302}


@pytest.mark.django_db
def test_right_passwords_cost_an_address_nothing(alice: User) -> None:
    for _ in range(40):
        assert Client().post("/login/", {"username": "alice", "password": PASSWORD}).status_code == 302


@pytest.mark.django_db
def test_the_page_says_how_long_to_wait() -> None:
    for _ in range(40):
        verifying.count_failure("127.0.0.1")
    answer = Client().post("/login/", {"username": "alice", "password": PASSWORD})
    assert (answer.status_code, 0 < int(answer["Retry-After"]) <= 31) == (429, True)
    assert "Too many failed logins from this address" in answer.content.decode()
