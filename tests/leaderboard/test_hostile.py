"""Files from strangers: each is refused with a clear message or harmless, and nothing of it stays behind."""

import io
import os
import pickle
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from policy_files import CHOICES, FEATURES, described, file, node, numbers, recurrent, whole

from onco_gym.agents import AgentError
from onco_gym.agents.onnx_check import NODES, sealed, unsealed
from onco_gym.agents.onnx_policy import LARGEST
from onco_gym.interfaces.engine import make_engine
from onco_gym.leaderboard import processes, validating
from onco_gym.leaderboard.sandbox import FAILED, Confined
from onco_gym.leaderboard.validating import validate

BASELINE = Path(__file__).parents[2] / "baselines" / "policies" / "NSCLC-v0" / "ppo-0.onnx"
HUGE = 2**20
RULE, MADE = (node("MatMul", "observation,weights", name) for name in ("scores", "made"))


def our_processes():
    """How many processes are ours and not yet gone; 0 on systems without /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # others come and go
            found.append(path.read_text())
    return sum(f"PPid:\t{os.getpid()}\n" in one for one in found)


@pytest.fixture(scope="module")
def engine():
    found = make_engine("nsclc", terms=("outcome",), horizon=4, split="validation")
    assert (len(found.kind.fields), found.kind.mask_size) == (FEATURES, CHOICES)
    return found


@pytest.fixture(autouse=True)
def nothing_stays():
    """No process, and no file that is open."""
    before = our_processes(), len(os.listdir("/dev/fd"))
    yield
    assert (our_processes(), len(os.listdir("/dev/fd"))) == before


def zipped(content):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy.onnx", content)
    return packed.getvalue()


class _Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/unpickled",)


def elsewhere(location, **more):
    """A tensor whose numbers are somewhere else."""
    entries = [onnx.StringStringEntryProto(key=key, value=value) for key, value in {"location": location, **more}.items()]
    tensor = onnx.TensorProto(name="hidden", data_type=1, dims=[8], external_data=entries, data_location=1)
    return file(RULE, tensors=[tensor])


def within(operator, *inputs, **settings):
    """An operator with a graph in it."""
    body = onnx.GraphProto(name="body", node=[node("Relu", "observation", "inner")])
    return file(RULE, node(operator, ",".join(inputs), "more", body=body, **settings))


def beside(*nodes, tensors=(), **more):
    """A policy that computes something else as well."""
    return file(RULE, *nodes, tensors=tensors, **more)


def flipped(content, place):
    changed = bytearray(content)
    changed[place] ^= 64
    return bytes(changed)


GOOD = sealed(unsealed(BASELINE.read_bytes()))
FUNCTION = onnx.FunctionProto(
    name="mine",
    domain="mine",
    input=["x"],
    output=["y"],
    node=[node("Relu", "x", "y")],
    opset_import=[helper.make_opsetid("", 17)],
)
ROW = [whole("long", 1, HUGE), whole("tall", HUGE, 1)]
ROWS = [node("ConstantOfShape", "long", "row"), node("ConstantOfShape", "tall", "column")]
REFUSED = {  # what is said
    "nothing": (b"", "not an ONNX file, or is damaged"),
    "a part": (GOOD[: len(GOOD) // 2], "checksum|damaged"),
    "too large": (bytes(LARGEST + 1), "too many bytes, expected at most"),
    "zip": (zipped(GOOD), "damaged"),
    "zip bomb": (zipped(bytes(2**25)), "damaged"),
    "random bytes": (np.random.default_rng(0).bytes(5000), "damaged"),
    "web page": (b"<!DOCTYPE html><script>alert(1)</script>", "damaged"),
    "pickle": (pickle.dumps(_Evil()), "damaged"),
    "a byte flipped in the weights": (flipped(GOOD, len(GOOD) // 2), "checksum"),
    "a byte flipped in the graph": (flipped(GOOD, 9), "checksum|damaged"),
    "checksum that lies": (file() + sealed(b"")[-76:], "checksum"),
    "ORT format": (b"\x28\x00\x00\x00ORTM" + GOOD, "damaged"),
    "external data": (elsewhere("/etc/passwd"), "external_data|another file"),
    "external data up the path": (elsewhere("../../../../etc/shadow"), "external_data|another file"),
    "external data through a link": (elsewhere("/proc/self/fd/0"), "external_data|another file"),
    "data at an address in memory": (
        elsewhere("*/_ORT_MEM_ADDR_/*", offset="94000000", length="32"),
        "external_data|another file",
    ),
    "operator of another domain": (beside(node("Mine", "observation", "a", domain="com.example")), "'Mine' of 'com.example'"),
    "operator of Microsoft": (beside(node("Gelu", "observation", "a", domain="com.microsoft")), "'Gelu' of 'com.microsoft'"),
    "operator of ai.onnx.ml": (
        beside(node("ArrayFeatureExtractor", "observation,long", "a", domain="ai.onnx.ml"), tensors=ROW),
        "'ArrayFeatureExtractor' of 'ai.onnx.ml'",
    ),
    "functions": (
        file(more=onnx.ModelProto(functions=[FUNCTION]).SerializeToString()),
        "holds functions, which policies may not use",
    ),
    "training": (
        file(more=onnx.ModelProto(training_info=[onnx.TrainingInfoProto()]).SerializeToString()),
        "holds training_info",
    ),
    "endless loop": (within("Loop", "", "", "observation"), "'Loop', which policies may not use|holds g"),
    "condition": (within("If", "observation"), "'If', which policies may not use|holds g"),
    "scan": (within("Scan", "observation", num_scan_inputs=1), "'Scan', which policies may not use|holds g"),
    "chance": (beside(node("RandomNormalLike", "observation", "a")), "'RandomNormalLike', which policies may not use"),
    "sparse": (
        file(sparse_initializer=[helper.make_sparse_tensor(numbers("big", [1.0]), whole("where", 0), [HUGE * HUGE])]),
        "holds sparse_initializer",
    ),
    "text": (
        beside(tensors=[helper.make_tensor("words", TensorProto.STRING, [1], [b"x"])]),
        "holds numbers of type 8",
    ),
    "product that fills the memory": (beside(*ROWS, node("MatMul", "column,row", "big"), tensors=ROW), "MatMul"),
    "expansion that fills the memory": (
        beside(node("Expand", "observation,sizes", "big"), tensors=[whole("sizes", HUGE, 1, FEATURES)]),
        "computes too much, in Expand",
    ),
    "tiles that fill the memory": (
        beside(node("Tile", "observation,times", "big"), tensors=[whole("times", HUGE, HUGE)]),
        "computes too much, in Tile|cannot compute",
    ),
    "constant of absurd size": (
        beside(node("ConstantOfShape", "sizes", "big"), tensors=[whole("sizes", 2**62, 2**62)]),
        "it asks for too large a size",
    ),
    "many operators": (beside(*(node("Relu", "observation", f"a{k}") for k in range(NODES))), "expected at most 2048"),
    "divisions that crash": (
        beside(
            node("Cast", "observation", "whole", to=7),
            node("Add", "whole,lowest", "least"),
            node("Div", "least,last", "big"),
            tensors=[whole("lowest", -(2**63)), whole("last", -1)],
        ),
        "divides whole numbers by numbers that may not be positive",
    ),
    "wrong width": (file(observation=described("observation", "n", 7)), r"\('n', 7\) as observation.*\(n, \d+\)"),
    "wrong rank": (file(observation=described("observation", "n", 1, FEATURES)), "as observation.*gives float32"),
    "wrong type": (
        file(observation=described("observation", "n", FEATURES, kind=TensorProto.DOUBLE)),
        "takes float64 of shape .* as observation",
    ),
    "batch of one size": (file(observation=described("observation", 1, FEATURES)), "expected a batch axis of free size"),
    "another input": (file(inputs=[described("key", "n", 2)]), r"takes \['observation', 'key'\]"),
    "no scores": (file(node("MatMul", "observation,weights", "action")), "scores"),
    "scores of another type": (
        file(MADE, node("Cast", "made", "scores", to=11)),
        "is not an ONNX model that can be run",
    ),
    "scores of another width": (file(node("Identity", "observation", "scores")), rf"\(1, {FEATURES}\), expected float32"),
    "scores that are no numbers": (
        file(MADE, node("Log", "made", "low"), node("Sub", "low,low", "scores")),
        "returns scores with numbers that are not finite",
    ),
    "scores without end": (
        file(MADE, node("Reciprocal", "made", "scores")),
        "returns scores with numbers that are not finite",
    ),
    "state that does not come out": (recurrent(outputs=()), "needs both 'state_in' and 'state_out'"),
    "state that does not go in": (
        file(RULE, node("Relu", "observation", "state_out"), outputs=[described("state_out", "n", FEATURES)]),
        "needs both 'state_in' and 'state_out'",
    ),
    "state of free width": (recurrent(state=described("state_in", "n", "s")), "S from 1 to 4096"),
    "state that grows": (
        file(
            RULE,
            node("Concat", "state_in,observation", "state_out", axis=1),
            inputs=[described("state_in", "n", 4)],
            outputs=[described("state_out", "n", 4 + FEATURES)],
        ),
        rf"returns state_out of float32 and shape \(1, {4 + FEATURES}\), expected float32 and shape \(1, 4\)",
    ),
    "state too large": (recurrent(width=5000), "S from 1 to 4096"),
    "names of another world": (
        beside(node("Relu'); DROP TABLE entries;--\n\x1b[2J<script>", "observation", "a")),
        r"uses operator .*DROP TABLE",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_file_is_refused_with_a_clear_message(name, engine):
    content, said = REFUSED[name]
    begun = time.monotonic()
    with pytest.raises(AgentError, match=said) as error:
        Confined(engine, content)
    message = str(error.value)
    assert message.startswith("the policy ")
    assert message.isprintable()
    assert len(message) <= 1000
    assert time.monotonic() - begun < 20


def test_a_pickle_is_not_unpickled():
    assert not Path("/tmp/unpickled").exists()


COUNT = node("Shape", "made", "shape"), node("Gather", "shape,first", "n", axis=0)
LOOKING = {
    "mean of the batch": [node("ReduceMean", "made", "mean", axes=[0]), node("Add", "made,mean", "scores")],
    "softmax over patients": [node("Softmax", "made", "scores", axis=0)],
    "best of the batch": [
        node("ReduceMax", "made", "best", axes=[0]),
        node("Less", "made,best", "less"),
        node("Where", "less,made,zero", "scores"),
    ],
    "next patient": [
        *COUNT,
        node("Add", "n,one", "end"),
        node("Concat", "made,made", "twice", axis=0),
        node("Slice", "twice,one,end,first", "scores"),
    ],
    "size of the batch": [
        *COUNT,
        node("Cast", "n", "count", to=1),
        node("Sub", "count,many", "turn"),
        node("Mul", "made,turn", "scores"),
    ],
}


@pytest.mark.parametrize("name", LOOKING)
def test_a_policy_that_looks_at_other_patients_is_refused(name, engine):
    tensors = [whole("first", 0), whole("one", 1), numbers("many", [20.5]), numbers("zero", [0.0])]
    content = file(MADE, *LOOKING[name], tensors=tensors)
    found = validate(engine, content, 2000)
    assert "depend on the rest of the batch" in found.reason
    assert found.walls


def test_a_policy_whose_memory_mixes_patients_is_refused(engine):
    mixing = node("ReduceMean", "state_in", "mean", axes=[0]), node("Add", "state_in,mean", "told")
    assert not validate(engine, recurrent(), 2000).reason
    assert "depend on the rest of the batch" in validate(engine, recurrent(*mixing), 2000).reason


def test_a_policy_that_fails_only_later_is_refused(engine):
    """It answers where all is zero, as when it is loaded, but not where a patient is."""
    nodes = MADE, node("Exp", "made", "a"), node("Exp", "a", "b"), node("Exp", "b", "scores")
    assert "not finite" in validate(engine, file(*nodes), 2000).reason


TELLING = {  # what is observed of a patient is in the error, and so is how many are like that
    "an index of the patient": (
        [
            MADE,
            node("ReduceMax", "observation", "most", axes=[1], keepdims=0),
            node("Mul", "most,large", "far"),
            node("Cast", "far", "index", to=7),
            node("Gather", "weights,index", "found", axis=0),
            node("ReduceMax", "found", "low", axes=[1]),
            node("Add", "made,low", "scores"),
        ],
        r"idx=\d{4}",
    ),
    "patients who get another decision": ([MADE, *LOOKING["size of the batch"]], r"\d+ of \d+ were others"),
    "numbers that are not finite": ([MADE, node("Mul", "made,large", "a"), node("Exp", "a", "scores")], "not finite"),
}


@pytest.mark.parametrize("name", TELLING)
def test_how_a_policy_fails_on_secret_patients_is_not_told(name, engine):
    nodes, said = TELLING[name]
    content = file(*nodes, tensors=[numbers("large", [12345.0]), numbers("many", [40.5]), whole("first", 0)])
    seen = np.random.default_rng(0).random((64, FEATURES), np.float32)
    mask = np.ones((64, CHOICES), bool)
    with Confined(engine, content) as policy, pytest.raises(AgentError, match=said):
        policy.act(seen, mask)
    with Confined(engine, content, secret=True) as policy, pytest.raises(AgentError) as error:
        policy.act(seen, mask)
    assert str(error.value) == FAILED


WIDE = [  # as many numbers for a patient as a file may ask for, again and again
    MADE,
    node("ReduceMax", "made", "least", axes=[1]),
    node("ConstantOfShape", "sizes", "wide"),
    node("Add", "wide,least", "a"),
    node("Erf", "a", "b"),
    node("Erf", "b", "c"),
    node("Erf", "c", "d"),
    node("ReduceMax", "d", "most", axes=[1]),
    node("Add", "made,most", "scores"),
]


@pytest.fixture
def busy(monkeypatch):
    """A machine that is busy with others: a process that is late may have computed for little of its time."""
    monkeypatch.setattr(processes, "SHARE", 0.02)


def test_a_slow_policy_is_ended_in_time(monkeypatch, engine, busy):
    with Confined(engine, file(*WIDE, tensors=[whole("sizes", 1, 4 * HUGE)])) as policy:
        monkeypatch.setattr(processes, "CALL_SECONDS", 1.5)
        begun = time.monotonic()
        with pytest.raises(AgentError, match=r"takes too long: expected at most 1\.5 s for a call"):
            policy.scores(np.zeros((1000, FEATURES), np.float32))
        assert time.monotonic() - begun < 10
        with pytest.raises(AgentError, match="the policy's process has ended"):
            policy.scores(np.zeros((1, FEATURES), np.float32))


def test_a_policy_that_takes_much_memory_is_ended(monkeypatch, engine):
    """As much as a file may ask for is half a gigabyte. Here the process may have less than that."""
    small = "from onco_gym.leaderboard import runner; runner.MEMORY = 2**29; runner.main()"
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-I", "-c", small))
    ones = node("ConstantOfShape", "sizes", "ones", value=whole("", 1))
    with pytest.raises(AgentError, match=r"memory|alloc"):
        Confined(engine, beside(ones, tensors=[whole("sizes", 60 * HUGE)]))
    with Confined(engine, file()) as policy:
        assert policy.walls


def test_the_time_of_a_validation_is_limited(monkeypatch, engine, busy):
    monkeypatch.setattr(validating, "SECONDS", 6.0)
    begun = time.monotonic()
    found = validate(engine, file(*WIDE, tensors=[whole("sizes", 1, 4 * HUGE)]), 2000)
    assert found.reason == "the policy's process takes too long: expected at most 60 s for a call and 6 s in all"
    assert time.monotonic() - begun < 30


def test_all_time_together_is_limited(monkeypatch, engine, busy):
    monkeypatch.setattr(processes, "ALL_SECONDS", 1.5)
    seen = np.zeros((2000, FEATURES), np.float32)
    begun = time.monotonic()

    def asked_forever(policy):
        while time.monotonic() - begun < 30:
            policy.scores(seen)

    with Confined(engine, file()) as policy, pytest.raises(AgentError, match=r"takes too long: .* and 1\.5 s in all"):
        asked_forever(policy)


def test_names_are_only_names(engine):
    strange = "<img src=x onerror=alert(1)>'; DROP TABLE entries; --"
    model = onnx.ModelProto.FromString(file(node("MatMul", "observation,weights", "scores", name=strange)))
    model.producer_name = model.graph.name = model.doc_string = strange
    helper.set_model_props(model, {strange: strange, "environment": "../../etc/passwd", "onco_gym": "\x00\x1b[31m"})
    assert not validate(engine, model.SerializeToString(), 2000).reason
