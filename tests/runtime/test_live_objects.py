"""Living objects are found by their class while other threads make tuples."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from tidepool.live_objects import instances_of


class Kind:
    pass


class Derived(Kind):
    pass


class Pretender:
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return Kind


@contextmanager
def a_thread_that_makes_tuples() -> Iterator[None]:
    """Have another thread fill tuples, between whose items threads are switched. Raises what it raises."""
    errors: list[BaseException] = []
    is_over = threading.Event()

    def make() -> None:
        try:
            while not is_over.is_set():
                assert tuple(number for number in range(300))
        except BaseException as error:
            errors.append(error)

    thread, interval = threading.Thread(target=make), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]


def test_instances_of_a_class_and_of_classes_derived_from_it_are_found() -> None:
    own = [Kind(), Derived(), Pretender()]
    found = instances_of(Kind)
    assert {id(each) for each in own[:2]} == {id(each) for each in found}
    assert instances_of(Derived) == own[1:2]
    assert set(map(type, instances_of(Derived, SimpleNamespace))) >= {Derived}


def test_no_instances_are_found_where_there_are_none() -> None:
    class Unused:
        pass

    assert instances_of(Unused) == []


def test_a_thread_that_makes_tuples_is_not_disturbed() -> None:
    own = Kind()
    with a_thread_that_makes_tuples():
        assert all(instances_of(Kind) == [own] for _ in range(40))
