"""Detection of scripts that train on several GPUs, in one process per GPU or in one process for all of them."""

from pathlib import Path

import pytest

from models_registry.code_inspection import inspect_code

_GROUP = "import torch.distributed as dist\ndist.init_process_group('gloo', rank=rank, world_size=size)\n"


def engine(folder: Path, code: str, **others: str) -> tuple[str, bool]:
    for name, text in {"main": code, **others}.items():
        (folder / f"{name}.py").write_text(text)
    facts = inspect_code(folder, "main.py")
    return facts.engine, facts.declared.uses_several_gpus


@pytest.mark.parametrize(
    "code",
    [
        "from torch.distributed.device_mesh import init_device_mesh\nmesh = init_device_mesh('cuda', (2,))",
        "import torch.distributed.device_mesh as meshes\nmesh = meshes.init_device_mesh('cuda', (2,))",
        "from torch.distributed.fsdp import fully_shard as shard\nshard(model)",
        "import torch\ndef wrap(model):\n    return torch.distributed.fsdp.fully_shard(model)",
        "from transformers import Seq2SeqTrainer\nSeq2SeqTrainer()",
        "import transformers as hf\nhf.Seq2SeqTrainer()",
        "from transformers import Trainer as Base\nclass Own(Base):\n    pass",
        "from transformers import *\nTrainer()",
        "from trl import SFTTrainer\nSFTTrainer()",
        "import trl\ndef main():\n    trl.DPOTrainer()",
        "from trl.trainer.grpo_trainer import GRPOTrainer\nGRPOTrainer()",
        "from sentence_transformers import SentenceTransformerTrainer\nSentenceTransformerTrainer()",
        "from torchtune import training\ntraining.init_distributed(backend='gloo')",
        "import lightning_fabric\nlightning_fabric.Fabric()",
        "from torchtitan.train import Trainer\nTrainer()",
        # Both ways: the environment of torchrun is looked for.
        "import os, torch.multiprocessing as mp\n"
        "if 'LOCAL_RANK' in os.environ:\n    main()\nelse:\n    mp.spawn(main, nprocs=2)\n",
        # A pool for data is no group of ranks.
        "from multiprocessing import Pool\nimport torch.distributed as dist\ndist.init_process_group('nccl')\nPool(2)",
        "import os, multiprocessing as mp\nfrom torch.distributed import init_process_group\n"
        "init_process_group('nccl', rank=int(os.environ['RANK']), world_size=2)\nmp.Process(target=load).start()",
        "import subprocess\nimport torch.distributed as dist\n'''torchrun --nproc-per-node 2 main.py'''\n"
        "dist.init_process_group()\nsubprocess.run(['git', 'rev-parse', 'HEAD'])\nprint('torchrun is needed')",
        "import subprocess, accelerate\nsubprocess.run(['pip', 'install', 'deepspeed'])",
    ],
)
def test_one_process_per_gpu(tmp_path: Path, code: str) -> None:
    assert engine(tmp_path, code) == ("fixed", False)


@pytest.mark.parametrize(
    "code",
    [
        f"import torch.multiprocessing as mp\n{_GROUP}mp.spawn(main, nprocs=4)",
        f"from torch import multiprocessing as mp\n{_GROUP}mp.spawn(main, nprocs=4)",
        f"import torch\n{_GROUP}torch.multiprocessing.spawn(main, nprocs=4)",
        f"import torch.multiprocessing\n{_GROUP}torch.multiprocessing.spawn(main, nprocs=4)",
        f"from torch.multiprocessing import spawn as launch\n{_GROUP}def main():\n    launch(train, nprocs=4)",
        f"import torch\nmp = torch.multiprocessing\n{_GROUP}mp.start_processes(main, nprocs=4)",
        f"import torch.multiprocessing as mp\n{_GROUP}mp.Process(target=main, args=(0, 4)).start()",
        f"import torch.multiprocessing as mp\n{_GROUP}mp.get_context('spawn').Process(target=main).start()",
        f"from multiprocessing import Process\n{_GROUP}[Process(target=main, args=(r,)) for r in range(2)]",
        "import os, torch.multiprocessing as mp\ndef main(rank):\n    os.environ['LOCAL_RANK'] = str(rank)\n"
        "    use(os.environ['LOCAL_RANK'])\nmp.spawn(main, nprocs=4)",
        "from accelerate import notebook_launcher\nnotebook_launcher(main, num_processes=4)",
        "import accelerate\naccelerate.notebook_launcher(main, num_processes=4)",
        "import subprocess, sys\nsubprocess.run(['torchrun', '--nproc-per-node', '4', 'train.py'])",
        "from subprocess import check_call as call\nimport sys\n"
        "call([sys.executable, '-m', 'torch.distributed.run', 'train.py'])",
        "import os\nos.system('accelerate launch train.py --epochs 3')",
        "import os\nos.system(f'CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node={n} train.py')",
        "import os\nos.execvp('torchrun', ['torchrun', 'train.py'])",
        "import shlex, subprocess\nCOMMAND = 'accelerate launch --num_processes 2 train.py'\n"
        "def main():\n    subprocess.Popen(shlex.split(COMMAND))",
        "from torch.distributed.launcher.api import elastic_launch\nelastic_launch(config, main)()",
        "from detectron2.engine import launch\nlaunch(main, num_gpus_per_machine=4)",
        "import torch\nmodel = torch.nn.DataParallel(model)",
        "import tensorflow as tf\nwith tf.distribute.MirroredStrategy().scope():\n    pass",
        "from transformers import AutoModel\nAutoModel.from_pretrained('x', device_map='auto')",
    ],
)
def test_one_process_for_several_gpus(tmp_path: Path, code: str) -> None:
    assert engine(tmp_path, code) == ("single", True)


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\nnp.random.SeedSequence(1).spawn(4)",
        "import multiprocessing\nmultiprocessing.Pool(4)",
        "import transformers\nfrom trainer import Trainer\nTrainer()",
        "from transformers import AutoModel\nclass Trainer:\n    pass\nTrainer()",
        "import subprocess\nsubprocess.run(['nvidia-smi'])",
    ],
)
def test_one_process_on_one_gpu(tmp_path: Path, code: str) -> None:
    assert engine(tmp_path, code) == ("single", False)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import lightning as L\nL.Trainer(devices=2, num_nodes=2)", True),
        ("from pytorch_lightning import Trainer\nTrainer()", True),
        ("import os\nint(os.environ['LOCAL_RANK']), int(os.environ['LOCAL_WORLD_SIZE'])", True),
        ("import os\nint(os.environ['LOCAL_RANK'])", False),
        ("from transformers import Trainer\nTrainer()", False),
        ("print('LOCAL')", False),
    ],
)
def test_code_that_needs_as_many_processes_on_each_host(tmp_path: Path, code: str, expected: bool) -> None:
    (tmp_path / "main.py").write_text(code)
    assert inspect_code(tmp_path, "main.py").declared.needs_equal_hosts is expected


def test_processes_are_started_behind_an_import_of_the_folder(tmp_path: Path) -> None:
    helper = f"import torch.multiprocessing as mp\n{_GROUP}def launch(main):\n    mp.spawn(main, nprocs=2)"
    assert engine(tmp_path, "from parallel import launch\nlaunch(print)", parallel=helper) == ("single", True)
