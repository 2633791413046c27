"""Scripts of a package are run as `python -m package.train`, all others as files."""

from pathlib import Path

import pytest
from tidepool.script_modules import ScriptModule, module_of

PACKAGE = {"shapes/__init__.py": "", "shapes/net.py": "", "helper.py": ""}


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("script", "text", "root", "name"),
    [
        ("shapes/train.py", "from .net import x", ".", "shapes.train"),
        ("shapes/train.py", "from . import net", ".", "shapes.train"),
        ("shapes/train.py", "import shapes.net", ".", "shapes.train"),
        ("shapes/train.py", "from shapes import net", ".", "shapes.train"),
        ("shapes/train.py", "import helper", ".", "shapes.train"),
        ("shapes/__main__.py", "from .net import x", ".", "shapes"),
        ("shapes/deep/train.py", "from ..net import x", ".", "shapes.deep.train"),
        ("src/shapes/train.py", "from .net import x", "src", "shapes.train"),
        ("bare/train.py", "from .net import x", ".", "bare.train"),
        ("train.py", "from .net import x", "..", "code.train"),
    ],
)
def test_a_script_that_imports_from_its_package_is_a_module(
    tmp_path: Path, script: str, text: str, root: str, name: str
) -> None:
    folder = put(tmp_path / "code", PACKAGE | {"src/shapes/__init__.py": "", script: text})
    assert module_of(folder, script) == ScriptModule(root, name)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("train.py", "import helper, shapes.net"),
        ("shapes/train.py", "import net, torch"),
        ("shapes/train.py", "try:\n    from .net import x\nexcept ImportError:\n    from net import x"),
        ("shapes/train.py", "not Python"),
        ("bare/train.py", "import helper"),
    ],
)
def test_any_other_script_is_a_file(tmp_path: Path, script: str, text: str) -> None:
    assert module_of(put(tmp_path / "code", PACKAGE | {script: text}), script) is None
