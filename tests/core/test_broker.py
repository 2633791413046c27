import pytest

from core.broker import redis_url


@pytest.mark.parametrize(
    ("celery", "plain"),
    [
        ("redis://:secret@broker.example:6379/2", "redis://:secret@broker.example:6379/2"),
        ("redis+socket:///run/b.sock?virtual_host=0", "unix:///run/b.sock?db=0"),
        ("redis+socket:///run/b.sock?virtual_host=3", "unix:///run/b.sock?db=3"),
        ("redis+socket:///run/b.sock", "unix:///run/b.sock?db=0"),
        ("redis+socket://:secret@/run/b.sock?virtual_host=1", "unix://:secret@/run/b.sock?db=1"),
    ],
)
def test_celerys_url_as_redis_py_writes_it(celery, plain):
    assert redis_url(celery) == plain
