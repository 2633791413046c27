"""Constants that the scripts of the pages share with the server. Each page carries them, see `templates/base.html`."""

from functools import cache
from typing import Any

from django.http import HttpRequest
from tidepool.units import SIZE_UNITS

from core.charts import SEVERAL
from core.hub import CALM
from core.live import merge_depths
from core.time import MONTHS, TIME_UNITS
from insights.differences import MOST_JOBS
from insights.job_numbers import MIN_CHOSEN
from jobs.queries.metrics import MAX_POINTS
from jobs.states import TERMINAL
from jobs.topics import JOB_PREFIX
from webapp.consumers import MAX_TOPICS, NOT_ALLOWED, NOT_LOGGED_IN
from workers.topics import CLUSTER

__all__ = ["in_templates", "script_constants"]


@cache
def script_constants() -> dict[str, Any]:
    """Return the constants by the names that `static/js/constants.js` gives them."""
    return {
        "sizeUnits": SIZE_UNITS,
        "timeUnits": TIME_UNITS,
        "months": MONTHS,
        "finalStates": sorted(TERMINAL),
        "clusterTopic": CLUSTER,
        "jobTopicPrefix": JOB_PREFIX,
        "mergeDepths": merge_depths(),
        "calmFields": sorted(CALM),
        "maxTopics": MAX_TOPICS,
        "finalCloseCodes": [NOT_LOGGED_IN, NOT_ALLOWED],
        "loggedOutCloseCode": NOT_LOGGED_IN,
        "maxPoints": MAX_POINTS,
        "comparedLeast": MIN_CHOSEN,
        "comparedMost": MOST_JOBS,
        "severalColour": SEVERAL.colour,
    }


def in_templates(request: HttpRequest) -> dict[str, Any]:
    """Context processor: gives templates `script_constants`."""
    return {"script_constants": script_constants}
