from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "workers"

    def ready(self) -> None:
        from core.live import register_merge_depth
        from workers.topics import CLUSTER

        # A change may set a single field of a single slot: merge down to that level.
        register_merge_depth(CLUSTER, 3)
