"""Speeds on kinds of GPU on which a training was not measured: remembered ratios, and where they come from."""

from dataclasses import replace
from statistics import median

import pytest
from tidepool.goodput.model import Bounds, ThroughputParameters

from scheduling.policies.kind_ratios import MeasuredRatio, Ratios, medians, ratios_of
from scheduling.policies.speedups import Shape, batch_of, bounds_on, goodput_at_one, scalings_of
from scheduling.schedule import schedule
from scheduling.snapshot import JobView, KindRatio, ProfileView, Snapshot
from tests.scheduling.cluster import group, hold, job, lines, of_kinds, running, text_for

SHAPES = (Shape((4,), "T4"), Shape((4,), "RTX"), Shape((4,), "A100"))
#: Seconds of a micro-batch on one GPU.
SECONDS = {"T4": 0.4, "RTX": 0.2, "A100": 0.1}


def training(*kinds: str, number: int = 1, code: str = "mine") -> JobView:
    """A training that was measured on these kinds; sums take no time."""
    parameters = {kind: ThroughputParameters(SECONDS[kind], 0.0, 0.0, 0.0, 0.0, 0.0, 1.0) for kind in kinds}
    known = ProfileView(Bounds(64), parameters, largest_ranks=4, remaining_steps=100.0) if kinds else None
    return replace(job(number, most=4, profile=known), code=code)


def speeds(view: JobView, *known: KindRatio) -> dict[str, float]:
    return {kind: one.speedup(1) for kind, one in scalings_of(view, SHAPES, {}, Ratios(known)).items()}


def sources(view: JobView, *known: KindRatio) -> dict[str, tuple[str, int]]:
    found = scalings_of(view, SHAPES, {}, Ratios(known))
    return {kind: (one.speed.source, one.speed.trainings) for kind, one in found.items()}


def test_medians_are_over_all_trainings_and_over_those_of_a_code() -> None:
    rows = [
        MeasuredRatio(number, code, "T4", "A100", ratio)
        for number, (code, ratio) in enumerate([("mine", 0.2), ("mine", 0.4), ("other", 0.5), ("other", 0.9)])
    ]
    found = {(one.code, one.kind, one.base): (one.ratio, one.trainings) for one in medians(rows, {"mine"})}
    assert found == {
        ("", "T4", "A100"): (median([0.2, 0.4, 0.5, 0.9]), 4),
        ("mine", "T4", "A100"): (pytest.approx(0.3), 2),
    }


def test_a_training_on_several_kinds_yields_a_ratio_for_each_pair() -> None:
    view = training("T4", "RTX", "A100")
    found = {(one.kind, one.base): one.ratio for one in ratios_of(1, "mine", goodput_at_one(view.profile))}
    assert found == {
        ("RTX", "A100"): pytest.approx(0.5), ("T4", "A100"): pytest.approx(0.25), ("T4", "RTX"): pytest.approx(0.5)
    }  # fmt: skip


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1e-9, 1e9, float("nan"), float("inf")])
def test_an_implausible_speed_yields_no_ratio(wrong: float) -> None:
    assert list(ratios_of(1, "mine", {"A100": wrong, "T4": 1.0})) == []


def test_the_own_measurements_come_before_all_others() -> None:
    view = training("T4", "A100")
    assert speeds(view)["A100"] == pytest.approx(4.0)
    assert sources(view)["A100"] == ("measured", 0)


def test_trainings_of_the_same_code_come_before_others() -> None:
    view = training("T4")
    others, same = KindRatio("A100", "T4", 8.0, 9), KindRatio("A100", "T4", 3.0, 2, "mine")
    assert (speeds(view, others, same)["A100"], sources(view, others, same)["A100"]) == (3.0, ("code", 2))
    assert (speeds(view, others)["A100"], sources(view, others)["A100"]) == (8.0, ("others", 9))


def test_a_ratio_holds_in_both_directions() -> None:
    assert speeds(training("T4"), KindRatio("T4", "A100", 0.25, 1))["A100"] == pytest.approx(4.0)


def test_a_third_kind_joins_two_ratios() -> None:
    known = KindRatio("RTX", "T4", 2.0, 5), KindRatio("RTX", "A100", 0.5, 3)
    assert (speeds(training("T4"), *known)["A100"], sources(training("T4"), *known)["A100"]) == (4.0, ("third", 3))
    estimate = Ratios(known).estimate("mine", "A100", "T4")
    assert (estimate.base, estimate.by_way_of) == ("T4", "RTX")


def test_where_nothing_is_known_a_kind_counts_as_equally_fast() -> None:
    assert speeds(training("T4"))["A100"] == 1.0
    assert sources(training("T4"))["A100"] == ("unknown", 0)


def test_a_training_that_was_measured_on_no_first_kind_is_compared_with_it_all_the_same() -> None:
    """It was measured on RTX and on an A100, twice as fast, and never on a T4, the first kind."""
    view = training("RTX", "A100")
    found = speeds(view, KindRatio("RTX", "T4", 2.0, 4))
    assert found == {"T4": 1.0, "RTX": pytest.approx(2.0), "A100": pytest.approx(4.0)}
    # Nothing remembered: both still differ by what it measured itself.
    unknown = speeds(view)
    assert unknown["A100"] / unknown["RTX"] == pytest.approx(2.0)


def test_the_base_of_an_estimate_is_the_kind_of_which_most_is_known() -> None:
    view = training("T4", "RTX")
    found = scalings_of(
        view, SHAPES, {}, Ratios([KindRatio("A100", "T4", 9.0, 50), KindRatio("A100", "RTX", 2.5, 1, "mine")])
    )
    assert found["A100"].speed.base == "RTX"
    assert found["A100"].speedup(1) == pytest.approx(2 * 2.5)


def test_a_training_without_any_measurement_is_offered_kinds_by_those_of_its_code() -> None:
    known = KindRatio("A100", "T4", 4.0, 2, "mine")
    assert speeds(training(), known) == {"T4": 1.0, "RTX": 1.0, "A100": 4.0}


def test_changed_code_is_estimated_by_other_trainings() -> None:
    known = KindRatio("A100", "T4", 4.0, 2, "mine"), KindRatio("A100", "T4", 2.0, 7)
    assert sources(training("T4", code="changed"), *known)["A100"] == ("others", 7)


def test_a_kind_that_vanished_still_tells_of_the_others() -> None:
    """A training that was measured on T4 alone trains on A100, in a pool that has no T4 any more."""
    known = KindRatio("A100", "T4", 4.0, 2, "mine")
    [scaling] = scalings_of(training("T4"), SHAPES[2:], {}, Ratios([known])).values()
    assert scaling.speedup(1) == 1.0
    assert scaling.remaining_seconds == pytest.approx(100 * SECONDS["T4"] / 4.0)


def test_thirty_kinds_are_joined_by_way_of_one() -> None:
    kinds = [f"G{number:02}" for number in range(30)]
    known = [KindRatio(kind, "G00", float(number), 3) for number, kind in enumerate(kinds) if number]
    shapes = [Shape((4,), kind) for kind in kinds]
    view = replace(training("T4"), profile=ProfileView(Bounds(64), {"G07": training("T4").profile.parameters["T4"]}))  # type: ignore[union-attr]
    found = scalings_of(view, shapes, {}, Ratios(known))
    assert found["G14"].speedup(1) / found["G07"].speedup(1) == pytest.approx(2.0)
    assert {one.speed.source for kind, one in found.items() if kind not in ("G07", "G00")} == {"third"}


def test_the_largest_micro_batch_is_that_of_the_kind() -> None:
    view = training("T4", "A100")
    assert view.profile is not None
    profile = replace(view.profile, bounds=Bounds(64, max_micro_batch=64), micro_batches={"T4": 16, "A100": 64})
    assert [bounds_on(profile, kind).max_micro_batch for kind in ("T4", "A100", "RTX")] == [16, 64, 64]
    view = replace(view, profile=profile)
    plans = {kind: batch_of(view, Shape((4,), kind), 1) for kind in ("T4", "A100")}
    assert {kind: plan and (plan.micro_batch, plan.accumulation) for kind, plan in plans.items()} == {
        "T4": (16, 3), "A100": (64, 0)
    }  # fmt: skip


def test_the_predicted_goodput_of_an_unmeasured_kind_is_the_estimate() -> None:
    ratios = Ratios([KindRatio("A100", "T4", 3.0, 2)])
    on_t4, on_a100 = (batch_of(training("T4"), Shape((4,), kind), 2, ratios) for kind in ("T4", "A100"))
    assert on_t4 is not None
    assert on_a100 is not None
    assert on_a100.goodput == pytest.approx(3 * on_t4.goodput)


def test_the_sentence_says_where_the_speed_comes_from() -> None:
    there = hold(of_kinds((4, "T4"), (4, "A100")), {"h1:0-3": 1})
    view = running(training("T4"))
    for known, words in (
        (
            (KindRatio("A100", "T4", 3.0, 2, "mine"),),
            "200 % faster than on as many T4 (median of 2 trainings of this code)",
        ),
        ((KindRatio("A100", "T4", 2.0, 1),), "100 % faster than on as many T4 (median of 1 training of other code)"),
        (
            (KindRatio("RTX", "T4", 2.0, 6), KindRatio("A100", "RTX", 2.0, 5)),
            "300 % faster than on as many T4 (estimated by way of RTX, from 5 trainings)",
        ),
    ):
        terms = group("goodput", aim="even")
        line = lines(schedule(Snapshot(at=0.0, groups=(terms,), slots=there, jobs=(view,), ratios=known)))[1]
        assert words in text_for(line)
        faster = scalings_of(view, (Shape((4,), "T4"), Shape((4,), "A100")), {"T4": 4}, Ratios(known))
        percent = round((faster["A100"].speedup(4) / faster["T4"].speedup(4) - 1) * 100)
        assert line.reason.params["kind_faster"] == percent
