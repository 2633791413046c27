"""URLs of WMLA's features that Tidepool does not have. Each response names the alternative."""

from typing import Any, NoReturn

from django.urls import URLPattern
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from core.errors import NotFound
from wmla.base_view import WmlaView, route
from wmla.registered_models import WeightUpload

__all__ = ["certificates", "others", "refuses_uploads", "uploads"]

_SERVING = (
    "Trained models are not served here: download one with GET /models/<model>/trainings/<training>/weightfile, or "
    "measure it with POST /models/<model>/validations."
)
_CONTENTS = (
    "Rows and images of a dataset are not listed here: its page shows examples, and GET "
    "/api/v1/datasets/<name>/versions/<number>/ describes its files."
)
_FILES = (
    "Files belong to a model or template: use GET /models/<model>/files/<file> or GET "
    "/modeltemplates/<template>/files/<file>."
)
_CERTIFICATES = (
    "Instance groups have no certificates, because their traffic is not encrypted: keep the hosts in a separate "
    "network, and give users access through the site's TLS."
)


@extend_schema(exclude=True)
class Unsupported(WmlaView):
    sentence = ""

    def get(self, request: Request, **parts: Any) -> NoReturn:
        raise NotFound(self.sentence)

    post = put = delete = get


#: URLs to which WMLA accepts uploads with POST.
uploads: list[URLPattern] = [
    route("inferences(?:/.*)?", Unsupported, "inferences", sentence=_SERVING),
    route("edimodels(?:/.*)?", Unsupported, "edimodels", sentence=_SERVING),
    route("models/(?P<model>weightfile)", WeightUpload, "weight-upload"),
]
#: These come last, because a model or template may be called "files".
others: list[URLPattern] = [
    route("datasets/<dataset>/csvs", Unsupported, "dataset-csvs", sentence=_CONTENTS),
    route("datasets/<dataset>/objectimages", Unsupported, "dataset-pictures", sentence=_CONTENTS),
    route("models/files/<path:file>", Unsupported, "some-model-file", sentence=_FILES),
    route("modeltemplates/files/<path:file>", Unsupported, "some-template-file", sentence=_FILES),
]
certificates: list[URLPattern] = [
    route("instances/<sig_id>/sslconf/<tier>", Unsupported, "certificates", sentence=_CERTIFICATES)
]


def refuses_uploads(address: str) -> bool:
    """Return whether every POST to this path, relative to the deep learning base URL, is refused."""
    return any(upload.pattern.match(address) for upload in uploads)
