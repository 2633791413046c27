"""State that the hooks of all libraries share: a rank's records, and the checkpoint where its training continues."""

import sys
from collections import Counter
from pathlib import Path

from tidepool.env import RankContext
from tidepool.own_checkpoints.progress_file import ProgressFile
from tidepool.own_checkpoints.saves import OwnCheckpoint, SaveJournal, complete_checkpoints

__all__ = ["HookedRank"]


class HookedRank:
    def __init__(self, context: RankContext, rank: int, ranks: int) -> None:
        self.saves = SaveJournal(context.folder, rank, ranks)
        self.progress = ProgressFile(context.folder)
        self.is_first = rank == 0
        self.is_later_attempt = context.attempt > 1
        self._job_folder, self._attempt = Path(context.launch.folder).parent, context.attempt
        self._trainings: Counter[str] = Counter()

    def begin_training(self, library: str) -> int:
        """Return the number of the training that begins. Each attempt runs the script from its beginning: the same
        number is the same training."""
        self._trainings[library] += 1
        return self._trainings[library]

    def newest(self, library: str, training: int) -> OwnCheckpoint | None:
        """Return the newest checkpoint that former attempts have saved in this training; None if there is none."""
        saved = complete_checkpoints(self._job_folder, before=self._attempt) if self.is_later_attempt else []
        own = [each for each in saved if (each.library, each.training) == (library, training)]
        return own[-1] if own else None

    def tell(self, checkpoint: OwnCheckpoint, as_if: str) -> None:
        """Tell the reader of the log what the hook does."""
        if self.is_first:
            sys.stderr.write(
                f"tidepool: the training continues after step {checkpoint.step}, from {checkpoint.path}, as if the "
                f"script had given {as_if}\n"
            )
