"""Division of GPUs of several kinds by goodput: each training on one kind, chosen by prices.

A slot of each kind has a price, by which every job asks for the kind and the number that are worth most to it beyond
what they cost. Prices of what is asked for too much rise, others fall: 120 steps, each smaller than the one before.
What all together are worth at such prices is never less than what any division is worth: the least of these bounds
certifies how good the one is that comes out (the Lagrangian dual; the method is the subgradient's, with factors).

At the best prices jobs are put on kinds, first those that lose most on any other, as long as a kind has room. Slots of
each kind are then given as those of one alone (`hull_segments`). Last come exchanges that make all together better
off: a job changes its kind, where others give up segments of their hulls for it. Only where no kind has room for a
job's floor it gets slots of several.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from scheduling.policies.goodput import BETTER, GoodputDivision, last_steps
from scheduling.policies.goodput_bids import Bid
from scheduling.policies.hull_segments import NO_KIND, Floats, HullSegments, Integers

__all__ = ["Offer", "division_of_kinds"]

_STEPS, _SLOWER_AFTER = 120, 10
#: Largest number of divisions that exchanges try; and of jobs, those that should gain most, that are tried until one
#: does.
_TRIES, _TRIED_EACH = 16, 3
#: Number of jobs from which on only the best of several beginnings is improved.
_MANY = 100


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
        """Return the kind of all slots that it holds; None: several kinds, none, or one that it cannot be on."""
        kinds = [kind for kind, count in self.held.items() if count]
        return kinds[0] if len(kinds) == 1 and kinds[0] in self.bids else None

    def bid(self, kind: str | None) -> Bid:
        return self.mixed if kind is None else self.bids[kind]


class _Asks(NamedTuple):
    """Request of each job for each kind at some prices."""

    #: Utility less the price of the slots; -inf where the job cannot be on the kind.
    worth: Floats
    slots: Integers


class _Tried(NamedTuple):
    """A division, by the jobs' places in line and by the places of kinds."""

    #: Kind of each job; `NO_KIND`: several.
    chosen: Integers
    #: Slots of each job and their utility, the price of each kind, and what all are worth together.
    slots: Integers
    worth: Floats
    prices: Floats
    value: float


class _Market:
    """Jobs that choose among kinds, and the slots that they share."""

    def __init__(self, offers: Sequence[Offer], rooms: Mapping[str, int], spare: int) -> None:
        """rooms: number of slots of each kind; all jobs together get no more than `spare`."""
        self.offers, self.rooms, self.spare = offers, rooms, spare
        self.kinds = tuple(rooms)
        self.place = {kind: place for place, kind in enumerate(self.kinds)}
        self.floors = np.array([offer.mixed.floor for offer in offers], dtype=np.int64)
        #: Bids of each job by the place of the kind.
        self.bids = [[offer.bids.get(kind) for kind in self.kinds] for offer in offers]
        #: Place of the only kind that each job holds slots of; `NO_KIND`: several, none, or one that it cannot be on.
        self.has = np.array([self._place(offer.only_kind) for offer in offers], dtype=np.int64)

    def _place(self, kind: str | None) -> int:
        return NO_KIND if kind is None else self.place[kind]

    @cached_property
    def segments(self) -> HullSegments:
        return HullSegments(self.bids, len(self.kinds))

    @cached_property
    def options(self) -> tuple[Floats, Integers]:
        """Return utility and slots at each corner of each job's hull on each kind. Shorter hulls than the longest are
        filled up with corners of utility -inf."""
        longest = max((len(bid.corners) for row in self.bids for bid in row if bid is not None), default=1)
        lacking = [(0, -inf)] * longest
        table = np.array(
            [
                [lacking if bid is None else [*bid.corners, *lacking[len(bid.corners) :]] for bid in row]
                for row in self.bids
            ]
        ).reshape(len(self.bids), len(self.kinds), longest, 2)
        return table[..., 1].copy(), table[..., 0].astype(np.int64)

    def asks(self, prices: Floats) -> _Asks:
        """Return what each job would ask for of each kind at these prices."""
        worth, slots = self.options
        beyond = worth - prices[None, :, None] * slots
        best = np.argmax(beyond, axis=2)[..., None]
        return _Asks(np.take_along_axis(beyond, best, 2)[..., 0], np.take_along_axis(slots, best, 2)[..., 0])

    def room_beside_floors(self, chosen: Integers) -> Counter[str]:
        """Return the slots of each kind beyond the floors of the jobs that are on it."""
        on_kinds = np.bincount(chosen[chosen != NO_KIND], self.floors[chosen != NO_KIND], minlength=len(self.kinds))
        left = Counter(self.rooms)
        left.subtract(dict(zip(self.kinds, on_kinds.astype(int).tolist(), strict=True)))
        for job in np.flatnonzero(chosen == NO_KIND).tolist():
            left.subtract(_on_several(self.offers[job], left))
        return left

    def divided(self, chosen: Integers) -> _Tried:
        """Divide the slots, with each job on the chosen kind."""
        left = self.room_beside_floors(chosen)
        found = self.segments.given(chosen, [left[kind] for kind in self.kinds], self.spare - int(self.floors.sum()))
        for job in np.flatnonzero(chosen == NO_KIND).tolist():
            mixed = self.offers[job].mixed
            found.worth[job] = mixed.utility(mixed.floor)
        prices = np.array([found.prices.get(place, 0.0) for place in range(len(self.kinds))])
        return _Tried(chosen, found.slots, found.worth, prices, float(found.worth.sum()))


def division_of_kinds(
    offers: Sequence[Offer], rooms: Mapping[str, int], capacity: int, before: Mapping[int, str] | None = None
) -> GoodputDivision:
    """Divide slots of several kinds. Jobs get their floors even where these do not fit: none is stopped.

    offers: in the order of service. rooms: number of slots of each kind; all jobs together get no more than `capacity`.
    before: kinds of the plan before.
    """
    fixed = {offer.id: offer.mixed.floor for offer in offers if not offer.bids}
    choosing = [offer for offer in offers if offer.bids]
    market = _Market(choosing, _beside_fixed(offers, rooms), capacity - sum(fixed.values()))
    prices, bound = _prices(market)
    best = _best_division(market, prices, before or {})
    chosen = {
        offer.id: market.kinds[kind] for offer, kind in zip(choosing, best.chosen, strict=True) if kind != NO_KIND
    }
    shares = dict(zip((offer.id for offer in choosing), best.slots.tolist(), strict=True))
    bids = [offer.bid(chosen.get(offer.id)) for offer in choosing]
    least = sum(bid.utility(bid.floor) for bid in bids)
    missing, most = max(0.0, bound - best.value), bound - least
    found_prices = dict(zip(market.kinds, best.prices.tolist(), strict=True))
    return GoodputDivision(
        shares=fixed | shares,
        # Floors that do not fit may be worth more than the bound of what does.
        gap=min(1.0, missing / most) if missing > BETTER * abs(bound) and most > 0 else 0.0,
        price=max(found_prices.values(), default=0.0),
        value=best.value,
        last=last_steps(bids, shares),
        kinds=chosen,
        prices={kind: found_prices[kind] for kind in rooms},
    )


def _best_division(market: _Market, prices: Floats, before: Mapping[int, str]) -> _Tried:
    """Return the best of several divisions: of those in which jobs stay on the kind that they have, change to that of
    the plan before, and choose freely, each with exchanges; and the present one."""
    asks = market.asks(prices)
    # A training changes its kind only where that makes all together better off, and a change that has begun goes on.
    planned = [market.place.get(before.get(offer.id, ""), NO_KIND) for offer in market.offers]
    wishes = [market.has, np.where(np.array(planned, dtype=np.int64) == NO_KIND, market.has, planned)]
    tried: list[_Tried] = []
    for wished in (*wishes, np.full_like(market.has, NO_KIND)):
        chosen = _assigned(market, asks, wished)
        breaks_up = bool(((chosen == NO_KIND) & (market.has != NO_KIND)).any())
        if not tried or not (breaks_up or any(np.array_equal(chosen, other.chosen) for other in tried)):
            tried.append(market.divided(chosen))
    if len(market.offers) > _MANY:
        tried = [_best(tried)]
    best = _best([_improved(market, one) for one in tried])
    as_it_is = _as_it_is(market)
    return best if as_it_is is None else _best([as_it_is, best])


def _beside_fixed(offers: Iterable[Offer], rooms: Mapping[str, int]) -> dict[str, int]:
    """Return the rooms without the slots that jobs of fixed size hold or will get. Those that they will get are of the
    kind that has most free slots. A job that needs one host gets all its slots of one kind: others leave it if need be.
    """
    left, free = Counter(rooms), Counter(rooms)
    for offer in offers:
        free.subtract(offer.held)
        if not offer.bids:
            left.subtract(offer.held)
    for offer in offers:
        lacking = 0 if offer.bids else offer.mixed.floor - sum(offer.held.values())
        if lacking <= 0:
            continue
        if offer.host_kinds:
            kind = min(offer.host_kinds, key=lambda kind: (-free[kind], kind))
            free[kind] -= lacking
            left[kind] -= lacking
        else:
            left.subtract(_taken(free, lacking))
    return {kind: max(0, count) for kind, count in left.items()}


def _taken(left: Counter[str], count: int) -> Counter[str]:
    """Take so many slots out of `left`, always of the kind that has most; return how many of each kind."""
    found = Counter[str]()
    while count > 0 and left:
        kind = min(left, key=lambda kind: (-left[kind], kind))
        taken = min(count, max(1, left[kind]))
        left[kind] -= taken
        found[kind] += taken
        count -= taken
    return found


def _on_several(offer: Offer, left: Mapping[str, int]) -> Counter[str]:
    """Return how many slots of each kind a job on several kinds gets: those that it holds, and more of those left."""
    found, lacking = Counter(offer.held), offer.mixed.floor - sum(offer.held.values())
    return found + _taken(Counter(left) - found, lacking)


# --- prices ----------------------------------------------------------------------------------------------------------


def _prices(market: _Market) -> tuple[Floats, float]:
    """Return the price of each kind with the least bound of what all together are worth, and that bound."""
    if not market.offers:
        return np.zeros(len(market.kinds)), 0.0
    worth, sizes = market.options
    # The last price is that of any slot: with a quota there may be fewer than of all kinds together.
    room = np.array([*market.rooms.values(), max(0, market.spare)], dtype=float)
    of_all = sum(market.rooms.values())
    price = np.full(len(room), _first_price(worth, float(of_all)))
    if market.spare >= of_all:
        price[-1] = 0.0
    jobs, kinds, corners = worth.shape
    worth_in_row, sizes_in_row = worth.reshape(jobs, -1), sizes.reshape(jobs, -1)
    rows = np.arange(jobs)
    best, bound = price, inf
    for step in range(_STEPS):
        of_kinds = np.repeat(price[:-1] + price[-1], corners)
        left_over = worth_in_row - of_kinds * sizes_in_row
        found = np.argmax(left_over, axis=1)
        total = float(left_over[rows, found].sum() + price @ room)
        if total < bound:
            best, bound = price, total
        slots = sizes_in_row[rows, found]
        requested = np.bincount(found // corners, weights=slots, minlength=kinds)
        excess = (np.append(requested, slots.sum()) - room) / np.maximum(room, 1.0)
        price = price * np.exp(np.clip(excess, -1.0, 1.0) / (1.0 + step / _SLOWER_AFTER))
    return np.round(best[:-1] + best[-1], 12), bound


def _first_price(worth: Floats, slots: float) -> float:
    """Return the price at which all possible gains would just pay for all slots."""
    most = worth.max(axis=(1, 2))
    floors = np.take_along_axis(worth[:, :, 0], np.argmax(worth[:, :, 0] > -inf, axis=1)[:, None], 1)[:, 0]
    return float(max((most - floors).sum() / max(slots, 1.0), 1e-12))


# --- kinds -----------------------------------------------------------------------------------------------------------


def _assigned(market: _Market, asks: _Asks, wished: Integers) -> Integers:
    """Return the kind of each job. Wished kinds come first, as far as they have room; then the job that would lose most
    if it could not have its best kind chooses first."""
    rooms, chosen = _Rooms(market, asks, wished), np.full(len(market.offers), NO_KIND)
    for job in np.lexsort((-_regrets(asks.worth), wished == NO_KIND)).tolist():
        chosen[job] = rooms.take(job, int(wished[job]))
    return chosen


class _Rooms:
    """Slots that are left of each kind, while one job after the other takes some."""

    def __init__(self, market: _Market, asks: _Asks, wished: Integers) -> None:
        self._market = market
        self._worth, self._slots = np.round(asks.worth, 12).tolist(), asks.slots.tolist()
        #: Slots that are left where each job gets what it asks for, and where each gets its floor alone.
        self._free, self._for_floors = Counter(market.rooms), Counter(market.rooms)
        # Unless they find room on one kind, they keep these. One on its way to a kind keeps nobody from its wish.
        self._keeping = set(np.flatnonzero((market.has == NO_KIND) & (wished == NO_KIND)).tolist())
        for job in self._keeping:
            self._subtract(market.offers[job].held)

    def take(self, job: int, wished: int) -> int:
        """Return the kind of the job, which takes as many slots of it as it asks for if there are so many, else its
        floor; `NO_KIND`: slots of several kinds, because none has room for its floor."""
        market, offer = self._market, self._market.offers[job]
        if job in self._keeping:
            self._free.update(offer.held)
            self._for_floors.update(offer.held)
        chosen = wished if self._has_room(job, wished) else self._best(job)
        if chosen == NO_KIND:
            self._subtract(_on_several(offer, self._for_floors))
            return NO_KIND
        kind, floor = market.kinds[chosen], offer.mixed.floor
        self._free[kind] -= min(self._slots[job][chosen], max(floor, self._free[kind]))
        self._for_floors[kind] -= floor
        return chosen

    def _subtract(self, counts: Mapping[str, int]) -> None:
        self._free.subtract(counts)
        self._for_floors.subtract(counts)

    def _has_room(self, job: int, place: int) -> bool:
        if place == NO_KIND or self._worth[job][place] == -inf:
            return False
        return self._for_floors[self._market.kinds[place]] >= self._market.offers[job].mixed.floor

    def _best(self, job: int) -> int:
        """Return the kind that is worth most to the job, first of those with as many slots as it asks for; of equal
        ones that of which most is left."""

        def order(place: int) -> tuple[bool, float, int, str]:
            kind = self._market.kinds[place]
            is_short = self._free[kind] < self._slots[job][place]
            return is_short, -self._worth[job][place], -self._free[kind], kind

        places = range(len(self._market.kinds))
        return min((place for place in places if self._has_room(job, place)), key=order, default=NO_KIND)


def _regrets(worth: Floats) -> Floats:
    """Return what each job loses if it cannot have the kind that is worth most to it."""
    if worth.shape[1] < 2:
        return np.full(len(worth), inf)
    best = np.sort(np.round(worth, 12), axis=1)[:, -2:]
    return np.where(best[:, 0] > -inf, best[:, 1] - best[:, 0], inf)


def _best(tried: Sequence[_Tried]) -> _Tried:
    """Return the first, or another one that is better by enough."""
    best = tried[0]
    for other in tried[1:]:
        if other.value > best.value + BETTER * abs(best.value):
            best = other
    return best


def _improved(market: _Market, best: _Tried) -> _Tried:
    """Return this division, or one with better kinds for some jobs."""
    tries = iter(range(_TRIES))
    while True:
        others = zip(tries, _exchanges(market, best), strict=False)
        found = (market.divided(other) for _, other in others)
        better = next((one for one in found if _best([best, one]) is one), None)
        if better is None:
            return best
        best = better


def _exchanges(market: _Market, tried: _Tried) -> Iterator[Integers]:
    """Yield the same with another kind for one job, first the one that should gain most at these prices."""
    left = market.room_beside_floors(tried.chosen)
    prices = np.append(tried.prices, 0.0)  # `NO_KIND` is the last place
    gains = market.asks(tried.prices).worth - (tried.worth - prices[tried.chosen] * tried.slots)[:, None]
    gains[np.array([left[kind] for kind in market.kinds]) < market.floors[:, None]] = -inf
    on_kind = tried.chosen != NO_KIND
    gains[on_kind, tried.chosen[on_kind]] = -inf
    jobs, kinds = np.nonzero(gains > BETTER)
    for most in np.argsort(-gains[jobs, kinds], kind="stable")[:_TRIED_EACH].tolist():
        other = tried.chosen.copy()
        other[jobs[most]] = kinds[most]
        yield other


def _as_it_is(market: _Market) -> _Tried | None:
    """Return the present slots and kinds of all jobs; None if one of them starts, or cannot keep its slots."""
    has, worth = [], []
    left = Counter(market.rooms)
    for offer in market.offers:
        bid, count = offer.bid(offer.only_kind), sum(offer.held.values())
        if bid.has is None or not bid.floor <= count <= bid.most:
            return None
        has.append(count)
        worth.append(bid.utility(count))
        left.subtract(offer.held)
    if any(count < 0 for count in left.values()) or sum(has) > market.spare:
        return None
    prices = market.divided(market.has).prices
    return _Tried(market.has, np.array(has, dtype=np.int64), np.array(worth), prices, sum(worth))
