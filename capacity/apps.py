from django.apps import AppConfig


class CapacityConfig(AppConfig):
    name = "capacity"

    def ready(self) -> None:
        from capacity.queries import sizes_to_come
        from workers.queries import register_further_hosts

        register_further_hosts(sizes_to_come)
