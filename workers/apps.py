from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "workers"

    def ready(self) -> None:
        from core.live import register_merge_depth
        from workers.topics import CLUSTER

        # One field of one slot changes without the others.
        register_merge_depth(CLUSTER, 3)
