"""WMLA's addresses, by the bases that its clients know. Each noun has its own list."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, re_path

from wmla import auth as logon
from wmla import conductor_urls, execs, frameworks, service
from wmla.registry_urls import registry
from wmla.view import Nothing

__all__ = ["urlpatterns"]

deeplearning: list[URLPattern] = [
    *frameworks.urls,
    *execs.urls,
    *service.urls,
    *conductor_urls.scheduler,
    *registry,
]
conductor: list[URLPattern] = [*logon.conductor_urls, *conductor_urls.conductor]
auth: list[URLPattern] = [*logon.auth_urls]
preauth: list[URLPattern] = [*logon.preauth_urls]


def _base(prefix: str, routes: list[URLPattern]) -> URLResolver:
    return path(prefix, include([*routes, re_path("", Nothing.as_view())]))


urlpatterns = [
    _base("platform/rest/deeplearning/v1/", deeplearning),
    _base("platform/rest/conductor/v1/", conductor),
    _base("platform/rest/ego/v1/", conductor_urls.ego),
    _base("auth/v1/", auth),
    _base("v1/preauth/", preauth),
]
