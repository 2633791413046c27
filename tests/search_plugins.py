"""Search algorithms as users of WMLA write them, and the archives in which they install them."""

import io
import tarfile
from collections.abc import Mapping

__all__ = ["GRID", "RANDOM", "packed"]

#: Draws at random with numpy's global generator, whose state only `get_state` carries on.
RANDOM = """
import numpy as np

from plugins.core.base_plugin_opt import BasePluginOptimizer
from plugins.core.logger import logger


class PluginOptimizer(BasePluginOptimizer):
    def __init__(self, name, hyper_parameters, **kwargs):
        super(PluginOptimizer, self).__init__(name, hyper_parameters, **kwargs)
        self.wanted = hyper_parameters
        if kwargs.get("random_seed"):
            np.random.seed(int(kwargs["random_seed"]))

    def search(self, number_samples, last_exp_results):
        logger.info("told %s", [(one["id"], one["metricVal"]) for one in last_exp_results or []])
        return [{each["name"]: self.drawn(each) for each in self.wanted} for _ in range(number_samples)]

    def drawn(self, each):
        if each["type"] == "Discrete":
            values = each["discreteIntVal"] if each["dataType"] == "INT" else each["discreateStrVal"]
            return values[np.random.randint(len(values))]
        assert (each["type"], each["dataType"]) == ("Range", "DOUBLE")
        return np.random.uniform(each["minDbVal"], each["maxDbVal"])

    def get_state(self):
        return {"generator": np.random.get_state()}

    def set_state(self, state):
        np.random.set_state(state["generator"])
"""
#: Goes through all combinations of lists, and remembers its place in an attribute only.
GRID = """
from itertools import product

from plugins.core.base_plugin_opt import BasePluginOptimizer

from lists import values_of


class PluginOptimizer(BasePluginOptimizer):
    def __init__(self, name, hyper_parameters, **kwargs):
        super().__init__(name, hyper_parameters, **kwargs)
        names = [each["name"] for each in hyper_parameters]
        self.points = [dict(zip(names, point)) for point in product(*map(values_of, hyper_parameters))]
        self.place = 0

    def search(self, number_samples, last_exp_results=None):
        begin, self.place = self.place, self.place + number_samples
        return self.points[begin : self.place]
"""
#: A module beside the one above.
LISTS = """
def values_of(each):
    return each["discreateStrVal"] or each["discreteIntVal"] or each["discreteDbVal"]
"""


def packed(optimizer: str | Mapping[str, str], *, mode: str = "w:gz") -> bytes:
    """Return a tar with the plug-in at its top; a text is the content of `optimizer.py`."""
    files = {"optimizer.py": optimizer, "lists.py": LISTS} if isinstance(optimizer, str) else optimizer
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return stream.getvalue()
