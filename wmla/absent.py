"""Addresses of WMLA's features that Tidepool does not have: each answers what there is instead."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from django.urls import URLPattern, re_path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from core.errors import NotFound
from wmla.registered_models import WeightUpload
from wmla.view import WmlaView

__all__ = ["Certificates", "DatasetContents", "FileWithoutOwner", "takes_nothing", "urls"]


class _Absent(WmlaView):
    sentence = ""

    def get(self, request: Request, **parts: Any) -> NoReturn:
        raise NotFound(self.sentence)

    post = put = delete = get


@extend_schema(exclude=True)
class Serving(_Absent):
    sentence = (
        "Trained models are not served here: download one with GET /models/<model>/trainings/<training>/weightfile, or "
        "measure it with POST /models/<model>/validations."
    )


@extend_schema(exclude=True)
class Hypersearch(_Absent):
    sentence = (
        "There is no search for hyperparameters here: start a training for each choice with POST /execs or POST "
        "/models/<model>/trainings, and compare them on the page Jobs."
    )


@extend_schema(exclude=True)
class DatasetContents(_Absent):
    sentence = (
        "Rows and pictures of a dataset are not listed here: its page shows examples, and GET "
        "/api/v1/datasets/<name>/versions/<number>/ tells what was found in its files."
    )


@extend_schema(exclude=True)
class FileWithoutOwner(_Absent):
    sentence = (
        "A file is found by the model or template that it belongs to: ask for GET /models/<model>/files/<file> or GET "
        "/modeltemplates/<template>/files/<file>."
    )


@extend_schema(exclude=True)
class Certificates(_Absent):
    sentence = (
        "Instance groups have no certificates, because their traffic is not encrypted: keep the hosts in a network of "
        "their own, and let people come by the site's TLS."
    )


#: Name -> the address below the base of deep learning, and what answers. WMLA takes files with POST there.
_REFUSED: dict[str, tuple[str, type[APIView]]] = {
    "inferences": (r"inferences(?:/.*)?", Serving),
    "edimodels": (r"edimodels(?:/.*)?", Serving),
    "hypersearch": (r"hypersearch(?:/.*)?", Hypersearch),
    "model-hypersearch": (r"models/(?P<model>[^/]+)/hypersearch(?:/.*)?", Hypersearch),
    "weight-upload": (r"models/(?P<model>weightfile)/?", WeightUpload),
}

urls: list[URLPattern] = [
    re_path(rf"^{address}$", view.as_view(), name=name) for name, (address, view) in _REFUSED.items()
]


def takes_nothing(address: str) -> bool:
    """Return whether a POST there, below the base of deep learning, is refused whatever is sent."""
    return any(re.fullmatch(refused, address) for refused, _ in _REFUSED.values())
