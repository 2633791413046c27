"""pyspark's import line means this cluster where pyspark is absent, and never shadows it."""

import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest
import tidepool
from click.testing import CliRunner
from tidepool import stand_ins
from tidepool.cli.enable import enable

_RUNTIME = Path(tidepool.__file__).resolve().parents[1]
_ENVIRONMENT = "import sys, site; sys.path.insert(0, sys.argv[1]); site.addsitedir(sys.argv[2])\n"
_LINE = "from pyspark.ml.torch.distributor import TorchDistributor; print(TorchDistributor.__module__)"


def _uses_the_line() -> str:
    from pyspark.ml.torch.distributor import TorchDistributor

    return str(TorchDistributor.__module__)


def _run(code: str, packages: Path) -> str:
    words = [sys.executable, "-c", _ENVIRONMENT + code, str(_RUNTIME), str(packages)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return ended.stdout + ended.stderr


def _install_a_real_one(packages: Path) -> None:
    package = packages / "pyspark"
    (package / "ml/torch").mkdir(parents=True)
    for folder in ("", "ml", "ml/torch"):
        (package / folder / "__init__.py").touch()
    (package / "ml/torch/distributor.py").write_text("class TorchDistributor: ...\n")


def test_the_line_works_once_it_is_offered_or_enabled(tmp_path: Path) -> None:
    assert "No module named 'pyspark'" in _run(_LINE, tmp_path)
    assert _run(f"from tidepool.stand_ins import offer; assert offer()\n{_LINE}", tmp_path) == "tidepool.distributor\n"
    stand_ins.enable(tmp_path)
    assert _run(_LINE, tmp_path) == "tidepool.distributor\n"
    stand_ins.disable(tmp_path)
    stand_ins.disable(tmp_path)
    assert "No module named 'pyspark'" in _run(_LINE, tmp_path)


def test_the_rest_of_pyspark_is_missing_and_says_so(tmp_path: Path) -> None:
    stand_ins.enable(tmp_path)
    said = _run("import pyspark; pyspark.SparkContext", tmp_path)
    assert "Tidepool stands in for pyspark.ml.torch.distributor alone" in said


def test_mlflow_finds_the_types_that_it_compares_values_with(tmp_path: Path) -> None:
    """MLflow imports them once `pyspark` or `pyspark.ml` is loaded: `Param` for each parameter that is logged."""
    stand_ins.enable(tmp_path)
    asked = (
        "import pyspark.ml.param\nfrom pyspark.ml.linalg import Vector\nfrom pyspark.sql import DataFrame\n"
        "print(isinstance('key', (pyspark.ml.param.Param, Vector, DataFrame)))"
    )
    assert _run(f"{_LINE}\n{asked}", tmp_path) == "tidepool.distributor\nFalse\n"
    assert "cannot import name 'SparkSession'" in _run("from pyspark.sql import SparkSession", tmp_path)


def test_a_real_one_wins_whenever_it_comes(tmp_path: Path) -> None:
    stand_ins.enable(tmp_path)
    _install_a_real_one(tmp_path)
    assert _run(_LINE, tmp_path) == "pyspark.ml.torch.distributor\n"
    assert _run(f"from tidepool.stand_ins import offer; assert not offer()\n{_LINE}", tmp_path).startswith("pyspark.")


def test_a_script_or_a_function_that_has_the_line_names_it(tmp_path: Path) -> None:
    script, call = tmp_path / "train.py", tmp_path / "call.pkl"
    script.write_text("import torch  # no pyspark\n")
    assert not stand_ins.is_named([script, call])
    cloudpickle.register_pickle_by_value(this := sys.modules[__name__])
    call.write_bytes(cloudpickle.dumps(_uses_the_line))
    cloudpickle.unregister_pickle_by_value(this)
    assert stand_ins.is_named([script, call])
    script.write_text(_LINE)
    assert stand_ins.is_named([script])


def test_a_notebook_offers_it_and_says_what_will_be_found(tmp_path: Path) -> None:
    notebook = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        f"InteractiveShell.instance().run_line_magic('load_ext', 'tidepool')\n{_LINE}"
    )
    assert _run(notebook, tmp_path) == (
        "pyspark.ml.torch.distributor is Tidepool's here: its TorchDistributor trains on this cluster.\n"
        "tidepool.distributor\n"
    )
    _install_a_real_one(tmp_path)
    assert _run(notebook, tmp_path) == (
        "pyspark is installed, so `import pyspark` still finds it.\npyspark.ml.torch.distributor\n"
    )


def test_the_command_says_what_will_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins.sysconfig, "get_path", lambda name: str(tmp_path))
    assert "is Tidepool's here" in CliRunner().invoke(enable, ["pyspark"]).output
    assert "Removed" in CliRunner().invoke(enable, ["pyspark", "--off"]).output
    monkeypatch.setattr(stand_ins, "is_real", lambda: True)
    assert "`import pyspark` still finds it" in CliRunner().invoke(enable, ["pyspark"]).output
    monkeypatch.setattr(stand_ins.sysconfig, "get_path", lambda name: str(tmp_path / "nowhere"))
    assert "cannot be written" in CliRunner().invoke(enable, ["pyspark"]).output
