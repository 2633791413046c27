"""Tests of reading code: which script trains, how, on what, and what it takes on its command line."""

from pathlib import Path

import pytest

from core.errors import UserError
from models_registry.code_inspection import (
    EntryPointWanted,
    checked_entry_point,
    found_entry_point,
    imports_within,
    inspect_code,
)
from models_registry.script_declarations import Argument, Declared

BEGUN = "if __name__ == '__main__':\n    print(1)\n"


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"anything": "print(1)"}, "anything.py"),
        ({"go": "import net\n" + BEGUN, "net": "x = 1"}, "go.py"),
        ({"go": "from lib import net\n", "lib__net": "x = 1"}, "go.py"),
        ({"main": BEGUN, "evaluate": BEGUN}, "main.py"),
        ({"work": BEGUN, "setup": BEGUN, "tests__test_work": BEGUN, "conftest": ""}, "work.py"),
        ({"train": BEGUN, "net": BEGUN, "tools__plot": BEGUN}, "train.py"),
    ],
)
def test_the_script_that_trains_is_found(tmp_path: Path, files: dict[str, str], found: str) -> None:
    assert found_entry_point(put(tmp_path, **files)) == found


@pytest.mark.parametrize("given", ["shapes/train.py", "shapes.train", "-m shapes.train", "-m shapes"])
def test_an_entry_point_may_be_a_module(tmp_path: Path, given: str) -> None:
    folder = put(tmp_path, shapes__train="from . import net", shapes__net="")
    (folder / "shapes/__main__.py").touch()
    expected = "shapes/__main__.py" if given == "-m shapes" else "shapes/train.py"
    assert checked_entry_point(folder, given) == expected


@pytest.mark.parametrize("given", ["", "shapes.test", "-m ", "shapes..train", "-m nothing"])
def test_an_entry_point_that_is_no_module_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(UserError, match="is not in the model's folder"):
        checked_entry_point(put(tmp_path, shapes__train=""), given)


def test_a_folder_that_is_the_package_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give the folder above it"):
        checked_entry_point(put(tmp_path, train="from . import net", net=""), "train.py")


def test_several_scripts_are_asked_about(tmp_path: Path) -> None:
    folder = put(tmp_path, main=BEGUN, train=BEGUN, tools__plot=BEGUN, net="x = 1")
    with pytest.raises(EntryPointWanted, match="Several scripts can be the entry point") as asked:
        found_entry_point(folder)
    assert asked.value.scripts == ["main.py", "train.py", "tools/plot.py"]


def test_a_folder_without_a_script_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("none")
    with pytest.raises(UserError, match="contains no Python script"):
        found_entry_point(tmp_path)


@pytest.mark.parametrize("others", [{}, {"net": "x = 1"}])
def test_a_script_with_a_syntax_error_is_named_with_its_line(tmp_path: Path, others: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"main\.py is not valid Python \(line 2: '\(' was never closed\)"):
        found_entry_point(put(tmp_path, main="x = 1\nprint(1", **others))


def test_a_broken_script_beside_a_usual_entry_point_is_passed_over(tmp_path: Path) -> None:
    assert found_entry_point(put(tmp_path, old="print 1", train="print(1)")) == "train.py"


@pytest.mark.parametrize(
    ("code", "engine", "reads_data"),
    [
        ("import torch\nprint(1)", "single", False),
        ("import os\nprint(os.environ['DATA_DIR'])", "single", True),
        ("import torch.distributed as dist\ndist.init_process_group()", "fixed", False),
        ("import os\nrank = int(os.environ.get('LOCAL_RANK', 0))", "fixed", False),
        ("from transformers import Trainer\nTrainer()", "fixed", False),
        ("import argparse\nargparse.ArgumentParser().add_argument('--local_rank', type=int)", "fixed", False),
        ("import lightning as L\nL.Trainer()", "fixed", False),
        ("from tidepool.torch import Session\nSession()", "elastic", False),
        ("from fabric_model import FabricModel\nFabricModel()", "elastic", True),
        ("def broken(:", "single", False),
        ("import there_is_none", "single", False),
    ],
)
def test_how_and_on_what_a_script_trains(tmp_path: Path, code: str, engine: str, reads_data: bool) -> None:
    facts = inspect_code(put(tmp_path, main=code), "main.py")
    assert (facts.engine, facts.declared.reads_data) == (engine, reads_data)


@pytest.mark.parametrize(
    ("code", "continues"),
    [
        ("from transformers import Trainer\nTrainer().train()", "trainer"),
        ("import transformers\ntransformers.Seq2SeqTrainer().train()", "trainer"),
        ("from trl import SFTTrainer\nSFTTrainer().train()", "trainer"),
        ("import transformers, accelerate\ntransformers.Trainer().train()\naccelerate.Accelerator()", "trainer"),
        ("import lightning as L\nL.Trainer().fit(m)", "lightning"),
        ("import transformers\nfrom pytorch_lightning import Trainer\nTrainer().fit(m)", "lightning"),
        ("from lightning.pytorch.cli import LightningCLI\nLightningCLI()", "lightning"),
        ("from accelerate import Accelerator\na = Accelerator()\na.load_state()", "load_state"),
        ("from accelerate import Accelerator\na = Accelerator()\na.save_state()", "anew"),
        ("import lightning as L\nL.Fabric()", ""),
        ("from transformers import AutoModel\nAutoModel()", ""),
        ("from accelerate import init_empty_weights\ninit_empty_weights()", ""),
    ],
)
def test_how_a_script_continues_from_what_its_library_has_saved(tmp_path: Path, code: str, continues: str) -> None:
    assert inspect_code(put(tmp_path, main=code), "main.py").declared.continues == continues


@pytest.mark.parametrize(
    ("code", "reads_data"),
    [
        ("print(os.environ.get('DATA_DIR', './data'), os.getenv('DATA_DIR') or '/tmp')", False),
        ("os.environ.setdefault('DATA_DIR', 'data')", False),
        ("folder = os.environ['DATA_DIR'] if 'DATA_DIR' in os.environ else 'data'", False),
        ("try:\n    folder = os.environ['DATA_DIR']\nexcept KeyError:\n    folder = 'data'", False),
        ("print(os.environ.get('DATA_DIR', None))", True),
        ("print(os.getenv('DATA_DIR'))", True),
        ("print(os.environ.get('DATA_DIR', 'data'), os.environ['DATA_DIR'])", True),
    ],
)
def test_a_script_with_another_value_for_the_folder_needs_no_dataset(
    tmp_path: Path, code: str, reads_data: bool
) -> None:
    assert inspect_code(put(tmp_path, main=f"import os\n{code}"), "main.py").declared.reads_data == reads_data


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ("'--local_rank', '--local-rank'", "local_rank"),
        ("'--local-rank', '--local_rank'", "local_rank"),
        ("'--local-rank'", "local-rank"),
        ("'--rank'", ""),
    ],
)
def test_the_argument_for_the_local_rank_is_found(tmp_path: Path, names: str, wanted: str) -> None:
    code = f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument({names}, type=int)\n"
    assert inspect_code(put(tmp_path, main=code), "main.py").declared.local_rank_argument == wanted


@pytest.mark.parametrize(
    ("code", "layers"),
    [
        ("from torch import nn\nnn.Linear(2, 2)", ()),
        ("from torch import nn\nself.dropout = nn.Dropout(0.1)\nnn.BatchNorm2d(4)", ("BatchNorm2d", "Dropout")),
        ("from torch.nn import functional as F\nF.dropout(x)", ("dropout",)),
        ("from torch.nn import TransformerEncoderLayer", ("TransformerEncoderLayer",)),
    ],
)
def test_layers_whose_results_depend_on_the_number_of_gpus(tmp_path: Path, code: str, layers: tuple[str, ...]) -> None:
    stored = inspect_code(put(tmp_path, main=code), "main.py").declared.to_json()
    assert Declared.from_json(stored).layers == layers
    assert Declared.from_json({}).layers == ()


SIMCLR = """
def loss_of(model, x):
    a, b = normalize(model(x)), normalize(model(x * 1.1))
    return cross_entropy(a @ b.T / 0.2, torch.arange(len(x)))
"""
NT_XENT = """
z = torch.cat([one, two])
similar = torch.mm(z, z.t()) / 0.5
similar.fill_diagonal_(-1e9)
loss = -(similar[pairs] - similar.logsumexp(1)).mean()
"""
CLIP = """
class Net:
    def forward(self, images, texts):
        logits = self.scale * images @ texts.t()
        labels = torch.arange(logits.shape[0], device=logits.device)
        return (F.cross_entropy(logits, labels) + self.criterion(logits.t(), labels)) / 2
"""
ATTENTION = """
class Net:
    def forward(self, x):
        places = torch.arange(x.shape[1])
        scores = (self.q(x) @ self.k(x).transpose(-2, -1)).softmax(-1) + self.place(places)
        return scores @ self.embedding.weight.T

mask = torch.arange(8)[None] < lengths[:, None]
loss = F.cross_entropy(net(x), torch.where(torch.arange(8)[None] < lengths[:, None], y, -100))
penalty = (w @ w.T - torch.eye(4)).square().sum()
loss = criterion(net(x), y)
"""


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (SIMCLR, True),
        (NT_XENT, True),
        (CLIP, True),
        ("from losses import InfoNCE\nloss = InfoNCE()(a, b)", True),
        ("def info_nce_loss(features):\n    return features", True),
        ("loss = nn.CrossEntropyLoss()(logits, target=torch.arange(n))", True),
        ("distances = torch.pdist(outputs)", True),
        (ATTENTION, False),
    ],
)
def test_losses_that_compare_the_samples_of_a_batch(tmp_path: Path, code: str, found: bool) -> None:
    assert inspect_code(put(tmp_path, main=code), "main.py").declared.layers == (
        ("negatives from the same batch",) if found else ()
    )


def test_only_what_the_script_imports_counts(tmp_path: Path) -> None:
    put(
        tmp_path,
        main="from lib.model import Net\nNet()",
        lib__model="from . import parts\nNet = parts.X",
        lib__parts="X = 1",
    )
    put(tmp_path, other="import tidepool.torch\nimport argparse\nargparse.ArgumentParser().add_argument('--theirs')")
    assert inspect_code(tmp_path, "main.py").engine == "single"
    assert inspect_code(tmp_path, "main.py").declared.arguments == ()
    assert inspect_code(tmp_path, "other.py").engine == "elastic"
    (tmp_path / "lib/parts.py").write_text("import tidepool.torch\nX = 1")
    assert inspect_code(tmp_path, "main.py").engine == "elastic"


SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--optim", choices=["adam", "sgd"])
parser.add_argument("--amp", action="store_true")
parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--layers", nargs="+", type=int)
args = parser.parse_args()
"""


@pytest.fixture
def declared(tmp_path: Path) -> Declared:
    """Return the declarations as they come back from the database."""
    facts = inspect_code(put(tmp_path, main=SCRIPT), "main.py")
    assert facts.declared.is_complete
    return Declared.from_json(facts.declared.to_json())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"hiden": 8}, "The script declares no --hiden: did you mean hidden?"),
        ({"zzz": 8}, "The script declares no --zzz: it has amp, hidden, layers, optim, shuffle."),
        ({"hidden": "many"}, "The parameter hidden must be a number, such as 16."),
        ({"hidden": True}, "The parameter hidden must be a number, such as 16."),
        ({"optim": "lion"}, "The parameter optim must be one of adam, sgd."),
        ({"amp": 1}, "The parameter amp must be true or false: the script declares --amp without a value."),
        ({"hidden": 8, "optim": "sgd", "amp": True, "hid": 8}, None),
    ],
)
def test_what_a_script_would_not_take(declared: Declared, given: dict, sentence: str | None) -> None:
    assert list(declared.misfits(given).values()) == ([sentence] if sentence else [])


def test_a_script_that_takes_anything_is_asked_only_about_slips() -> None:
    declared = Declared((Argument("hidden"),))
    assert declared.misfits({"anything": 1}) == {}
    assert "did you mean hidden" in declared.misfits({"hiden": 1})["hiden"]
    assert declared.misfits({"hiden": 1}, {"hiden"}) == {}, "others take it"


@pytest.mark.parametrize(
    "more",
    [
        "parser.add_argument(NAME)",
        "parser.add_argument(*NAMES)",
        "sub = parser.add_subparsers()",
        "parser.parse_known_args()",
        "parser.add_argument('--rest', nargs=argparse.REMAINDER)",
        "parser.add_argument('--rest', nargs='...')",
        "other = argparse.ArgumentParser(parents=[elsewhere.parser])",
        "add = parser.add_argument",
        "deepspeed.add_config_arguments(parser)",
        "parser.parse_args([])",
        "parser.parse_args(words)",
        "import sys\nparser.parse_args(sys.argv[2:])",
        "import sys\nsys.argv.pop(1)",
        "from sys import argv",
    ],
)
def test_a_script_that_is_not_read_to_the_end_may_take_more(tmp_path: Path, more: str) -> None:
    facts = inspect_code(put(tmp_path, main=f"{SCRIPT}\n{more}\n"), "main.py")
    assert not facts.declared.is_complete


@pytest.mark.parametrize(
    "more",
    [
        "import sys\ndef main(words):\n    parser.parse_args(words)\nmain(sys.argv[1:])",
        "def main(argv=None):\n    parser.parse_args(argv)",
        "def declare(parser):\n    parser.add_argument('--other')\ndeclare(parser)",
    ],
)
def test_a_script_that_is_read_to_the_end(tmp_path: Path, more: str) -> None:
    facts = inspect_code(put(tmp_path, main=f"{SCRIPT}\n{more}\n"), "main.py")
    assert facts.declared.is_complete


@pytest.mark.parametrize(
    "words",
    [
        "--hidden 8 --optim=sgd --amp --no-shuffle --layers 1 2 -x --help",
        "--hid 8 --h -- --typo",
        "8 --3 -typo",
    ],
)
def test_words_that_a_script_may_take(declared: Declared, words: str) -> None:
    assert declared.unknown_words(words.split()) == []


def test_words_at_which_a_script_would_end(declared: Declared) -> None:
    assert declared.unknown_words(["--hiden", "8", "--hiden=9", "--zzz=1", "--mine"], {"mine"}) == [
        "The script declares no --hiden: did you mean hidden?",
        "The script declares no --zzz: it has amp, hidden, layers, optim, shuffle.",
    ]
    assert Declared((Argument("hidden"),)).unknown_words(["--hiden", "8"]) == [], "it may take others"
    assert declared.unknown_words(["--a word of --text"]) == []


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--lr 0.1 --epochs=3", {"lr": 0.1, "epochs": 3}),
        ("--lr -1e-3 --shift -.5", {"lr": -0.001, "shift": -0.5}),
        (
            "--lr nan --name 9e999 --id 99999999999999999999",
            {"lr": "nan", "name": "9e999", "id": 1e20},
        ),
        ("--amp data --lr 1", {"amp": True, "lr": 1}),
        ("--no-cache --cache", {"cache": True}),
        ("--cache --no-cache", {"cache": False}),
        ("--sizes 8 16 32 --lr 1", {"sizes": "8 16 32", "lr": 1}),
        ("--rate 0.2 --batch_si 4", {"lr": 0.2, "batch_size": 4}),
        ("--fast --slow", {"fast": True, "slow": True}),
        ("in.txt -v 3 --lr 1 -- --lr 2", {"lr": 1}),
        ("--text=a=b --empty=", {"text": "a=b", "empty": ""}),
        ("", {}),
    ],
)
def test_words_are_read_as_the_parameters_that_they_are(words: str, values: dict[str, object]) -> None:
    declared = Declared(
        (
            Argument("lr", is_number=True, aliases=("rate",)),
            Argument("amp", takes="flag"),
            Argument("cache", takes="switch"),
            Argument("sizes", takes="words"),
            Argument("batch_size"),
        )
    )
    assert declared.values_in(words.split()) == values
    assert {name: type(value) for name, value in declared.values_in(words.split()).items()} == {
        name: type(value) for name, value in values.items()
    }


def test_booleans_are_flags_and_several_values_words(declared: Declared) -> None:
    given = {"hidden": 8, "amp": True, "shuffle": False, "layers": "1 2 3", "other": True}
    words = ["--hidden", "8", "--amp", "--no-shuffle", "--layers", "1", "2", "3", "--other", "true"]
    assert declared.words(given) == words
    assert declared.words({"amp": False, "shuffle": True}) == ["--shuffle"]


@pytest.mark.parametrize(
    ("code", "processes"),
    [
        ("import lightning as L\nL.Trainer(max_epochs=3)", None),
        ("from lightning import Trainer\nTrainer(devices=4)", 4),
        ("import lightning as L\nL.Fabric(accelerator='gpu', devices='2', num_nodes=3)", 6),
        ("import lightning as L\nL.Trainer(devices=[0, 1])", 2),
        ("import lightning as L\nL.Trainer(devices=-1)", None),
        ("import lightning as L\nL.Trainer(devices='auto', num_nodes=2)", None),
        ("import lightning as L\nL.Trainer(devices=args.devices, num_nodes=2)", None),
        ("import lightning as L\nL.Trainer(num_nodes=2)", None),
        ("from transformers import Trainer\nTrainer(model)", None),
        ("build(devices=4)", None),
    ],
)
def test_the_number_of_processes_is_read_where_the_script_says_it(
    tmp_path: Path, code: str, processes: int | None
) -> None:
    declared = inspect_code(put(tmp_path, main=code), "main.py").declared
    assert declared.processes == processes
    assert Declared.from_json(declared.to_json()) == declared
    assert Declared.from_json({}).processes is None


@pytest.mark.parametrize(
    ("code", "imports"),
    [
        ("import mlflow", True),
        ("import mlflow.pytorch as m", True),
        ("from mlflow.tracking import MlflowClient", True),
        ("def train():\n    if rank == 0:\n        import mlflow", True),
        ("try:\n    import other\nexcept ImportError:\n    import mlflow", True),
        ("try:\n    import mlflow\nexcept ImportError:\n    mlflow = None", False),
        ("from .mlflow import x\nimport mlflows", False),
        ("print('mlflow')", False),
    ],
)
def test_imports_in_functions_count_and_those_that_are_tried_do_not(tmp_path: Path, code: str, imports: bool) -> None:
    assert imports_within(put(tmp_path, main=code), "main.py", "mlflow") is imports


@pytest.mark.parametrize(
    ("imports", "engine"),
    [
        ("import tidepool\nprint(tidepool.trial().params)", "single"),
        ("from tidepool import trial", "single"),
        ("from tidepool.torch import Session", "elastic"),
        ("import tidepool.torch as tp", "elastic"),
        ("from tidepool import torch", "elastic"),
        ("import tidepool\nfrom tidepool.torch import prepare", "elastic"),
    ],
)
def test_a_plain_script_may_read_its_trial(tmp_path: Path, imports: str, engine: str) -> None:
    (tmp_path / "main.py").write_text(f"{imports}\n")
    assert inspect_code(tmp_path, "main.py").engine == engine
