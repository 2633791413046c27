"""Prices of GPU-hours: made, replaced and removed by administrators of the cluster, each change with who and what."""

from datetime import date
from decimal import Decimal, InvalidOperation

from django.contrib.auth.models import User
from django.db import transaction

from core.audit.entries import audit
from core.errors import NotFound, field_error
from core.roles import require_cluster_admin
from core.text import storable
from usage.models import GpuPrice
from workers.models import Slot

__all__ = ["known_models", "remove_price", "set_price"]

_DIGITS = Decimal("0.0001")
_MOST = Decimal("99999999.9999")
_FIRST, _LAST = date(2000, 1, 1), date(2100, 1, 1)


def known_models() -> list[str]:
    """GPUs that are or were priced: what the form offers."""
    models = set(Slot.objects.order_by().values_list("device_model", flat=True).distinct())
    return sorted({*models, *(price.gpu_model for price in GpuPrice.objects.all())} - {""})


@transaction.atomic
def set_price(actor: User, gpu_model: str, valid_from: date, per_hour: str | Decimal) -> GpuPrice:
    """Set a price from a day on, in UTC; prices before it stay. The same day again replaces its price."""
    require_cluster_admin(actor)
    model = str(storable(gpu_model)).strip()
    if not model or len(model) > 128:
        raise field_error("gpu_model", "Name the GPU model as the page of the hosts does, such as NVIDIA H200.")
    if not _FIRST <= valid_from < _LAST:
        raise field_error("valid_from", "Choose a day between 2000 and 2100.")
    amount = _amount(per_hour)
    before = GpuPrice.objects.select_for_update().filter(gpu_model=model, valid_from=valid_from).first()
    price, _ = GpuPrice.objects.update_or_create(gpu_model=model, valid_from=valid_from, defaults={"per_hour": amount})
    audit(
        actor,
        "changed" if before else "set",
        kind="GPU price",
        key=price.pk,
        name=model,
        before=_values(before) if before else None,
        after=_values(price),
    )
    return price


@transaction.atomic
def remove_price(actor: User, number: int) -> GpuPrice:
    """Remove a price: from its day on the price before it counts, or none."""
    require_cluster_admin(actor)
    price = GpuPrice.objects.select_for_update().filter(pk=number).first()
    if price is None:
        raise NotFound("There is no such price: somebody removed it already.")
    audit(actor, "removed", kind="GPU price", key=number, name=price.gpu_model, before=_values(price))
    price.delete()
    return price


def _amount(given: str | Decimal) -> Decimal:
    try:
        amount = Decimal(str(given).strip().replace(",", ".")).quantize(_DIGITS)
    except InvalidOperation:
        raise field_error("per_hour", "A price is a number, such as 2.50.") from None
    if not 0 <= amount <= _MOST:
        raise field_error("per_hour", "A price is 0 or more, and below 100 million.")
    return amount


def _values(price: GpuPrice) -> dict[str, object]:
    return {"valid_from": price.valid_from, "per_hour": price.per_hour}
