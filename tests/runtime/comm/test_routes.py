"""The plan of a hand-over: who sends what to whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidepool.torch.comm.routes import MOST_ROUTES, PIECE_BYTES, Piece, fingerprint, routes_of, shares


@given(st.integers(1, 12), st.integers(1, 12))
def test_each_route_begins_at_a_holder_and_passes_every_joiner_once(holders: int, joiners: int) -> None:
    ranks = [*range(holders)], [*range(holders, holders + joiners)]
    routes = routes_of(*ranks)

    assert len(routes) == min(holders, MOST_ROUTES)
    assert [route.holder for route in routes] == ranks[0][:MOST_ROUTES]
    for route in routes:
        assert sorted(route.joiners) == ranks[1]
        walked = [route.holder]
        while (following := route.after(walked[-1])) is not None:
            walked.append(following)
        assert walked == [route.holder, *route.joiners]


def test_without_joiners_there_is_no_route() -> None:
    assert routes_of([0, 1], []) == []


@pytest.mark.parametrize(("holders", "joiners"), [(1, 3), (4, 4), (4, 1), (2, 5)])
def test_no_rank_sends_more_than_one_state(holders: int, joiners: int) -> None:
    routes = routes_of([*range(holders)], [*range(holders, holders + joiners)])
    sent = [sum(1 for route in routes if route.after(rank) is not None) for rank in range(holders, holders + joiners)]

    assert max([1, *sent]) / len(routes) <= 1


@given(
    st.lists(st.tuples(st.integers(0, 4 * PIECE_BYTES), st.booleans()), max_size=12),
    st.integers(1, MOST_ROUTES),
)
def test_every_byte_takes_one_route(tensors: list[tuple[int, bool]], routes: int) -> None:
    sizes, shared = [size for size, _ in tensors], [alike for _, alike in tensors]
    found = shares(sizes, shared, routes)

    pieces = sorted((piece for share in found for piece in share), key=lambda piece: (piece.tensor, piece.start))
    ends = dict.fromkeys(range(len(sizes)), 0)
    for piece in pieces:
        assert piece.start == ends[piece.tensor] < piece.end <= piece.start + PIECE_BYTES
        ends[piece.tensor] = piece.end
    assert [*ends.values()] == sizes
    assert all(shared[piece.tensor] for share in found[1:] for piece in share)
    bytes_shared = [sum(piece.end - piece.start for piece in share if shared[piece.tensor]) for share in found]
    assert max(bytes_shared) - min(bytes_shared) <= 2 * PIECE_BYTES


def test_a_small_state_goes_by_whole_tensors() -> None:
    assert shares([8, 4, 0, 4], [True, False, True, True], 2) == [[Piece(0, 0, 8), Piece(1, 0, 4)], [Piece(3, 0, 4)]]


def test_holders_with_other_tensors_have_another_fingerprint() -> None:
    structure = {"dict": [["a", {"tensor": 0}], ["b", {"list": [{"tensor": 1}, 7]}]]}
    turned = {"dict": [["b", {"list": [{"tensor": 0}, 7]}], ["a", {"tensor": 1}]]}
    specs = [["float32", [2]], ["float32", [2]]]
    own = fingerprint(structure, specs, [True, True])

    assert own != fingerprint(turned, specs, [True, True]), "the same types and shapes in another order"
    assert own != fingerprint(structure, [["float32", [2]], ["float64", [2]]], [True, True])
    assert own == fingerprint(structure, [["float32", [2]], ["float32", [2]]], [True, True])
