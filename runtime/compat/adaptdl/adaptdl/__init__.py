"""AdaptDL's API, on Tidepool's runtime: scripts written for it train here unchanged. See docs/user/adaptdl.md."""

from importlib.util import find_spec

__all__: list[str] = []

#: Packages of the extra `torch`, which ranks of a cluster have.
NEEDED = ("msgspec", "numpy", "psutil", "safetensors", "scipy", "setproctitle", "torch")

if _missing := [name for name in NEEDED if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"A script of AdaptDL needs {', '.join(_missing)}: pip install "
        '"tidepool-runtime[torch] @ ADDRESS OF THE WHEEL", with the address that Connect shows.',
        name=_missing[0],
    )
