"""A resize shows in the results of some trainings: each of them says so once."""

import pytest

from jobs.states import Reason
from models_registry.models import RegisteredModelVersion
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.jobs.control.test_life import running, sizes

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("layers", "exactness", "times"), [(["Dropout"], "sum", 1), ([], "sum", 0), (["Dropout"], "bitwise", 0)]
)
def test_the_first_resize_says_once_that_the_size_shows(
    cluster: Cluster, submit: Submit, layers: list[str], exactness: str, times: int
) -> None:
    first = running(cluster, submit(name="T1", exactness=exactness))
    RegisteredModelVersion.objects.filter(pk=first.model_id).update(script={"layers": layers})
    for step, other in enumerate(("T2", "T3"), start=2):
        submit(name=other)
        cluster.turn()
        cluster.train(first, step=step)
    assert len(set(sizes(first))) > 2
    said = first.events.filter(reason=Reason.SIZE_SHOWS)
    assert [event.detail["layers"] for event in said] == [["Dropout"]] * times
