"""CPUs of a rank: those near its GPU, to which it is bound, and as many as its share in what Python tells scripts."""

import os
import re
from collections.abc import Collection, Mapping

from tidepool.env import COUNT_VARIABLE

__all__ = ["bind_to", "bound_words", "cpus_in", "cpus_near", "list_words", "own_cpus", "tell_share"]

_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def cpus_in(text: str) -> frozenset[int]:
    """Return the CPUs in a list of the kernel, such as "0-3,8"; empty: there are none, or it is no such list."""
    spans = [_SPAN.fullmatch(part) for part in text.strip().split(",")]
    if not all(spans):
        return frozenset()
    pairs = [(int(span[1]), int(span[2] or span[1])) for span in spans if span]
    return frozenset(cpu for first, last in pairs for cpu in range(first, last + 1))


def list_words(cpus: Collection[int]) -> str:
    """Return CPUs as the kernel lists them: "0-3,8"."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def cpus_near(lists: Collection[str]) -> frozenset[int]:
    """Return the CPUs near any of some GPUs, by the list of each; empty: they are not known of all."""
    found = [cpus_in(text) for text in lists]
    return frozenset().union(*found) if found and all(found) else frozenset()


def bind_to(cpus: frozenset[int]) -> None:
    """Bind this process, which has one thread, to those of the CPUs that it may use; to none: it stays as it is."""
    if chosen := os.sched_getaffinity(0) & cpus:
        os.sched_setaffinity(0, chosen)


def bound_words(most: int = 128) -> str:
    """Return the CPUs that this process may use, as a list; "": it may use all of its machine.

    most: characters, of a list that is cut short where it is longer.
    """
    allowed = _affinity(0)
    if len(allowed) >= os.sysconf("SC_NPROCESSORS_ONLN"):
        return ""
    words = list_words(allowed)
    return words if len(words) <= most else f"{words[: most - 4].rpartition(',')[0]},..."


def own_cpus(allowed: Collection[int], count: int, slot: int) -> frozenset[int]:
    """Return so many of the CPUs, other ones for each slot as far as there are enough."""
    ordered = sorted(allowed)
    first = slot * count
    return frozenset(ordered[(first + place) % len(ordered)] for place in range(min(count, len(ordered))))


def tell_share(environment: Mapping[str, str], slot: int) -> None:
    """Have Python tell this process, and those that it forks, as many CPUs as `COUNT_VARIABLE` says.

    `os.cpu_count`, `os.process_cpu_count` and `os.sched_getaffinity` follow, by which scripts choose numbers of workers
    and threads. A process that has bound itself to other CPUs is told these.
    """
    text = environment.get(COUNT_VARIABLE, "")
    if not text.isdigit() or not int(text):
        return
    count, bound = int(text), _affinity(0)
    own = own_cpus(bound, count, slot)

    def affinity(pid: int, /) -> set[int]:
        real = _affinity(pid)
        return set(own) if pid in (0, os.getpid()) and real == bound else real

    def counted() -> int:
        return count

    os.sched_getaffinity = affinity
    os.cpu_count = counted
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = counted


#: The kernel's answer, whatever `tell_share` has Python say.
_affinity = os.sched_getaffinity
