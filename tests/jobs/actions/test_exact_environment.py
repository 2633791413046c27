"""Tests of the requirements that pin the packages of an attempt."""

from jobs.actions.exact_environment import Locked, Packages, locked

CLUSTER = Packages("3.11.7", {"numpy": "2.1.0", "timm": "1.0.9", "torch": "2.13.0+cpu", "tidepool-runtime": "2"}, {})


def recorded(origins: dict[str, str] | None = None, python: str = "3.11.7", **versions: str) -> Packages:
    return Packages(python, {**CLUSTER.versions, **versions}, origins or {})


def lock(then: Packages, *required: str) -> Locked:
    return locked(then, required, CLUSTER)


def test_pins_all_packages_but_the_runtime() -> None:
    assert lock(recorded()) == Locked(["numpy==2.1.0", "timm==1.0.9", "torch==2.13.0+cpu"], [], [])


def test_a_layer_keeps_own_projects_and_indexes_but_no_range() -> None:
    found = lock(recorded(timm="1.0.3"), "timm>=1", "-e .", "--index-url https://i.example/simple")
    assert found.lines[:2] == ["-e .", "--index-url https://i.example/simple"]
    assert "timm==1.0.3" in found.lines
    assert "timm>=1" not in found.lines


def test_another_python_is_asked_for_to_the_patch() -> None:
    assert "--python ==3.12.4" in lock(recorded(python="3.12.4")).lines


def test_a_whole_environment_takes_builds_of_torch_from_its_index() -> None:
    found = lock(recorded(numpy="1.26.4"))
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in found.lines
    assert found.missing == []
    assert not [line for line in lock(recorded()).lines if line.startswith("--extra")]


def test_hashes_stay_with_the_version_that_they_belong_to() -> None:
    line = f"timm==1.0.9 --hash=sha256:{'0' * 64}"
    assert line in lock(recorded(), line).lines
    assert "timm==1.0.3" in lock(recorded(timm="1.0.3"), line).lines


def test_a_package_of_a_repository_comes_from_its_commit() -> None:
    found = lock(recorded({"mine": "git+https://h/r@abc"}, mine="1"))
    assert "mine @ git+https://h/r@abc" in found.lines
    assert found.missing == []


def test_an_address_that_the_cluster_has_now_is_not_fetched_again() -> None:
    cluster = Packages("3.11.7", {"mine": "1"}, {"mine": "file:///srv/mine"})
    assert locked(cluster, (), cluster) == Locked(["mine==1"], [], [])


def test_what_cannot_be_had_any_more_is_named() -> None:
    origins = {"mine": "file:///srv/mine"}
    found = lock(recorded(origins, mine="1", lost="unknown", local="1.0+ours"))
    assert found.missing == [
        "local 1.0+ours was on the hosts only: indexes have no local versions (after the +).",
        "lost has no version that an index could have: its metadata says 'unknown'.",
        "mine 1 came from file:///srv/mine, which hosts cannot fetch.",
    ]


def test_what_only_the_cluster_has_is_missing_from_a_whole_environment() -> None:
    versions = {"local": "1.0+ours", "numpy": "2.1.0"}
    cluster = Packages("3.11.7", versions, {})
    assert locked(cluster, (), cluster).missing == []
    [sentence] = locked(Packages("3.11.7", {**versions, "numpy": "1.26.4"}, {}), (), cluster).missing
    assert sentence.startswith("local 1.0+ours")


def test_an_index_of_the_training_may_have_local_versions() -> None:
    assert lock(recorded(local="1.0+ours"), "--extra-index-url https://i.example/simple").missing == []


def test_an_image_stays_and_nothing_is_installed_into_it() -> None:
    line = f"--image docker.io/pytorch/pytorch@sha256:{'0' * 64}"
    assert lock(recorded(numpy="1.26.4", python="3.12.1"), line) == Locked([line], [], [])


def test_a_folder_of_the_hosts_stays_and_may_hold_other_versions() -> None:
    told = lock(recorded(numpy="1.26.4", python="3.12.1"), "--folder /opt/envs/vision")
    assert (told.lines, told.missing) == (["--folder /opt/envs/vision"], [])
    assert told.notes == ["It runs with what /opt/envs/vision holds now, which may be other versions than then."]


def test_what_conda_installs_is_solved_anew() -> None:
    lines = ["--conda numpy=1.26", "tqdm"]
    told = lock(recorded(numpy="1.26.4"), *lines)
    assert (told.lines, told.missing) == (lines, [])
    assert told.notes == ["conda solves its lines anew, and may choose other versions than then."]


def test_differences_that_no_requirement_undoes_are_told() -> None:
    cluster = Packages("3.11.7", {**CLUSTER.versions, "tidepool-runtime": "3", "more": "1"}, {})
    assert locked(recorded(), (), cluster).notes == [
        "tidepool-runtime 3 runs it, 2 did then.",
        "The cluster has more packages than then: more 1.",
    ]
