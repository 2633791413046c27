"""Prices of GPU-hours. Administrators of the cluster set and remove them; the audit log records each change."""

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
_MAX_PRICE = Decimal("99999999.9999")
_FIRST, _LAST = date(2000, 1, 1), date(2100, 1, 1)


def known_models() -> list[str]:
    """Return the GPU models of all slots and prices, as suggestions for the form."""
    models = set(Slot.objects.order_by().values_list("device_model", flat=True).distinct())
    return sorted({*models, *(price.gpu_model for price in GpuPrice.objects.all())} - {""})


@transaction.atomic
def set_price(actor: User, gpu_model: str, valid_from: date, per_hour: str | Decimal) -> GpuPrice:
    """Set the price of a model from a day on (UTC), or replace the price of that day. Earlier prices stay."""
    require_cluster_admin(actor)
    model = str(storable(gpu_model)).strip()
    if not model or len(model) > 128:
        raise field_error("gpu_model", "Enter the GPU model as Hosts shows it, such as NVIDIA H200.")
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
    """Remove a price. The previous price of the model then holds from its day on, if there is one."""
    require_cluster_admin(actor)
    price = GpuPrice.objects.select_for_update().filter(pk=number).first()
    if price is None:
        raise NotFound("This price does not exist: it has probably been removed.")
    audit(actor, "removed", kind="GPU price", key=number, name=price.gpu_model, before=_values(price))
    price.delete()
    return price


def _amount(given: str | Decimal) -> Decimal:
    try:
        amount = Decimal(str(given).strip().replace(",", ".")).quantize(_DIGITS)
    except InvalidOperation:
        raise field_error("per_hour", "Enter the price as a number, such as 2.50.") from None
    if not 0 <= amount <= _MAX_PRICE:
        raise field_error("per_hour", "Enter a price of 0 or more, and below 100 million.")
    return amount


def _values(price: GpuPrice) -> dict[str, object]:
    return {"valid_from": price.valid_from, "per_hour": price.per_hour}
