"""Division of GPUs of several kinds by goodput: each training on one kind, chosen by prices.

A slot of each kind has a price, by which every job asks for the kind and the number that are worth most to it beyond
what they cost. Prices of what is asked for too much rise, others fall: 120 steps, each smaller than the one before.
What all together are worth at such prices is never less than what any division is worth: the least of these bounds
certifies how good the one is that comes out (the Lagrangian dual; the method is the subgradient's, with factors).

At the best prices jobs are put on kinds, first those that lose most on any other, as long as a kind has room. Slots of
each kind are then given as those of one alone (`goodput.greedy`). Last come exchanges that make all together better
off: a job changes its kind, where others give up segments of their hulls for it. Only where no kind has room for a
job's floor it gets slots of several.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scheduling.policies.goodput import BETTER, Bid, GoodputDivision, greedy, last_steps, total_value

__all__ = ["Offer", "division_of_kinds"]

_STEPS, _SLOWER_AFTER = 120, 10
#: Largest number of divisions that exchanges try; and of jobs, those that should gain most, that are tried until one
#: does.
_TRIES, _TRIED_EACH = 16, 3
#: Number of jobs from which on only the best of several beginnings is improved.
_MANY = 100

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Offer:
    """One job that takes part."""

    #: Bids by kind of GPU. Empty for a job of fixed size.
    bids: Mapping[str, Bid]
    #: For slots of any kind, as fast as the slowest: where no kind has room for it.
    mixed: Bid
    #: Slots that it holds of each kind.
    held: Mapping[str, int]
    #: Kinds of which one host has enough for it, if it needs all its slots on one host; else empty.
    host_kinds: frozenset[str] = frozenset()

    @property
    def id(self) -> int:
        return self.mixed.id

    @property
    def only_kind(self) -> str | None:
        """The kind of all that it holds; None: several, or one that it cannot be on."""
        kinds = [kind for kind, count in self.held.items() if count]
        return kinds[0] if len(kinds) == 1 and kinds[0] in self.bids else None

    def bid(self, kind: str | None) -> Bid:
        return self.mixed if kind is None else self.bids[kind]


@dataclass(frozen=True, slots=True)
class _Options:
    """Sizes of all jobs on all kinds: a row for each job, as long as the longest; what is not offered is worth -inf."""

    worth: _Floats
    slots: _Integers
    kind: _Integers


#: Job -> kind; None: several.
_Chosen = dict[int, str | None]


class _Tried(NamedTuple):
    chosen: _Chosen
    #: Slots of each job, the price of each kind, and what all are worth together.
    shares: dict[int, int]
    prices: dict[str, float]
    value: float


def division_of_kinds(
    offers: Sequence[Offer], rooms: Mapping[str, int], capacity: int, before: Mapping[int, str] | None = None
) -> GoodputDivision:
    """Divide slots of several kinds. Jobs get their floors even where these do not fit: none is stopped.

    offers: in the order of service. rooms: number of slots of each kind; all jobs together get no more than `capacity`.
    before: kinds of the plan before.
    """
    choosing = [offer for offer in offers if offer.bids]
    fixed = {offer.id: offer.mixed.floor for offer in offers if not offer.bids}
    left = _beside_fixed(offers, rooms)
    spare = capacity - sum(fixed.values())
    prices, bound = _prices(choosing, left, spare)
    # A training changes its kind only where that makes all together better off, and a change that has begun goes on.
    has = {offer.id: kind for offer in choosing if (kind := offer.only_kind) is not None}
    given: tuple[Mapping[int, str], ...] = (has, {**has, **(before or {})}, {})
    tried: list[_Tried] = []
    for one in given:
        chosen = _assigned(choosing, left, prices, one)
        breaks_up = any(chosen[job] is None for job in has)
        if not tried or not (breaks_up or any(chosen == other.chosen for other in tried)):
            tried.append(_divided(choosing, chosen, left, spare))
    if len(choosing) > _MANY:
        tried = [_best(tried)]
    best = _best([_improved(choosing, one, left, spare) for one in tried])
    if (as_it_is := _as_it_is(choosing, left, spare)) is not None:
        best = _best([as_it_is, best])
    bids = [offer.bid(best.chosen[offer.id]) for offer in choosing]
    least = sum(bid.utility(bid.floor) for bid in bids)
    missing, most = max(0.0, bound - best.value), bound - least
    return GoodputDivision(
        shares=fixed | best.shares,
        # Floors that do not fit may be worth more than the bound of what does.
        gap=min(1.0, missing / most) if missing > BETTER * abs(bound) and most > 0 else 0.0,
        price=max(best.prices.values(), default=0.0),
        value=best.value,
        last=last_steps(bids, best.shares),
        kinds={job: kind for job, kind in best.chosen.items() if kind is not None},
        prices={kind: best.prices.get(kind, 0.0) for kind in rooms},
    )


def _beside_fixed(offers: Iterable[Offer], rooms: Mapping[str, int]) -> dict[str, int]:
    """Rooms without what jobs of fixed size hold, or shall get: of the kind of which most is held by nobody. A job on
    one host gets all of the same kind, although others may hold some of it, which leave."""
    left, free = Counter(rooms), Counter(rooms)
    for offer in offers:
        free.subtract(offer.held)
        if not offer.bids:
            left.subtract(offer.held)
    for offer in offers:
        lacking = 0 if offer.bids else offer.mixed.floor - sum(offer.held.values())
        if lacking > 0 and offer.host_kinds:
            kind = min(offer.host_kinds, key=lambda kind: (-free[kind], kind))
            free[kind] -= lacking
            left[kind] -= lacking
        else:
            left.subtract(_taken(free, lacking))
    return {kind: max(0, count) for kind, count in left.items()}


def _taken(left: Counter[str], count: int) -> Counter[str]:
    """Take so many of `left`, again and again of the kind that has most; returns how many of each."""
    found = Counter[str]()
    while count > 0 and left:
        kind = min(left, key=lambda kind: (-left[kind], kind))
        taken = min(count, max(1, left[kind]))
        left[kind] -= taken
        found[kind] += taken
        count -= taken
    return found


def _on_several(offer: Offer, left: Mapping[str, int]) -> Counter[str]:
    """Return the slots of each kind of a job that is on several: what it holds, and more of what is left."""
    found, lacking = Counter(offer.held), offer.mixed.floor - sum(offer.held.values())
    return found + _taken(Counter(left) - found, lacking)


# --- prices ----------------------------------------------------------------------------------------------------------


def _prices(offers: Sequence[Offer], rooms: Mapping[str, int], spare: int) -> tuple[dict[str, float], float]:
    """Return the prices with the least bound of what all together are worth, and that bound."""
    kinds = list(rooms)
    if not offers:
        return dict.fromkeys(kinds, 0.0), 0.0
    options = _options(offers, kinds)
    # The last price is that of any slot: with a quota there may be fewer than of all kinds together.
    room = np.array([*rooms.values(), max(0, spare)], dtype=float)
    price = np.full(len(room), _first_price(options, float(sum(rooms.values()))))
    if spare >= sum(rooms.values()):
        price[-1] = 0.0
    rows = np.arange(len(offers))
    best, bound = price, inf
    for step in range(_STEPS):
        left_over = options.worth - (price[:-1][options.kind] + price[-1]) * options.slots
        found = np.argmax(left_over, axis=1)
        worth = float(left_over[rows, found].sum() + price @ room)
        if worth < bound:
            best, bound = price, worth
        slots = options.slots[rows, found]
        requested = np.bincount(options.kind[rows, found], weights=slots, minlength=len(kinds))
        excess = (np.append(requested, slots.sum()) - room) / np.maximum(room, 1.0)
        price = price * np.exp(np.clip(excess, -1.0, 1.0) / (1.0 + step / _SLOWER_AFTER))
    return {kind: round(float(best[place] + best[-1]), 12) for place, kind in enumerate(kinds)}, bound


def _options(offers: Sequence[Offer], kinds: Sequence[str]) -> _Options:
    rows = []
    for offer in offers:
        row = [
            (worth, size, place)
            for place, kind in enumerate(kinds)
            if (bid := offer.bids.get(kind)) is not None
            for size, worth in bid.corners
        ]
        rows.append(row)
    longest = max(map(len, rows))
    table = np.array([[*row, *[(-inf, 0, 0)] * (longest - len(row))] for row in rows])
    return _Options(table[:, :, 0], table[:, :, 1].astype(int), table[:, :, 2].astype(int))


def _first_price(options: _Options, slots: float) -> float:
    """Return the price at which all possible gains would just pay for all slots."""
    floors = options.worth[:, 0]
    return float(max((options.worth.max(axis=1) - floors).sum() / max(slots, 1.0), 1e-12))


# --- kinds -----------------------------------------------------------------------------------------------------------


def _assigned(
    offers: Sequence[Offer], rooms: Mapping[str, int], prices: Mapping[str, float], given: Mapping[int, str]
) -> _Chosen:
    """The kind of each job: for some it is given, if that has room; of the others first who loses most on any other
    one. As many as it asks for at these prices if there is so much room; else its floor."""
    requested = [_requested(offer, prices) for offer in offers]
    order = sorted(range(len(offers)), key=lambda one: (offers[one].id not in given, -_regret(requested[one]), one))
    chosen: _Chosen = {}
    free, for_floors = Counter(rooms), Counter(rooms)
    for offer in offers:
        if offer.only_kind is None:  # unless it finds room on one kind, it keeps what it has
            free.subtract(offer.held)
            for_floors.subtract(offer.held)
    for place in order:
        offer = offers[place]
        floor, wished = offer.mixed.floor, given.get(offer.id)
        if offer.only_kind is None:
            free.update(offer.held)
            for_floors.update(offer.held)
        able = [ask for ask in requested[place] if for_floors[ask.kind] >= floor]
        # Among kinds of the same worth the one with most room comes first.
        able.sort(key=lambda ask: (-ask.worth, -free[ask.kind], ask.kind))
        able.sort(key=lambda ask: ask.kind != wished and free[ask.kind] < ask.slots)
        found = next((ask for ask in able if ask.kind == wished), able[0] if able else None)
        if found is not None:
            free[found.kind] -= min(found.slots, max(floor, free[found.kind]))
            for_floors[found.kind] -= floor
        else:
            on_several = _on_several(offer, for_floors)
            free.subtract(on_several)
            for_floors.subtract(on_several)
        chosen[offer.id] = found.kind if found is not None else None
    return chosen


class _Ask(NamedTuple):
    #: Worth beyond the price.
    worth: float
    kind: str
    slots: int


def _requested(offer: Offer, prices: Mapping[str, float]) -> list[_Ask]:
    """Return the job's request of each kind, the best first."""
    found = []
    for kind, bid in offer.bids.items():
        left, fewer = max((worth - prices[kind] * size, -size) for size, worth in bid.corners)
        found.append(_Ask(round(left, 12), kind, -fewer))
    return sorted(found, key=lambda ask: (-ask.worth, ask.kind))


def _regret(requested: Sequence[_Ask]) -> float:
    return requested[0].worth - requested[1].worth if len(requested) > 1 else inf


def _best(tried: Sequence[_Tried]) -> _Tried:
    """Return the first, or another one that is better by enough."""
    best = tried[0]
    for other in tried[1:]:
        if other.value > best.value + BETTER * abs(best.value):
            best = other
    return best


def _improved(offers: Sequence[Offer], best: _Tried, rooms: Mapping[str, int], spare: int) -> _Tried:
    """Return this division, or one with better kinds for some jobs."""
    tries = iter(range(_TRIES))
    while True:
        others = zip(tries, _exchanges(offers, best, rooms), strict=False)
        found = (_divided(offers, other, rooms, spare) for _, other in others)
        better = next((one for one in found if _best([best, one]) is one), None)
        if better is None:
            return best
        best = better


def _divided(offers: Sequence[Offer], chosen: _Chosen, rooms: Mapping[str, int], spare: int) -> _Tried:
    left = _beside_floors(offers, chosen, rooms)
    bids = [offer.bid(chosen[offer.id]) for offer in offers]
    shares = {bid.id: bid.floor for bid in bids}
    found = greedy([bid for bid in bids if chosen[bid.id] is not None], spare - sum(shares.values()), left)
    shares |= found.shares
    return _Tried(chosen, shares, found.prices, total_value(bids, shares))


def _beside_floors(offers: Sequence[Offer], chosen: _Chosen, rooms: Mapping[str, int]) -> Counter[str]:
    left = Counter(rooms)
    for offer in offers:
        if (kind := chosen[offer.id]) is not None:
            left[kind] -= offer.mixed.floor
    for offer in offers:
        if chosen[offer.id] is None:
            left.subtract(_on_several(offer, left))
    return left


def _exchanges(offers: Sequence[Offer], tried: _Tried, rooms: Mapping[str, int]) -> Iterator[_Chosen]:
    """Yield the same with another kind for one job, first the one that should gain most at these prices."""
    left = _beside_floors(offers, tried.chosen, rooms)
    found: list[tuple[float, int, str]] = []
    for offer in offers:
        now, has = tried.chosen[offer.id], tried.shares[offer.id]
        worth = offer.bid(now).utility(has) - (0.0 if now is None else tried.prices.get(now, 0.0) * has)
        for kind, bid in offer.bids.items():
            if kind == now or left[kind] < bid.floor:
                continue
            price = tried.prices.get(kind, 0.0)
            gain = max(its_worth - price * size for size, its_worth in bid.corners) - worth
            if gain > BETTER:
                found.append((gain, offer.id, kind))
    for _, job, kind in sorted(found, key=lambda one: -one[0])[:_TRIED_EACH]:
        yield {**tried.chosen, job: kind}


def _as_it_is(offers: Sequence[Offer], rooms: Mapping[str, int], spare: int) -> _Tried | None:
    """Return the present slots and kinds of all jobs; None if one of them starts, or cannot keep its slots."""
    chosen: _Chosen = {}
    has: dict[int, int] = {}
    left = Counter(rooms)
    for offer in offers:
        chosen[offer.id] = kind = offer.only_kind
        bid, count = offer.bid(kind), sum(offer.held.values())
        if bid.has is None or not bid.floor <= count <= bid.most:
            return None
        has[offer.id] = count
        left.subtract(offer.held)
    if any(count < 0 for count in left.values()) or sum(has.values()) > spare:
        return None
    bids = [offer.bid(chosen[offer.id]) for offer in offers]
    return _Tried(chosen, has, _divided(offers, chosen, rooms, spare).prices, total_value(bids, has))
