"""Actions on datasets: the only writers of this app's rows."""

from datasets.actions.checks import Claim, ClaimLost, claim_next, finish, give_back, note_progress
from datasets.actions.registration import DatasetRegistration, register, version_at
from datasets.actions.removal import check_again, delete_dataset, delete_version

__all__ = [
    "Claim",
    "ClaimLost",
    "DatasetRegistration",
    "check_again",
    "claim_next",
    "delete_dataset",
    "delete_version",
    "finish",
    "give_back",
    "note_progress",
    "register",
    "version_at",
]
