import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UserError
from wmla.arguments import MAX_ARGS, Arguments, accepted_arguments, add_hardware, parse_arguments, script_words
from wmla.service_info import framework_named

NOTEBOOK = (
    "--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=mnist \\\n"
    "                     --model-dir pytorch_edt      --edt-options maxWorkers=4\\\n"
    " --model-main pytorch_mnist_EDT.py\n   --epochs 10 --lr 0.01"
)


def test_a_notebooks_text_is_read_in_spite_of_its_blanks() -> None:
    read = parse_arguments(NOTEBOOK)
    assert (read.framework, read.model_dir, read.model_main) == ("edtPyTorch", "pytorch_edt", "pytorch_mnist_EDT.py")
    assert (read.data_path, read.max_workers, read.has_edt_options) == ("mnist", 4, True)
    assert read.script == ["--epochs", "10", "--lr", "0.01"]
    assert read.without_effect == []


def test_the_scripts_own_words_keep_their_order_and_their_characters() -> None:
    read = parse_arguments("a --x '$(rm -rf /); `id` | b' --model-main m.py -- --model-main other --exec-start y --")
    assert read.script == ["a", "--x", "$(rm -rf /); `id` | b", "--model-main", "other", "--exec-start", "y", "--"]
    assert read.model_main == "m.py"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("--workers 4", ["--workers", "4"]),
        ("--driver x", ["--driver", "x"]),
        ("--model x", ["--model", "x"]),
        ('--name "two words"', ["--name", "two words"]),
        ("--empty ''", ["--empty", ""]),
        (r"--path a\ b", ["--path", "a b"]),
        ("--note '# not a comment'", ["--note", "# not a comment"]),
        ("", []),
    ],
)
def test_what_only_looks_like_the_launchers_is_the_scripts(text: str, script: list[str]) -> None:
    assert parse_arguments(text).script == script


def test_options_for_ibms_machines_are_taken_out_and_named() -> None:
    read = parse_arguments(
        "--workerDeviceType cpu --conda-env-name dlipy3 --msd-attr A=b --exclusive --gpuPerWorker 2 --lr 1 "
        "--workerDeviceNum=1"
    )
    assert read.script == ["--lr", "1"]
    assert read.without_effect == [
        *("--workerDeviceType", "--conda-env-name", "--msd-attr", "--exclusive"),
        "--gpuPerWorker 2 (each worker has one GPU)",
    ]


@pytest.mark.parametrize(
    "option",
    [
        *("--submit-user alice", "--consumer /sample", "--conda-env-name dlipy3", "--conda-home /opt/anaconda3"),
        *("--conda-env-yaml env.yaml", "--conda-env-package p.tar", "--conda-package p.tar", "--python-version 3.7"),
        *("--cs-rmq-meta host=h", "--cs-url-meta https://h", "--cs-url-bearer x", "--sc-runasuser 1000"),
        *("--workerDeviceType gpu", "--workerMemory 8g", "--workerCPULimit 2", "--workerMemoryLimit 8g"),
        *("--workerGPULimit 1", "--numPs 1", "--numDriver 1", "--driverDeviceType cpu", "--driverDeviceNum 0"),
        *("--driverMemory 1g", "--driverCPULimit 1", "--driverMemoryLimit 2g", "--exclusive", "--accelerators a"),
        *("--msd-attr a=b", "--msd-label a=b", "--msd-image-name i", "--msd-image-pull-secret s"),
        *("--msd-image-pull-policy Never", "--msd-task0-node-selector a=b", "--msd-task12n-node-selector a=b"),
        *("--msd-pending-timeout 60", "--msd-podaffinity-rule required", "--msd-podaffinity-topology-key zone"),
        *("--msd-pack-id 7", "--lsf-gpu-syntax num=1", "--debug-level debug"),
    ],
)
def test_each_option_that_means_nothing_here_is_taken_out_and_named(option: str) -> None:
    read = parse_arguments(f"--exec-start PyTorch {option} --lr 1")
    assert (read.script, read.without_effect) == (["--lr", "1"], [option.split()[0]])


def test_marks_stand_for_quotation_marks() -> None:
    read = parse_arguments("--appName _QUOTE_my run_QUOTE_ --note _QUOTE_two  words_QUOTE_ --x=_QUOTE_a b_QUOTE_")
    assert read.app_name == "my run"
    assert read.script == ["--note", "two  words", "--x=a b"]


def test_an_absolute_script_is_the_senders_and_only_its_name_counts() -> None:
    read = parse_arguments("--exec-start tensorflow --model-main /gpfs/mydatafs/models/Xgboost_main.py")
    assert read.model_main == "Xgboost_main.py"


def test_variables_are_the_scripts_each_by_an_option_of_its_own() -> None:
    read = parse_arguments(
        "--msd-env HF_HOME=/tmp --msd-env=EMPTY= --msd-env 'WORDS=two words' --msd-env URL=a=b --lr 1"
    )
    assert read.environment == {"HF_HOME": "/tmp", "EMPTY": "", "WORDS": "two words", "URL": "a=b"}
    assert (read.script, read.without_effect) == (["--lr", "1"], [])


def test_what_was_accepted_once_never_ends_what_reads_it_again() -> None:
    assert accepted_arguments("--exec-start PyTorch --msd-env A=b").environment == {"A": "b"}
    assert accepted_arguments("--msd-env TIDEPOOL_X=1 'half") == Arguments()


def hardware(**nodes: object) -> dict[str, object]:
    return {"nodes": nodes}


def test_hardware_names_the_most_workers() -> None:
    read = parse_arguments("--exec-start distPyTorch")
    asked = hardware(num_nodes=4, mem={"size": "16g"}, gpu={"num_gpu": 2}, cpu={"units": "0.25"})
    add_hardware(read, {**asked, "name": "large"})
    assert read.max_workers == 4
    assert read.without_effect == [
        "hardwareSpec in data: num_gpu 2 (each worker has one GPU)",
        *("hardwareSpec name", "hardwareSpec mem", "hardwareSpec cpu"),
    ]


def test_hardware_without_a_gpu_gets_one() -> None:
    read = parse_arguments("--exec-start PyTorch --numWorker 2")
    add_hardware(read, hardware(num_nodes=8, gpu={"num_gpu": 0}))
    assert (read.max_workers, read.without_effect) == (2, ["hardwareSpec in data: num_gpu 0 (each worker has one GPU)"])


@pytest.mark.parametrize(
    "asked",
    [
        *(4, [], "4", {"nodes": 4}, {"nodes": [1]}, hardware(num_nodes=0), hardware(num_nodes="many")),
        *(hardware(num_nodes=None), hardware(num_nodes=True), hardware(gpu=1), hardware(gpu={"num_gpu": []})),
    ],
)
def test_hardware_of_another_shape_is_refused(asked: object) -> None:
    with pytest.raises(UserError, match=r"^hardwareSpec in data"):
        add_hardware(parse_arguments("--exec-start PyTorch"), asked)


def test_a_data_source_names_the_folder_and_counts_before_the_meta_data() -> None:
    source = """--data-source '[{"type": "fs", "location": {"paths": "mnist"}}]'"""
    for text in (source, f"--cs-datastore-meta type=fs,data_path=x {source}", f"{source} --cs-datastore-meta type=fs"):
        read = parse_arguments(text)
        assert (read.data_path, read.script, read.without_effect) == ("mnist", [], [])


def test_the_smaller_of_two_limits_counts() -> None:
    assert parse_arguments("--numWorker 16 --edt-options maxWorkers=4").max_workers == 4


def test_names_and_numbers_of_the_submission() -> None:
    read = parse_arguments("--appName 'My run' --msd-priority 7000 --ig sig-elastic --exec-start=PyTorch")
    assert (read.app_name, read.priority, read.instance_group) == ("My run", 7000, "sig-elastic")
    assert read.framework == "PyTorch"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--model-main ../../x", "a path inside the upload"),
        ("--model-main /models/", "a path inside the upload"),
        ("--model-main /models/..", "a path inside the upload"),
        ("--model-main 'a\nb.py'", "a path inside the upload"),
        ("--model-main a//b.py", "a path inside the upload"),
        ("--model-main .hidden", "a path inside the upload"),
        ("--model-main ''", "a path inside the upload"),
        ("--model-main 'a\\b'", "a path inside the upload"),
        ("--model-dir ../x", "a path inside the upload"),
        ("--model-dir a/b", "without a slash"),
        ("--model-main", "no value"),
        ("--model-main --epochs 1", "no value"),
        ("--msd-env A", "NAME=value"),
        ("--msd-env 1A=b", "NAME=value"),
        ("--msd-env 'A B=c'", "NAME=value"),
        ("--msd-env =b", "NAME=value"),
        ("--msd-env TIDEPOOL_FAULT=x", "that the cluster sets"),
        ("--numWorker many", "whole number"),
        ("--numWorker 0", "whole number"),
        ("--numWorker ١", "whole number"),
        ("--edt-options maxWorkers", "key=value"),
        ("--edt-options maxWorkers=-1", "whole number"),
        ("--cs-datastore-meta type=rmq", "only type=fs"),
        ("--data-source mnist", "must be a list like"),
        ('--data-source \'[{"type": "s3"}]\'', "a single folder of type fs"),
        ("--pbmodel-name AlexNet", "not supported"),
        ("--pbmodel-cmd x", "not supported"),
        ("--note _QUOTE_two words", "check the quotation marks"),
        ("--msd-priority high", "whole number"),
        ("--user-cmd", "has no command"),
        ("--user-cmd --", "has no command"),
        ("--user-cmd -- ''", "has no command"),
        ("--user-cmd ls -- -l", "precedes the -- of --user-cmd"),
        ("--lr 'unclosed", "check the quotation marks"),
        ("--lr \\", "check the quotation marks"),
        ("--lr \0", "NUL"),
        ("x" * (MAX_ARGS + 1), "at most"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse_arguments(text)
    assert caught.value.status == 400
    assert "\n" not in caught.value.message


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = parse_arguments(text)
    except UserError:
        return
    assert all(isinstance(word, str) for word in read.script)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)))
def test_everything_behind_two_dashes_arrives_as_it_is(words: list[str]) -> None:
    import shlex

    joined = shlex.join(words)
    if "\\\n" not in joined:
        assert parse_arguments(f"--exec-start PyTorch -- {joined}").script == words


def words(text: str, declared: str = "", *, strict: bool = False, on_prem: bool = True) -> list[str]:
    read: Arguments = parse_arguments(text)
    limit = min(read.max_workers or 99, 8)
    names = frozenset(declared.split())
    return script_words(read, limit, declared=names, refuses_unknown=strict, is_on_prem=on_prem)


def test_the_limit_reaches_scripts_of_on_prem_as_num_worker() -> None:
    assert words("--edt-options maxWorkers=4 --epochs 1") == ["--numWorker", "4", "--epochs", "1"]
    assert words("--edt-options maxWorkers=16") == ["--numWorker", "8"]


def test_a_script_that_refuses_unknown_options_gets_none() -> None:
    assert words("--edt-options maxWorkers=4 --lr 1", strict=True) == ["--lr", "1"]
    assert words("--edt-options maxWorkers=4", "numWorker", strict=True) == ["--numWorker", "4"]
    assert words("--numWorker 2 --epochs 1", "epochs", strict=True, on_prem=False) == ["--epochs", "1"]


def test_scripts_of_cloud_pak_get_what_they_declare() -> None:
    assert words("--numWorker 2", on_prem=False) == []
    assert words("--numWorker 2 --gpuPerWorker 1", "numWorker gpuPerWorker", on_prem=False) == [
        *("--numWorker", "2"),
        *("--gpuPerWorker", "1"),
    ]


def test_a_command_is_left_as_it_is() -> None:
    text = "--exec-start distPyTorch --numWorker 4 --user-cmd -- bash run.sh --numWorker 2 -- x"
    assert words(text, "numWorker") == ["bash", "run.sh", "--numWorker", "2", "--", "x"]
    assert words("--edt-options maxWorkers=4 --user-cmd -- ls") == ["ls"]


def test_a_number_of_the_scripts_own_stays() -> None:
    assert words("--edt-options maxWorkers=4 -- --numWorker 2") == ["--numWorker", "2"]


@pytest.mark.parametrize("name", ["edtPyTorch", "PyTorch", "distPyTorch", "edtpytorch"])
def test_frameworks_that_run_here(name: str) -> None:
    assert framework_named(name).name.lower() == name.lower()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "names no framework"),
        ("edtTensorflow", "not supported"),
        ("XGboost", "not supported"),
        ("torch", "not known"),
    ],
)
def test_other_frameworks_are_refused_with_those_there_are(name: str, said: str) -> None:
    with pytest.raises(UserError, match=f"{said}.*edtPyTorch, PyTorch, distPyTorch"):
        framework_named(name)
