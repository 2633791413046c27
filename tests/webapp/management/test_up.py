from typing import Any

import pytest
from django.core.management import CommandError, call_command


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "0"], "'0' is not a whole number from 1 to 65535"),
        (["--hosts", "none"], "'none' is not a whole number from 1 to 16"),
        (["--slots-per-host", "-1"], "is not a whole number from 1 to 16"),
        (["--broker", "rabbitmq"], "invalid choice: 'rabbitmq'"),
        (["--address", "0.0.0.0"], "set TIDEPOOL_ALLOWED_HOSTS"),
        (["--address", "example.org"], "is not an IP address"),
    ],
)
def test_senseless_options_are_refused_with_a_sentence(settings: Any, arguments: list[str], sentence: str) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    with pytest.raises(CommandError) as refused:
        call_command("up", *arguments)
    assert sentence in str(refused.value)
