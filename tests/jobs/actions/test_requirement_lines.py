"""Requirements as people have them: each input is a file that was refused whole before; nothing is installed here."""

import platform

import pytest
from tidepool.requirement_files import all_lines, projects_in, read_all, split_list, text_of

from jobs.actions.conda_files import for_conda, lines_of_conda
from jobs.actions.requirement_lines import Read, RequirementsError, read_lines, read_requirements, script_block
from workers.executor.environments.requirements import is_package

THERE = {"torch": "2.13.0+cpu", "numpy": "2.4.6", "requests": "2.32.0", "pandas": "2.2.3"}
PYTHON = platform.python_version()
FILES = {
    "base.txt": "tqdm\n-r more/deep.txt\n",
    "more/deep.txt": "colorama\n-r ../base.txt\n",
    "pyproject.toml": '[project]\nname = "mine"\ndependencies = ["einops", "x @ http://a"]\n',
    "lib/setup.py": "from setuptools import setup\nsetup(name='lib', install_requires=['timm>=1'])\n",
    "conf/setup.cfg": "[options]\ninstall_requires =\n    wandb\n    tqdm\n",
}


def read(text: str, file: str = "requirements.txt") -> Read:
    return read_requirements(text, file, FILES.get, THERE)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# packages\ntimm >= 1.0  # models\n\ntimm>=1.0\n", ["timm>=1.0"]),
        ("wandb[media]==0.20 ; python_version > '3.8'", ['wandb[media]==0.20; python_version > "3.8"']),
        ("x @ https://example.org/x-1-py3-none-any.whl", ["x @ https://example.org/x-1-py3-none-any.whl"]),
        ("-e git+https://github.com/me/x.git@v1#egg=x", ["x @ git+https://github.com/me/x.git@v1"]),
        ("torch==2.13.0+cu126\nnumpy>=2", ["numpy>=2", "torch==2.13.0"]),
        ("pywin32==306 ; sys_platform == 'win32'\ntidepool-runtime @ https://gpus.example.org/t.whl", []),
        ("tqdm==4.66.1 \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\n",
         ["tqdm==4.66.1 --hash=sha256:ab --hash=sha256:cd"]),
        ("--extra-index-url https://download.pytorch.org/whl/cu118\ntorch\ntqdm", ["torch", "tqdm"]),
        ("--require-hashes\n-i https://example.org/simple\nx==1+local",
         ["--index-url https://example.org/simple", "x==1+local"]),
        ("-r base.txt\nrich", ["colorama", "rich", "tqdm"]),
        ("-e ./lib[dev]\n--editable conf", ["-e conf", "-e lib", "timm>=1", "tqdm", "wandb"]),
        ("# packages in environment at /opt/conda:\nrequests=2.32.0=pyh_0\npip=24.0=py_0", ["requests==2.32.0"]),
    ],
)  # fmt: skip
def test_what_can_be_installed_is(text: str, lines: list[str]) -> None:
    found = read(text)
    assert (found.usable, found.unusable) == (sorted(lines), [])


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("torch==2.1.0\nnumpy<2\ntqdm", ["numpy<2", "torch==2.1.0", "tqdm"]),
        ("nvidia-cublas-cu11==11.11.3.6\ntorch==2.1.0", ["nvidia-cublas-cu11==11.11.3.6", "torch==2.1.0"]),
        (
            "--index-url https://download.pytorch.org/whl/cu118\ntorch==2.1.0+cu118",
            ["--index-url https://download.pytorch.org/whl/cu118", "torch==2.1.0+cu118"],
        ),
        (
            "torch @ https://example.org/torch-2-py3-none-any.whl",
            ["torch @ https://example.org/torch-2-py3-none-any.whl"],
        ),
        ("--python 3.25\ntqdm", ["--python ==3.25.*", "tqdm"]),
        (f"--python {PYTHON}\ntqdm", ["tqdm"]),
        ("--python >=3.25\nx; python_version < '3'", ["--python >=3.25", "x; python_version < '3'"]),
    ],
)
def test_another_torch_numpy_or_python_is_asked_of_a_whole_environment(text: str, lines: list[str]) -> None:
    found = read(text)
    assert (found.usable, found.unusable) == (sorted(lines), [])


@pytest.mark.parametrize(
    ("line", "why", "instead"),
    [
        ("torch==2.1.0+cu118", "no local versions", "torch==2.1.0"),
        ("--python 2.7", "Python 3.11 is the oldest", ""),
        ("--python >=3.8,<3.11", "Python 3.11 is the oldest", ""),
        ("--python new", "not a version of Python", ""),
        ("nvidia-cublas-cu11==11.11.3.6", "the torch of another machine", ""),
        ("absl-py @ file:///home/conda/feedstock_root/build_artifacts/absl-py_1/work", "conda built", "absl-py"),
        ("mine @ file:///home/me/mine-0.2-py3-none-any.whl", "on another machine", "mine==0.2"),
        ("mine @ file:///home/me/mine", "on another machine", ""),
        ("x @ git+ssh://git@github.com/me/x.git@v1", "write x @ git+https://github.com/me/x.git@v1", ""),
        ("x @ http://example.org/x.whl", "must begin with https://", ""),
        ("https://example.org/x.whl", "the name of the package is missing", ""),
        ("x==1.0+g1234", "no local versions", "x==1.0"),
        ("-r nowhere.txt", "has no file nowhere.txt", ""),
        ("-r ../other.txt", "has no file", ""),
        ("-e ./nowhere", "has no project there", ""),
        ("-e /home/me/x", "has no project there", ""),
        ("-c constraints.txt", "write the versions into the requirements", ""),
        ("--pre", "not supported", ""),
        ("--extra-index-url https://me:word@example.org", "password", ""),
        ("--find-links ./wheels", "begins with https://", ""),
        ("libffi=3.4.4=h6a678d5_0", "a package of conda", ""),
        ("two words", "not a requirement", ""),
        ("\0", "not a requirement", ""),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_the_rest_can(line: str, why: str, instead: str) -> None:
    found = read(f"tqdm\n{line}\nrich")
    assert found.usable == ["rich", "tqdm"]
    [unusable] = found.unusable
    assert unusable.sentence.startswith(f"requirements.txt, line 2, {line[:100]!r}: ")
    assert (why in unusable.sentence, unusable.instead) == (True, instead)
    assert found.with_replacements == sorted(filter(None, ["tqdm", "rich", instead]))


def test_a_line_of_an_included_file_is_named_by_that_file() -> None:
    found = read_requirements("-r base.txt", "requirements.txt", {"base.txt": "tqdm\n--pre"}.get, THERE)
    assert [each.sentence.partition(":")[0] for each in found.unusable] == ["base.txt, line 2, '--pre'"]
    assert [each.line.number for each in read("-e .").unusable] == [1], "a project requires what cannot be fetched"


IMAGE = f"docker.io/pytorch/pytorch@sha256:{'0f' * 32}"


@pytest.mark.parametrize("text", [f"--image {IMAGE}", f"# ours\n--image={IMAGE}\ntidepool\n"])
def test_an_image_with_its_digest_is_all_that_is_needed(text: str) -> None:
    found = read(text)
    assert (found.usable, found.unusable) == ([f"--image {IMAGE}"], [])


def test_an_image_without_a_digest_may_be_another_tomorrow() -> None:
    [refused] = read("--image docker.io/pytorch/pytorch:2.13.0").unusable
    assert "add its digest, as in docker.io/pytorch/pytorch:2.13.0@sha256:…" in refused.why


@pytest.mark.parametrize("name", ["", "Not A Name", "x@sha256:12", f"-v@sha256:{'0' * 64}"])
def test_what_is_not_the_name_of_an_image_is_refused(name: str) -> None:
    [refused] = read(f"--image {name}").unusable
    assert "not the name of a container image" in refused.why


def test_nothing_is_installed_into_an_image() -> None:
    found = read(f"timm\n--image {IMAGE}\n--image {IMAGE[:-1]}0\nnumpy<2\n")
    assert found.usable == [f"--image {IMAGE}"]
    assert {(each.line.number, each.why.partition(":")[0]) for each in found.unusable} == {
        (1, "nothing is installed into an image"),
        (3, "a training runs in one image"),
        (4, "nothing is installed into an image"),
    }


def test_there_is_a_limit() -> None:
    with pytest.raises(RequirementsError, match="at most 1000"):
        read("\n".join(f"a{number}" for number in range(1001)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_are_read_in_their_encoding(encoding: str) -> None:
    assert text_of("tqdm\r\n".encode(encoding)) == "tqdm\r\n"


CONDA = """name: e
channels: [conda-forge]
dependencies:
  - python=3.9
  - conda-forge::pandas=2.2
  - pytorch=2.13
  - numpy
  - cudatoolkit=11.8
  - pip
  - pip:
    - colorama==0.4
    - -r base.txt
"""


def test_condas_environment_is_read() -> None:
    found = read_lines(lines_of_conda(CONDA, "environment.yml"), FILES.get, THERE)
    assert found.usable == ["colorama", "colorama==0.4", "numpy", "pandas==2.2.*", "torch==2.13.*", "tqdm"]
    assert [(each.line.number, each.line.text) for each in found.unusable] == [
        (4, "python=3.9"),
        (8, "cudatoolkit=11.8"),
    ]
    here = lines_of_conda(f"dependencies: [python={PYTHON}, 'python>=3.8', python]", "e.yml")
    assert read_lines(here, FILES.get, THERE) == Read()
    with pytest.raises(RequirementsError, match="not valid YAML"):
        list(lines_of_conda("a: [", "environment.yml"))


def test_condas_environment_is_read_for_a_solver() -> None:
    text = CONDA.replace("python=3.9", "python=3.12").replace("[conda-forge]", "[nvidia, conda-forge]")
    found = read_lines(for_conda(lines_of_conda(text, "environment.yml")), FILES.get, THERE)
    assert found.unusable == []
    assert [*filter(is_package, found.usable)] == ["colorama", "colorama==0.4", "tqdm"]
    assert [line for line in found.usable if not is_package(line)] == [
        "--conda conda-forge::pandas=2.2",
        "--conda cudatoolkit=11.8",
        "--conda numpy",
        "--conda pip",
        "--conda python=3.12",
        "--conda pytorch=2.13",
        "--conda-channels nvidia conda-forge",
    ]


#: Lines of `conda env export` whose names and versions PyPI could not have.
EXPORTED = """channels: [conda-forge, defaults]
dependencies:
  - _libgcc_mutex=0.1=conda_forge
  - jpeg=9e=h0b41bf4_3
  - python=3.12.4=h5148396_1
  - python_abi=3.12=4_cp312
  - tzdata=2024a=h0c530f3_0
"""


def test_an_export_of_conda_is_read_for_a_solver() -> None:
    lines = [*lines_of_conda(EXPORTED, "environment.yml")]
    found = read_lines(for_conda(lines), FILES.get, THERE)
    assert found.unusable == []
    written = [each.removeprefix("  - ") for each in EXPORTED.splitlines() if each.startswith("  - ")]
    assert found.usable == [*(f"--conda {each}" for each in written), "--conda-channels conda-forge defaults"]
    refused = read_lines(lines, FILES.get, THERE).unusable
    assert {each.line.text.partition("=")[0] for each in refused} == {"_libgcc_mutex", "jpeg", "python_abi", "tzdata"}
    assert all("is a package of conda" in each.why for each in refused)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--conda python=nine", "Python 3.11 is the oldest"),
        ("--conda python=3.9", "Python 3.11 is the oldest"),
        ("--conda --json", "not a package of conda"),
        ("--conda a[build=x]", "not a package of conda"),
        ("--conda file:///x::numpy", "not a package of conda"),
        ("--conda numpy\n--conda-channels file:///x", "is no channel"),
        ("--conda numpy\n--conda-channels https://me:secret@host/x", "is no channel"),
        ("--conda numpy\n--conda-channels --json", "is no channel"),
    ],
)
def test_what_conda_cannot_be_asked_for_is_refused(text: str, words: str) -> None:
    [unusable] = read_requirements(text, "", FILES.get, THERE).unusable
    assert words in unusable.why


def test_channels_without_a_package_of_conda_mean_nothing() -> None:
    assert read_requirements("--conda-channels x\ntqdm", "", FILES.get, THERE).usable == ["tqdm"]


def script(content: str) -> str:
    lines = "".join(f"# {line}\n" if line else "#\n" for line in content.splitlines())
    return f'"""Trains."""\n# /// script\n{lines}# ///\nimport timm\n'


def test_a_script_states_its_own() -> None:
    stated = script('requires-python = ">=3.11"\ndependencies = [\n  "timm>=1",\n\n  "tqdm",\n]\n')
    assert script_block(stated) == "--python >=3.11\ntimm>=1\ntqdm"
    assert script_block("import timm\n") is None
    assert script_block(script("dependencies = []")) == ""


@pytest.mark.parametrize("content", ['dependencies = "timm"', "dependencies = [1]", "x = ", 'requires-python = "new"'])
def test_a_block_that_does_not_fit_is_refused(content: str) -> None:
    with pytest.raises(RequirementsError):
        script_block(script(content))


def test_the_client_finds_what_to_send() -> None:
    assert [name for name, _ in read_all("base.txt", FILES.get)] == ["base.txt", "more/deep.txt"]
    assert projects_in("-e .\ntorch\n-e git+https://example.org/x#egg=x\n./lib\n./x.whl") == [".", "lib"]
    assert [line.number for line in all_lines("a \\\n  b\n\nc", "")] == [1, 4]


def test_a_list_may_have_limits_and_extras() -> None:
    assert split_list("timm>=1,<2, wandb[media,sweeps],einops") == ["timm>=1,<2", "wandb[media,sweeps]", "einops"]
