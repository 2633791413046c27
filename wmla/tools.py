"""`/ui/tools/dlicmd.py`: download of the command line. It holds no secret and needs no log-on."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import condition, require_safe

__all__ = ["dlicmd"]

_PROGRAM = Path(__file__).with_name("dlicmd.py")


@cache
def _program() -> bytes:
    return _PROGRAM.read_bytes()


@cache
def _etag() -> str:
    return f'"{hashlib.sha256(_program()).hexdigest()}"'


@require_safe
@condition(etag_func=lambda request: _etag())
def dlicmd(request: HttpRequest) -> HttpResponse:
    headers = {"Content-Disposition": 'attachment; filename="dlicmd.py"'}
    return HttpResponse(_program(), content_type="text/x-python; charset=utf-8", headers=headers)
