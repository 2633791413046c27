"""OpenAPI description with the error statuses of each operation.

The statuses follow from its method and address. A view declares further ones in `refuses_with`, errors as a line of
text in `refuses_in_text`, and ETags in `has_etag`. `tests/described.py` compares the description with real responses.
"""

from http import HTTPStatus
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from uritemplate import variables

from core.etags import IF_MATCH
from core.rest import ErrorSerializer
from core.roles import SignedIn
from core.scopes import SAFE_METHODS

__all__ = ["Described"]

_TEXT = "text/plain"
_SENTENCES = {
    400: "The request is invalid; `fields` has the errors by field.",
    401: "Nobody is logged in, or the password or token is wrong.",
    403: "You may not do this, the token's scope does not allow it, or a page of another site sent the request.",
    404: "The object does not exist or is not visible to you, or the `format` is unknown.",
    406: "The response is not available in the type of the `Accept` header.",
    409: "The request is valid but conflicts with the current state.",
    412: "The values have been changed since the GET with the `ETag` in `If-Match`: nothing is stored.",
    413: "The body is larger than an upload may be.",
    415: "The body has a type that is not accepted here.",
    429: "Too many wrong passwords, or too many logins at once: try again after `Retry-After` seconds.",
}


class Described(AutoSchema):
    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        given = super()._get_response_bodies(direction)
        refusals = {str(status): self._refusal(status) for status in self._refusals()}
        return dict(sorted({**refusals, **given}.items()))

    def _refusal(self, status: int) -> dict[str, Any]:
        shape = OpenApiTypes.STR if self._in_text or status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else ErrorSerializer
        media = [_TEXT] if shape is OpenApiTypes.STR else None
        said = OpenApiResponse(shape, _SENTENCES[status])
        return self._get_response_for_code(said, str(status), media)  # type: ignore[no-untyped-call, no-any-return]

    def get_override_parameters(self) -> Any:
        given = super().get_override_parameters()
        return [*given, IF_MATCH] if self._compares_etags else given

    @property
    def _compares_etags(self) -> bool:
        return self.method in {"PATCH", "PUT"} and getattr(self.view, "has_etag", False)

    @property
    def _in_text(self) -> bool:
        """Return whether the view reports errors as a line of text."""
        return bool(getattr(self.view, "refuses_in_text", False))

    def _refusals(self) -> set[int]:
        changes = self.method not in SAFE_METHODS
        found = {400} | ({403, 409} if changes else set()) | (set() if self._in_text else {404, 406})
        found |= {404} if variables(self.path) else set()
        found |= set(getattr(self.view, "refuses_with", ()))
        found |= {412} if self._compares_etags else set()
        if SignedIn in self.view.permission_classes:
            found |= {401, 403, 429}
        if changes and self.method != "DELETE":
            found |= {413, 415}
        return found
