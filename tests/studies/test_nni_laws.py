"""Values of trials have the laws that NNI states for its types."""

import math
from collections import Counter
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidepool.client.errors import InvalidRequest
from tidepool.client.nni_space import TYPES, space_of_nni

from core.errors import UserError
from studies.optuna_study import _optuna_distribution, _value
from studies.samplers import Search, propose
from studies.space import Distribution, Uniform, parse_space

#: Type and values -> the number for a uniformly distributed quantile, as NNI makes it of its generator's.
LAWS = {
    "uniform": ([0.7, 1.5], lambda u: 0.7 + 0.8 * u),
    "quniform": ([2, 10, 5], lambda u: min(max(round((2 + 8 * u) / 5) * 5, 2), 10)),
    "loguniform": ([1e-4, 1e-1], lambda u: 1e-4 * 1e3**u),
    "qloguniform": ([1, 100, 7], lambda u: min(max(round(100**u / 7) * 7, 1), 100)),
    "normal": ([3, 2], lambda u: NormalDist(3, 2).inv_cdf(u)),
    "qnormal": ([3, 2, 1.5], lambda u: round(NormalDist(3, 2).inv_cdf(u) / 1.5) * 1.5),
    "lognormal": ([0.5, 0.25], lambda u: math.exp(NormalDist(0.5, 0.25).inv_cdf(u))),
    "qlognormal": ([0, 1, 1], lambda u: round(math.exp(NormalDist(0, 1).inv_cdf(u)))),
}
COUNT = 4000


def quantile_values(kind: str, values: list[float]) -> list[float]:
    """Return the values for evenly distributed numbers of Optuna's."""
    distribution = parse_space(space_of_nni({"x": {"_type": kind, "_value": values}}))["x"]
    drawn = _optuna_distribution(distribution)
    low, high = drawn.low, drawn.high
    is_log = isinstance(distribution, Uniform) and distribution.log
    found = []
    for index in range(COUNT):
        part = (index + 0.5) / COUNT
        found.append(_value(distribution, low * (high / low) ** part if is_log else low + (high - low) * part))
    return found


@pytest.mark.parametrize("kind", LAWS)
def test_each_type_has_its_law(kind: str) -> None:
    values, law = LAWS[kind]
    expected = [law((index + 0.5) / COUNT) for index in range(COUNT)]
    found = quantile_values(kind, values)
    if kind.startswith("q"):
        # Four deviations are cut off: 6 values of 100,000.
        shares = Counter(expected), Counter(found)
        for value in shares[0].keys() | shares[1].keys():
            assert abs(shares[0][value] - shares[1][value]) <= 2, value
    else:
        # The outermost values differ most: beyond four deviations, nothing is drawn.
        assert found[4:-4] == pytest.approx(expected[4:-4], rel=1e-2, abs=2e-2)


def test_randint_excludes_its_upper_bound() -> None:
    space = parse_space(space_of_nni({"x": {"_type": "randint", "_value": [20, 23]}}))
    drawn = Counter(propose(Search(space, "random", "minimize", seed=2), [], n).values["x"] for n in range(60))
    assert set(drawn) == {20, 21, 22}
    assert all(type(value) is int for value in drawn)


def test_choice_keeps_types() -> None:
    given_values = [1, 0.5, "relu", True]
    space = parse_space(space_of_nni({"x": {"_type": "choice", "_value": [2, *given_values[1:]]}}))
    drawn = {propose(Search(space, "random", "minimize", seed=2), [], n).values["x"] for n in range(60)}
    assert drawn == {2, 0.5, "relu", True}


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize("kind", LAWS)
def test_samplers_propose_values_of_the_space(kind: str, sampler: str) -> None:
    space = parse_space(space_of_nni({"x": {"_type": kind, "_value": LAWS[kind][0]}}))
    for number in range(12):
        assert space["x"].contains(propose(Search(space, sampler, "minimize", seed=5), [], number).values["x"])


def converted(kind: str, values: list[float]) -> tuple[Distribution | None, str]:
    """Return the distribution, or None and the sentence why there is none."""
    try:
        return parse_space(space_of_nni({"x": {"_type": kind, "_value": values}}))["x"], ""
    except (InvalidRequest, UserError) as error:
        return None, str(error)


@given(st.sampled_from([*TYPES]), st.lists(st.floats(-1e3, 1e3) | st.integers(-50, 50), min_size=2, max_size=3))
def test_any_values_are_refused_with_a_sentence_or_converted(kind: str, values: list[float]) -> None:
    distribution, refusal = converted(kind, values)
    assert distribution is not None or "`x`" in refusal
    if not hasattr(distribution, "low"):
        return
    low, high = distribution.low, distribution.high
    assert low <= high
    for part in (0.0, 0.3, 0.5, 1.0):
        assert distribution.contains(distribution.nearest(low + part * (high - low)))


@pytest.mark.parametrize(
    ("given_space", "sentence"),
    [
        ({}, "The search space has no parameter"),
        ({"x": 5}, "`x` of the search space: it needs `_type` and `_value`"),
        ({"x": {"_type": "mutable_layer", "_value": []}}, "its `_type` is 'mutable_layer': use one of choice, randint"),
        ({"x": {"_type": "choice", "_value": [{"_name": "a"}, {"_name": "b"}]}}, "a nested choice"),
        ({"x": {"_type": "choice", "_value": [[1], [2]]}}, "its values must be texts, numbers, true or false"),
        ({"x": {"_type": "randint", "_value": [3, 3]}}, "there is no whole number from 3 to below 3"),
        ({"x": {"_type": "uniform", "_value": [0]}}, "its `_value` must be [low, high]"),
        ({"x": {"_type": "quniform", "_value": [0, 1]}}, "its `_value` must be [low, high, q]"),
        ({"x": {"_type": "normal", "_value": [0, "wide"]}}, "`sigma` is 'wide', and must be a number"),
    ],
)
def test_refusals_name_the_parameter(given_space: object, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        space_of_nni(given_space)
    assert sentence in str(caught.value)


def test_numbers_that_yaml_reads_as_texts() -> None:
    """YAML 1.1 takes 1e-4, without a point, for a text."""
    assert space_of_nni({"lr": {"_type": "loguniform", "_value": ["1e-4", 0.1]}}) == {
        "lr": {"kind": "log_uniform", "low": 1e-4, "high": 0.1}
    }
    assert space_of_nni({"x": {"_type": "uniform", "_value": [2, 2]}, "y": {"_type": "randint", "_value": [4, 5]}}) == {
        "x": 2,
        "y": 4,
    }
