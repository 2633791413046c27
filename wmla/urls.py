"""WMLA's URLs, under the base paths of its clients. Each noun has its own list."""

from django.urls import URLPattern, URLResolver, include, path, re_path

from wmla import auth as logon
from wmla import (
    conductor,
    datasets,
    ego,
    execs,
    hypersearch,
    hypersearch_algorithms,
    model_searches,
    registered_models,
    scheduler,
    service_info,
    templates,
    trainings,
    unsupported,
)
from wmla.base_view import UnknownAddress

__all__ = ["urlpatterns"]

deeplearning: list[URLPattern] = [
    *service_info.urls,
    *execs.urls,
    *scheduler.urls,
    *unsupported.uploads,
    *hypersearch_algorithms.urls,
    *hypersearch.urls,
    *datasets.urls,
    *templates.urls,
    *model_searches.urls,
    *registered_models.urls,
    *trainings.urls,
    *unsupported.others,
]


def _base(prefix: str, routes: list[URLPattern]) -> URLResolver:
    return path(prefix, include([*routes, re_path("", UnknownAddress.as_view())]))


urlpatterns = [
    _base("platform/rest/deeplearning/v1/", deeplearning),
    _base("platform/rest/conductor/v1/", [*logon.conductor_urls, *conductor.urls, *unsupported.certificates]),
    _base("platform/rest/ego/v1/", [*logon.ego_urls, *ego.urls]),
    _base("auth/v1/", logon.auth_urls),
    _base("v1/preauth/", logon.preauth_urls),
]
