"""The scheduler's loop: read, decide, write, send. All its state is in the database."""

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from django.core.management.base import BaseCommand
from django.utils import timezone
from tidepool.backoff import Interval

from core.process import stop_at_signals, take_turns, without_collector
from jobs.control.dispatch import WakeUps, periodic_tasks, resend_outstanding, send_mark
from jobs.control.durations import lengths, with_lengths
from jobs.control.environments import ask_for, forget_unused
from jobs.control.gangs import watch_gangs
from jobs.control.hosts import reap_lost_hosts
from jobs.control.idle import watch_idle
from jobs.control.job_end import give_up_halts
from jobs.control.leaving import leave_in_time
from jobs.control.plans import Leadership, LeadershipLost, apply
from jobs.control.queues import KnownLengths, QueueWriter
from jobs.control.snapshots import snapshot
from jobs.control.time_limits import enforce_limits
from jobs.models import Job
from scheduling.policies.target_hold import TargetHold, hold_targets
from scheduling.preparation import run_prepared_cycle
from scheduling.snapshot import Snapshot
from workers.broker_users import UserKeeper
from workers.lateness import SilenceWatch, mark_pause_seconds, reports_delay

__all__ = ["Command", "Scheduler"]

logger = logging.getLogger(__name__)

CYCLE_SECONDS = 1.0
#: Longest time without a plan while no training is unfinished and nobody wakes the scheduler.
REST_SECONDS = 20.0
RESEND_SECONDS = 2.0
IDLE_SECONDS = 5.0
FORGET_SECONDS = 3600.0
BROKER_USERS_SECONDS = 2.0
#: Age at which forecasts of training times are computed again.
FORECAST_AGE = timedelta(seconds=30)


class Command(BaseCommand):
    help = "Divide the GPUs among the jobs until SIGTERM or SIGINT. Any number may run: one leads, the others stand by."

    def handle(self, *args: Any, **options: Any) -> None:
        Scheduler(stop_at_signals()).run()


class Scheduler:
    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._leadership = Leadership()
        self._wake_ups = WakeUps()
        self._well_since: datetime | None = None
        self._silence = SilenceWatch()
        self._next_mark_at = 0.0
        self._cycle = 0
        self._is_woken = True
        self._planned_at = float("-inf")
        self._known = KnownLengths({}, datetime.min.replace(tzinfo=UTC))
        self._queues = QueueWriter()
        self._target_hold: TargetHold | None = None
        self._now_and_then = (
            (Interval(RESEND_SECONDS), resend_outstanding),
            (Interval(IDLE_SECONDS), lambda: watch_idle(timezone.now())),
            (Interval(FORGET_SECONDS), forget_unused),
            (Interval(BROKER_USERS_SECONDS), UserKeeper().keep),
            *((Interval(task.every_seconds), task.send) for task in periodic_tasks()),
        )

    def run(self) -> None:
        """Run cycles until told to stop."""
        take_turns(self._stop, self._turn, pause_seconds=CYCLE_SECONDS)
        self._leadership.resign()
        self._wake_ups.close()

    def cycle(self) -> None:
        """Run one cycle, if this process leads."""
        epoch = self._leadership.renew()
        if epoch is None:
            self._well_since, self._silence, self._is_woken = None, SilenceWatch(), True
            return
        self._cycle += 1
        with self._leadership.held():
            self._lead(epoch)

    def _lead(self, epoch: int) -> None:
        begun = time.monotonic()
        now = timezone.now()
        self._send_mark(now)
        judged_until = self._silence.judged_until(now)
        self._well_since = reap_lost_hosts(self._well_since, judged_until) if judged_until else None
        if self._may_rest(begun):
            self._leadership.count_cycle(time.monotonic() - begun, timezone.now())
        elif not self._plan(epoch, begun, now):
            return
        for interval, work in self._now_and_then:
            if interval.is_due(time.monotonic()):
                work()

    def _may_rest(self, at: float) -> bool:
        """Return whether nothing is to be decided since the last plan."""
        is_recent = not self._is_woken and at - self._planned_at < REST_SECONDS
        return is_recent and not Job.objects.filter(finished_at__isnull=True).exists()

    def _plan(self, epoch: int, begun: float, now: datetime) -> bool:
        """Decide and write the plan; returns False if another scheduler leads."""
        self._is_woken, self._planned_at = False, begun
        give_up_halts(now)
        watch_gangs(now)
        enforce_limits(now)
        leave_in_time(now)
        seen, self._target_hold = hold_targets(snapshot(now, self._cycle), self._target_hold)
        cycle = run_prepared_cycle(self._with_forecasts(seen, now))
        result, plan = cycle.result, cycle.plan()
        for group in plan.groups:
            prices = group.prices or group.price
            logger.debug("cycle=%s group=%s goodput: gap=%.4f price=%s", self._cycle, group.group, group.gap, prices)
        try:
            apply(plan, epoch)
            ask_for(cycle.wanted)
            self._leadership.count_cycle(time.monotonic() - begun, timezone.now())
            self._queues.write(result, self._known, epoch)
        except LeadershipLost as error:
            logger.warning("cycle=%s another scheduler leads: %s", self._cycle, error)
            return False
        return True

    def _send_mark(self, now: datetime) -> None:
        if time.monotonic() >= self._next_mark_at:
            send_mark(now)
            self._next_mark_at = time.monotonic() + mark_pause_seconds(reports_delay(now))

    def _with_forecasts(self, seen: Snapshot, now: datetime) -> Snapshot:
        """Add forecasts, which only affect backfilling: they are skipped while no job waits."""
        if all(job.state != "PENDING" for job in seen.jobs):
            return seen
        if not timedelta(0) <= now - self._known.at < FORECAST_AGE:
            self._known = KnownLengths(lengths({}, now), now)
        return with_lengths(seen, self._known.by_job, self._known.at)

    def _turn(self) -> bool:
        """Run one cycle and wait for the next. Returns whether to run it at once."""
        with without_collector():
            self.cycle()
        try:
            self._is_woken = self._wake_ups.wait(CYCLE_SECONDS)
        except (redis.RedisError, OSError) as error:
            self._is_woken = True  # perhaps
            logger.debug("no wake-ups: %s", error)
            return False
        return True
