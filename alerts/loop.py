"""One turn of deciding and sending alerts: look, decide, pack, send. Its state is in the database."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from tidepool.backoff import Interval

from alerts import detectors, outbox, study_detectors
from alerts.alert_kinds import Kind
from alerts.encryption import Unreadable
from alerts.messages import Message, message_of
from alerts.models import AlertMark, Delivery
from alerts.routing import Happening, Rule, alerts_of
from alerts.senders import NotDelivered, Route, send
from core.claims import Claim, ClaimLost

__all__ = ["AlertLoop"]

logger = logging.getLogger(__name__)

#: No transaction that writes an event lasts longer.
_SETTLED = timedelta(minutes=1)
#: Seconds between looks at conditions that last, and the number of trainings whose loss one look reads.
_LOOK_SECONDS = 30.0
_MOST_LOSSES = 20
_PRUNE_SECONDS = 3600.0
_AT_ONCE = 8

Outcome = NotDelivered | None


class AlertLoop:
    """Call `turn` every other second."""

    def __init__(self) -> None:
        self._looking = Interval(_LOOK_SECONDS)
        self._pruning = Interval(_PRUNE_SECONDS)
        #: Training -> its step when the advisor looked at it last.
        self._steps: dict[int, int] = {}
        #: Found by the last look, and stored behind the alerts about them. None: not looked yet.
        self._full_groups: list[int] | None = None
        self._turns: dict[str, Callable[[datetime, list[Rule]], list[Happening]]] = {
            Kind.WAITS: detectors.waits,
            Kind.IDLE: detectors.idle,
            Kind.LOSS: self._losses,
            Kind.QUOTA: self._quotas,
        }

    def turn(self, now: datetime) -> bool:
        """Return whether there may be more to send at once."""
        rules = detectors.rules()
        self._decide(rules, now)
        outbox.pack(now)
        sent = self._send(now)
        if self._pruning.is_due(now.timestamp()):
            outbox.prune(now)
        return sent == _AT_ONCE

    def _decide(self, rules: list[Rule], now: datetime) -> None:
        if not rules:
            outbox.skip_events(detectors.newest_event(), study_detectors.newest_event())
            return
        mark = AlertMark.objects.first() or AlertMark.objects.create(
            event=detectors.newest_event(), study_event=study_detectors.newest_event()
        )
        happenings, event = detectors.events_since(mark.event, now - _SETTLED)
        of_studies, study_event = study_detectors.events_since(mark.study_event, now - _SETTLED)
        happenings += of_studies
        if self._looking.is_due(now.timestamp()):
            happenings += self._lasting(rules, now)
        outbox.store(alerts_of(happenings, rules))
        full = mark.full_groups if self._full_groups is None else self._full_groups
        if (event, study_event, full) != (mark.event, mark.study_event, mark.full_groups):
            AlertMark.objects.update(event=event, study_event=study_event, full_groups=full)

    def _lasting(self, rules: list[Rule], now: datetime) -> list[Happening]:
        """Return the lasting conditions, checking only kinds that have rules."""
        by_kind: dict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            by_kind[rule.kind].append(rule)
        looks = [(look, by_kind[kind]) for kind, look in self._turns.items() if kind in by_kind]
        return [happening for look, asked in looks for happening in look(now, asked)]

    def _losses(self, now: datetime, asked: list[Rule]) -> list[Happening]:
        """Return the trainings that made steps since their last look, the longest unseen first."""
        jobs = [job for job in detectors.training(asked) if self._steps.get(job.pk) != job.run.step]
        order = {number: place for place, number in enumerate(self._steps)}
        looked = sorted(jobs, key=lambda job: order.get(job.pk, -1))[:_MOST_LOSSES]
        for job in looked:
            self._steps.pop(job.pk, None)
            self._steps[job.pk] = job.run.step
        return detectors.losses(looked, now)

    def _quotas(self, now: datetime, asked: list[Rule]) -> list[Happening]:
        full = detectors.full_groups(asked)
        before = set(AlertMark.objects.values_list("full_groups", flat=True).get(pk=1))
        self._full_groups = sorted(group.pk for group, _ in full)
        return detectors.of_full_groups(full, before, now)

    def _send(self, now: datetime) -> int:
        """Return how many messages were tried."""
        claims = outbox.claim_due(now, _AT_ONCE)
        if not claims:
            return 0
        alerts = outbox.alerts_by_delivery([claim.row for claim in claims])
        calls: list[tuple[Claim[Delivery], Route, Message]] = []
        for claim in claims:
            try:
                route = outbox.route_of(claim.row.channel)
            except Unreadable as error:
                outbox.note_failed(claim, str(error), is_final=True)
            else:
                calls.append((claim, route, message_of(claim.row, alerts[claim.row.pk])))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            outcomes = list(pool.map(lambda call: _outcome(call[1], call[2]), calls))
        for (claim, _, _), outcome in zip(calls, outcomes, strict=True):
            try:
                if outcome is None:
                    outbox.note_sent(claim, now)
                else:
                    outbox.note_failed(claim, str(outcome), is_final=outcome.is_final)
            except ClaimLost as error:
                logger.warning("%s", error)
        return len(claims)


def _outcome(route: Route, message: Message) -> Outcome:
    """Send one message, in a thread without a database."""
    try:
        send(route, message, time.time())
    except NotDelivered as error:
        return error
    except Exception:
        logger.exception("a message could not be sent")
        return NotDelivered("The message could not be sent: the background worker's log says why.")
    return None
