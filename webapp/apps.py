from django.apps import AppConfig


class WebappConfig(AppConfig):
    name = "webapp"

    def ready(self) -> None:
        from core.roles import register_own_matters
        from webapp.form_words import use_own_sentences

        use_own_sentences()
        register_own_matters("POST", "login", "logout")
