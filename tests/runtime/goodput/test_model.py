"""Throughput parameters, noise and batches: formulas against a slow, separate reading of them, and fits."""

from dataclasses import replace
from math import inf, nan

import msgspec
import numpy as np
import pytest
from scipy.optimize import check_grad
from tidepool.goodput.curve import best, curve
from tidepool.goodput.fit import NAMES, Problem, fit, loss
from tidepool.goodput.model import Bounds, NoiseScale, Point, Size, ThroughputParameters, efficiency, gain

TRUE = ThroughputParameters(0.02, 0.001, 0.01, 0.001, 0.05, 0.002, 1.6)
NOISE = NoiseScale(variance=400.0, squared_gradient=1.0)
SIZES = [Size(1, 1), Size(1, 2), Size(1, 4), Size(2, 8), Size(4, 16), Size(8, 32)]


def measured(sizes: list[Size], batches: tuple[int, ...] = (8, 32, 128), noise: float = 0.0) -> list[Point]:
    """Return measures of a training with the true parameters, each off by a log-normal factor."""
    draw = np.random.default_rng(7)
    points = []
    for size in sizes:
        for batch in batches:
            compute = TRUE.compute_seconds(batch)
            step = TRUE.step_seconds(compute, TRUE.sum_seconds(size))
            off = np.exp(noise * draw.standard_normal(2))
            points.append(Point(*size, batch, float(compute * off[0]), float(step * off[1]), 50))
    return points


@pytest.mark.parametrize("overlap", [1.0, 1.6, 9.0])
def test_the_gradient_is_that_of_the_loss(overlap: float) -> None:
    problem = Problem.of(measured(SIZES, noise=0.3))
    vector = np.array([*np.log([0.03, 0.002, 0.02, 0.0005, 0.03, 0.001]), overlap])
    assert check_grad(lambda at: loss(at, problem)[0], lambda at: loss(at, problem)[1], vector) < 1e-5


def test_known_parameters_are_found_again() -> None:
    found = fit(measured(SIZES, noise=0.02))
    assert found.assumed == ()
    assert found.is_trusted
    for size in [*SIZES, Size(16, 64)]:
        for batch in (16, 64, 256):
            true, guessed = (
                one.step_seconds(one.compute_seconds(batch), one.sum_seconds(size)) for one in (TRUE, found.parameters)
            )
            assert guessed == pytest.approx(true, rel=0.12), (size, batch)


def test_a_warm_start_needs_few_evaluations() -> None:
    points = measured(SIZES, noise=0.02)
    first = fit(points)
    again = fit(points, start=first.parameters)
    assert again.error == pytest.approx(first.error, rel=0.05)
    assert again.evaluations <= first.evaluations


@pytest.mark.parametrize(
    ("points", "assumed"),
    [
        (measured([Size(1, 1)], (32,)), {*NAMES} - {"compute_per_sample"}),
        (measured([Size(1, 1), Size(1, 2)]), {"host_per_rank", "network_base", "network_per_rank"}),
        (measured([Size(1, 1), Size(2, 8)]), {"host_base", "host_per_rank"}),
    ],
)
def test_what_no_point_tells_is_assumed_and_optimistic(points: list[Point], assumed: set[str]) -> None:
    found = fit(points)
    assert set(found.assumed) == assumed
    assert found.error < 0.02
    parameters = found.parameters
    assert parameters.network_base >= min(1.0999 * parameters.host_base, TRUE.network_base)
    speeds = curve(parameters, Bounds(64), None, SIZES).goodput
    if parameters.host_base < 1e-6:
        assert speeds[2] > speeds[1] > speeds[0]


def test_one_micro_batch_leaves_half_of_its_time_to_the_base() -> None:
    (point,) = measured([Size(1, 1)], (32,))
    found = fit([point])
    assert found.parameters.compute_base == pytest.approx(point.compute_seconds / 2)
    assert found.parameters.compute_seconds(32) == pytest.approx(point.compute_seconds, rel=0.01)


# --- work beside the gradients ---


def with_work(points: list[Point], base: float, per_sample: float = 0.0) -> list[Point]:
    return [replace(one, step_seconds=one.step_seconds + base + per_sample * one.micro_batch) for one in points]


@pytest.mark.parametrize("part", [0.2, 0.7, 1.0, 5.0])
def test_one_gpu_with_work_beside_its_gradients_is_described(part: float) -> None:
    found = fit([Point(1, 1, 32, 0.1, 0.1 * (1 + part), 200)])
    assert found.is_trusted
    assert found.error < 0.1
    work = found.parameters.beside_seconds(32)
    assert work == (pytest.approx(0.1 * part) if part > 0.2 else pytest.approx(0.02))
    assert found.parameters.beside_base == pytest.approx(work / 2)


def test_work_of_a_step_and_of_its_samples_are_told_apart() -> None:
    found = fit(with_work(measured(SIZES, noise=0.01), base=0.04, per_sample=0.002)).parameters
    assert found.beside_base == pytest.approx(0.04, rel=0.15)
    assert found.beside_per_sample == pytest.approx(0.002, rel=0.1)
    for size in SIZES:
        for batch in (16, 64, 256):
            true = TRUE.whole_step_seconds(batch, TRUE.sum_seconds(size)) + 0.04 + 0.002 * batch
            assert found.whole_step_seconds(batch, found.sum_seconds(size)) == pytest.approx(true, rel=0.12)


def test_without_work_beside_the_gradients_parameters_are_as_ever() -> None:
    points = measured(SIZES, noise=0.02)
    found, few = fit(points), fit(with_work(points, 0.002))
    assert (found.parameters.beside_base, found.parameters.beside_per_sample) == (0.0, 0.0)
    assert few.parameters.beside_base == 0.0
    without = Problem.of(points)
    vector = np.array([*np.log([0.03, 0.002, 0.02, 0.0005, 0.03, 0.001]), 2.0])
    zero = replace(without, log_beside=np.full_like(without.log_beside, -1e9))
    assert loss(vector, without)[0] == loss(vector, zero)[0]


def test_points_on_several_gpus_alone_tell_of_no_work_beside() -> None:
    found = fit(with_work(measured([Size(1, 2), Size(1, 4)]), 0.5))
    assert found.parameters.beside_seconds(32) == 0.0
    assert found.is_trusted


@pytest.mark.parametrize("overlap", [1.0, 1.6, 9.0])
def test_the_gradient_is_that_of_the_loss_beside_work(overlap: float) -> None:
    problem = Problem.of(with_work(measured(SIZES, noise=0.3), 0.05, 0.001))
    assert problem.beside_base
    vector = np.array([*np.log([0.03, 0.002, 0.02, 0.0005, 0.03, 0.001]), overlap])
    assert check_grad(lambda at: loss(at, problem)[0], lambda at: loss(at, problem)[1], vector) < 1e-5


def test_each_further_micro_batch_has_its_work() -> None:
    slow = replace(TRUE, beside_base=0.1, beside_per_sample=0.001)
    own, plain = (one.whole_step_seconds(32, 0.02, 3) for one in (slow, TRUE))
    assert own - plain == pytest.approx(4 * 0.132)
    assert slow.whole_step_seconds(32, 0.02) == pytest.approx(TRUE.step_seconds(0.052, 0.02) + 0.132)


def test_nothing_measured_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="no measured step"):
        fit([])


def test_points_that_no_parameters_explain_are_not_trusted() -> None:
    wild = [Point(1, 1, batch, 10.0 ** (batch % 3), 10.0 ** (batch % 3), 50) for batch in range(1, 9)]
    assert not fit(wild).is_trusted


@pytest.mark.parametrize("value", [nan, inf, -1.0, 0.0, 1e300])
def test_numbers_that_nobody_measured_are_refused(value: float) -> None:
    point = measured([Size(1, 2)])[0]
    with pytest.raises(ValueError, match="compute_seconds"):
        replace(point, compute_seconds=value)
    with pytest.raises(ValueError, match="overlap"):
        replace(TRUE, overlap=value)
    if value != 0:
        with pytest.raises(ValueError, match="squared_gradient"):
            replace(NOISE, squared_gradient=value)


def test_bounds_that_exclude_their_own_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="max_batch_size"):
        Bounds(64, max_batch_size=32)
    with pytest.raises(ValueError, match="max_micro_batch"):
        Bounds(64, max_micro_batch=0)


@pytest.mark.parametrize("one", [TRUE, NOISE, Bounds(64, 512, 4, 64), measured([Size(2, 8)])[0]])
def test_shapes_survive_json(one: object) -> None:
    assert msgspec.json.decode(msgspec.json.encode(one), type=type(one)) == one
    assert msgspec.json.encode(one) == msgspec.json.encode(one)


def test_a_step_is_no_shorter_than_its_parts_and_no_longer_than_their_sum() -> None:
    for overlap in (1.0, 2.0, 10.0):
        seconds = replace(TRUE, overlap=overlap).step_seconds(0.03, 0.04)
        assert 0.04 <= seconds <= 0.07 + 1e-12
    assert replace(TRUE, overlap=1.0).step_seconds(0.03, 0.04) == pytest.approx(0.07)


def test_gain_grows_with_the_batch_and_efficiency_falls() -> None:
    batches = np.array([64.0, 128.0, 256.0, 4096.0])
    gains, efficiencies = np.asarray(gain(NOISE, 64, batches)), np.asarray(efficiency(NOISE, 64, batches))
    assert gains[0] == efficiencies[0] == 1.0
    assert np.all(np.diff(gains) > 0)
    assert np.all(np.diff(efficiencies) < 0)
    assert efficiencies[1] == pytest.approx((NOISE.samples + 64) / (NOISE.samples + 128))


def test_an_unchanged_batch_makes_goodput_steps_per_second() -> None:
    for size in SIZES:
        found = best(TRUE, Bounds(64), NOISE, size)
        seconds = TRUE.step_seconds(TRUE.compute_seconds(-(-64 // size.ranks)), TRUE.sum_seconds(size))
        assert found.goodput == pytest.approx(1 / seconds)
        assert found[1:] == (64, -(-64 // size.ranks), 0)


def test_the_best_batch_is_as_good_as_a_slow_search_finds() -> None:
    bounds = Bounds(64, max_batch_size=1024, min_micro_batch=4, max_micro_batch=32)
    for size in SIZES:
        found = best(TRUE, bounds, NOISE, size)
        slow = max(goodput_of(bounds, size, batch) for batch in range(max(64, 4 * size.ranks), 1025))
        assert found.goodput == pytest.approx(slow, rel=0.02), size
        assert found.micro_batch <= 32
        assert 64 <= found.batch <= 1024
        assert found.batch <= size.ranks * found.micro_batch * (found.accumulation + 1)


def goodput_of(bounds: Bounds, size: Size, batch: int) -> float:
    assert bounds.max_micro_batch is not None
    more = 0
    while -(-batch // (size.ranks * (more + 1))) > bounds.max_micro_batch:
        more += 1
    if size.ranks == 1 and batch > bounds.batch_size:
        more = max(more, 1)
    compute = TRUE.compute_seconds(-(-batch // (size.ranks * (more + 1))))
    seconds = more * compute + TRUE.step_seconds(compute, TRUE.sum_seconds(size))
    return float(gain(NOISE, bounds.batch_size, batch) / seconds)


def test_more_room_for_the_batch_is_never_worse() -> None:
    narrow, wide = (curve(TRUE, Bounds(64, most), NOISE, SIZES).goodput for most in (64, 2048))
    assert np.all(wide >= narrow * (1 - 1e-9))


def test_what_the_bounds_forbid_has_no_goodput() -> None:
    bounds = Bounds(64, max_batch_size=128, max_micro_batch=16, accumulation=False)
    found = curve(TRUE, bounds, NOISE, SIZES)
    assert found.goodput[0] == 0
    assert found.goodput[2] > 0
    assert found.at(2).accumulation == 0
