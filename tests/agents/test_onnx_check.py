"""Policy files that are damaged or hostile are refused; the shapes that are worked out beforehand are those of onnxruntime."""

import itertools
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from conftest import ROOT, refuses

from onco_gym.agents import AgentError, OnnxAgent, save_mlp_onnx
from onco_gym.agents import onnx_check as check
from onco_gym.agents.onnx_shapes import OPERATORS
from onco_gym.agents.onnxfile import _field, _packed, _value, labelled
from onco_gym.interfaces.engine import make_engine

POLICIES = ROOT / "baselines" / "policies"
FEATURES, ANSWERS = 113, 21
HUGE = 2**20


@pytest.fixture(scope="module")
def engine():
    return make_engine("nsclc", terms=("outcome",), horizon=40)


@pytest.fixture(scope="module")
def policy(engine, tmp_path_factory):
    """A small policy, with its checksum."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("policy") / "policy.onnx"
    sizes = ((FEATURES, 8), (8, ANSWERS))
    save_mlp_onnx(path, engine, [(rng.normal(size=size), rng.normal(size=size[1])) for size in sizes])
    return path.read_bytes()


# Files by hand


def tensor(name, values, kind=None, extra=b""):
    values = np.asarray(values, kind)
    number = {"f": 1, "l": 7, "i": 6, "?": 9, "d": 11}[values.dtype.char]
    sizes = b"".join(_field(1, size) for size in values.shape)
    return sizes + _field(2, number) + _field(8, name.encode()) + _field(9, values.tobytes()) + extra


def whole(name, *values):
    return tensor(name, values, np.int64)


def setting(name, value):
    if isinstance(value, bytes):
        return _field(1, name.encode()) + _field(5, value) + _field(20, 4)
    if isinstance(value, float):
        return _field(1, name.encode()) + _packed(2 << 3 | 5) + np.float32(value).tobytes() + _field(20, 1)
    if isinstance(value, int):
        return _field(1, name.encode()) + _field(3, value % 2**64) + _field(20, 2)
    return _field(1, name.encode()) + b"".join(_field(8, one % 2**64) for one in value) + _field(20, 7)


def node(operator, inputs, outputs, domain="", **settings):
    text = b"".join(_field(1, name.encode()) for name in inputs.split(","))
    text += b"".join(_field(2, name.encode()) for name in outputs.split(","))
    attributes = b"".join(_field(5, setting(*pair)) for pair in settings.items())
    return text + _field(4, operator.encode()) + attributes + (_field(7, domain.encode()) if domain else b"")


def file(nodes, tensors=(), seen=None, graph=b"", model=b"", answers=(), version=17):
    """A policy that answers with nothing but zeros, and computes ``nodes`` beside."""
    weights = tensor("weights", np.zeros((FEATURES, ANSWERS)), np.float32)
    content = b"".join(_field(1, one) for one in (node("MatMul", "observation,weights", "scores"), *nodes))
    content += b"".join(_field(5, one) for one in (weights, *tensors)) + _field(2, b"policy")
    content += _field(11, seen or _value("observation", FEATURES)) + _field(12, _value("scores", ANSWERS))
    content += b"".join(_field(12, _field(1, name.encode())) for name in answers) + graph
    return _field(1, 8) + _field(7, content) + _field(8, _field(1, b"") + _field(2, version)) + model


def described(name, *sizes):
    shape = b"".join(_field(1, _field(1, size)) for size in sizes)
    return _field(1, name.encode()) + _field(2, _field(1, _field(1, 1) + _field(2, shape)))


def test_a_file_by_hand_is_a_policy(engine):
    assert not OnnxAgent(engine, file([])).scores(np.ones((5, FEATURES))).any()
    assert OnnxAgent(engine, file([])).scores(np.ones((0, FEATURES))).shape == (0, ANSWERS)


def test_policies_that_are_shipped_are_read():
    files = sorted(POLICIES.rglob("*.onnx"))
    assert files
    for path in files:
        model = check.Model(path.read_bytes(), str(path))
        ((_, features),) = (declared.shape for declared in model.inputs.values())
        assert model.fits((1, features))
        assert model.fits((20_000, features))


# Damage


def flipped(content, count=300):
    """Copies of a file in which one byte is another."""
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), count):
        changed = bytearray(content)
        changed[place] ^= rng.integers(1, 256)
        yield bytes(changed)


def read(content, engine):
    """The agent in a file, or none if the file is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return OnnxAgent(engine, content)
        except AgentError:
            return None


def test_a_changed_byte_is_found_by_the_checksum(policy, engine):
    seen = np.random.default_rng(1).random((50, FEATURES), np.float32)
    expected = OnnxAgent(engine, policy).scores(seen)
    tail = [policy[:-80] + one for one in flipped(policy[-80:])]  # the checksum itself
    for one in (*flipped(policy), *tail):
        agent = read(one, engine)
        if agent is not None:
            np.testing.assert_array_equal(agent.scores(seen), expected)
    assert all(read(one + policy[-76:], engine) is None for one in flipped(check.unsealed(policy)))


def test_a_checksum_that_does_not_match_is_told(policy, engine, tmp_path):
    path, middle = tmp_path / "mine.onnx", len(policy) // 2
    path.write_bytes(policy[:middle] + bytes([policy[middle] ^ 1]) + policy[middle + 1 :])
    refuses(AgentError, r"mine\.onnx does not match its checksum: it was damaged or changed", OnnxAgent, engine, path)
    refuses(AgentError, "goes on after its checksum", OnnxAgent, engine, policy + _field(6, b"a remark"))


def test_a_checksum_is_renewed_and_can_be_left_out(policy, engine):
    bare = check.unsealed(policy)
    assert len(bare) == len(policy) - 76
    assert check.unsealed(bare) == bare
    assert check.sealed(bare) == policy
    assert "sha256" not in OnnxAgent(engine, bare).metadata
    again = labelled(policy, engine)
    assert again.count(b"sha256") == 1
    for one in (bare, again):
        assert OnnxAgent(engine, one).metadata == OnnxAgent(engine, policy).metadata


def test_damage_without_a_checksum_is_an_answer_or_our_error(policy, engine):
    for one in flipped(check.unsealed(policy)):
        agent = read(one, engine)
        assert agent is None or np.isfinite(agent.scores(np.zeros((2, FEATURES)))).all()


DAMAGED = {
    "unknown field": file([], model=_field(99, 1)),
    "unknown field of a graph": file([], graph=_field(14, b"")),
    "text as a number": file([], model=_field(6, 1)),
    "number as text": file([], model=_field(5, b"1")),
    "no text": file([], model=_field(6, b"\xff\xfe")),
    "name that is no text": file([node("Relu", "observation", "more")], graph=_field(10, b"\x80")),
    "two graphs": file([], model=_field(7, b"")),
    "operator twice": file([node("Relu", "observation", "more") + _field(4, b"Relu")]),
    "setting twice": file([node("Relu", "observation", "more") + 2 * _field(5, setting("alpha", 1))]),
    "setting of two kinds": file([node("Elu", "observation", "more") + _field(5, setting("alpha", 1) + _field(4, b"1"))]),
    "two arrays of one name": file([], [whole("one", 1), whole("one", 2)]),
    "array of the observation's name": file([], [whole("observation", 1)]),
    "numbers are missing": file([], [_field(1, 10**9) + _field(2, 1) + _field(8, b"big") + _field(9, b"1234")]),
    "numbers are cut": file([], [_field(1, 1) + _field(2, 1) + _field(8, b"one") + _field(9, b"123")]),
    "numbers of another type": file([], [_field(1, 1) + _field(2, 1) + _field(8, b"one") + _field(7, 1)]),
    "numbers twice": file([], [_field(1, 1) + _field(2, 7) + _field(8, b"one") + _field(7, 1) + _field(9, b"12345678")]),
    "negative size": file([], [_field(1, 2**64 - 1) + _field(2, 1) + _field(8, b"one") + _field(9, b"")]),
    "two negative sizes": file([], [2 * _field(1, 2**64 - 1) + _field(2, 1) + _field(8, b"one") + _field(9, b"1234")]),
    "many axes": file([], [tensor("one", np.zeros((1,) * 9), np.float32)]),
    "negative size of the observation": file([], seen=described("observation", 2**64 - 1, FEATURES)),
    "number beyond 64 bits": file([], model=_packed(5 << 3) + b"\xff" * 9 + b"\x7f"),
    "no graph": _field(1, 8),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(name, engine):
    with pytest.raises(AgentError, match=r"is not an ONNX file, or is damaged: \w+"):
        OnnxAgent(engine, DAMAGED[name])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value, engine):
    packed = _field(1, 1) + _field(2, 1) + _field(8, b"one") + _field(4, np.float32(value).tobytes())
    contents = (
        file([], [tensor("one", [0.0, value], np.float32)]),
        file([], [packed]),
        file([node("Elu", "observation", "more", alpha=value)]),
        file([node("Constant", "", "more", value=tensor("", [value], np.float64))]),
    )
    for content in contents:
        with pytest.raises(AgentError, match="holds numbers that are not finite"):
            OnnxAgent(engine, content)


def test_numbers_can_be_written_in_any_of_the_ways_of_onnx(engine):
    shape, numbers = _field(1, 2), np.array([1.0, 2.0], np.float32)
    one_by_one = b"".join(_packed(4 << 3 | 5) + one.tobytes() for one in numbers)
    ways = {
        1: (_field(4, numbers.tobytes()), one_by_one, _field(9, numbers.tobytes())),
        7: (_field(7, b"\1\2"), _field(7, 1) + _field(7, 2), _field(9, numbers.astype(np.int64).tobytes())),
        11: (_field(10, numbers.astype(np.float64).tobytes()),),
        6: (_field(5, 1) + _field(5, 2),),
    }
    for kind, writings in ways.items():
        for one in writings:
            array = shape + _field(2, kind) + _field(8, b"one") + one
            content = file([node("Identity", "one", "more")], [array], answers=["more"])
            OnnxAgent(engine, content)
            session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
            (answer,) = session.run(["more"], {"observation": np.zeros((1, FEATURES), np.float32)})
            assert answer.tolist() == [1, 2]


# What a policy has no use for


def test_numbers_in_other_files_are_refused(engine, tmp_path):
    """A tensor whose numbers stand in another file, in the graph or in an operator's setting."""
    (tmp_path / "secret").write_bytes(b"\0" * 4096)
    place = _field(13, _field(1, b"location") + _field(2, b"secret"))
    hidden = _field(1, 8) + _field(2, 1) + _field(8, b"hidden")
    for one in (hidden + place + _field(14, 1), hidden + _field(14, 1), hidden + place):
        for content in (file([], [one]), file([node("Constant", "", "more", value=one)])):
            with pytest.raises(AgentError, match="keeps numbers in another file"):
                OnnxAgent(engine, content)


def test_graphs_within_graphs_and_functions_are_refused(engine):
    nested = b""
    for _ in range(5000):
        nested = _field(1, _field(5, _field(6, nested)))
    for content, message in (
        (_field(1, 8) + _field(7, nested), "holds a graph within a graph"),
        (file([], model=_field(25, _field(1, b"mine"))), "holds functions"),
        (file([], model=_field(20, b"")), "holds training information"),
    ):
        with pytest.raises(AgentError, match=message):
            OnnxAgent(engine, content)


@pytest.mark.parametrize("name", ["RandomUniformLike", "Dropout", "Loop", "If", "Range", "Pad", "OneHot", "Anything", ""])
def test_operators_a_policy_has_no_use_for(name, engine):
    with pytest.raises(AgentError, match=f"uses operator '{name}', which policies may not use"):
        OnnxAgent(engine, file([node(name, "observation", "more")]))


def test_operators_of_others_are_refused(engine):
    for name, domain in (("Anything", "com.example"), ("Gelu", "com.microsoft"), ("Relu", "ai.onnx.ml")):
        with pytest.raises(AgentError, match=f"uses operator '{name}' of '{domain}'"):
            OnnxAgent(engine, file([node(name, "observation", "more", domain)]))
    with pytest.raises(AgentError, match="uses version 9 of ONNX's operators"):
        OnnxAgent(engine, file([], version=9))


# Few bytes that ask for much

LONG = [whole("long", 1, HUGE), whole("tall", HUGE, 1)]
ZEROS = [node("ConstantOfShape", "long", "row"), node("ConstantOfShape", "tall", "column")]
LESS = node("Less", "row,row", "which")
JOINED = itertools.pairwise(["observation", *"abcdefghijklmnopqrstuvwx"])
COUNTS = node("ConstantOfShape", "long", "places", value=tensor("", [0], np.int64))
SHAPE, OF_SHAPE = node("Shape", "observation", "shape"), node("ConstantOfShape", "shape", "big")
BIG, RELU = node("ConstantOfShape", "sizes", "big"), node("Relu", "observation", "a")
PRODUCTS = [node("MatMul", f"{a},{a}", b) for a, b in itertools.pairwise(["big", *"abcdefghijklmn"])]
HOSTILE = {
    "constant": file([BIG], [whole("sizes", HUGE, HUGE)]),
    "constant of absurd size": file([BIG], [whole("sizes", 2**62, 2**62, 2**62)]),
    "expand": file([node("Expand", "observation,sizes", "big")], [whole("sizes", HUGE, 1, FEATURES)]),
    "expand by the shape": file([SHAPE, node("Mul", "shape,tall", "wide"), node("ConstantOfShape", "wide", "big")], LONG),
    "tile": file([node("Tile", "observation,times", "big")], [whole("times", HUGE, HUGE)]),
    "product of a column and a row": file([*ZEROS, node("MatMul", "column,row", "big")], LONG),
    "gemm of a column and a row": file([*ZEROS, node("Gemm", "row,row", "big", transA=1)], LONG),
    "sum of a column and a row": file([*ZEROS, node("Add", "column,row", "big")], LONG),
    "choice of a column and a row": file([*ZEROS, LESS, node("Where", "which,column,row", "big")], LONG),
    "gather": file([*ZEROS, COUNTS, node("Gather", "row,places", "big", axis=0)], LONG),
    "rows joined again and again": file([node("Concat", f"{a},{a}", b, axis=0) for a, b in JOINED]),
    "constant in pieces": file([node("ConstantOfShape", "sizes", f"big{k}") for k in range(100)], [whole("sizes", HUGE)]),
    "products without end": file([BIG, *PRODUCTS], [whole("sizes", 2000, 2000)]),
    "sums without end": file([BIG, *(node("ReduceSum", "big", f"sum{k}") for k in range(200))], [whole("sizes", 30 * HUGE)]),
    "batch that is fixed": file([SHAPE, OF_SHAPE], seen=described("observation", 2**30, FEATURES)),
    "shape that is a lie": file([RELU, node("Shape", "a", "shape"), OF_SHAPE], graph=_field(13, described("a", HUGE, HUGE))),
    "answer that is a lie": file([RELU], graph=_field(12, described("a", HUGE, HUGE))),
    "sizes from what is seen": file([node("Cast", "observation", "sizes", to=7), BIG]),
    "text": file([node("Cast", "observation", "text", to=8)]),
    "sparse": file([], graph=_field(15, _field(1, tensor("big", [0.0], np.float32)) + _field(3, HUGE) + _field(3, HUGE))),
    "many operators": file([node("Relu", "observation", f"a{k}") for k in range(check.NODES)]),
    "many fields": file([], graph=2**18 * _field(1, b"")),
    "circle": file([node("Relu", "a", "b"), node("Relu", "b", "a")]),
    "names without end": file([node("Relu", "a" * HUGE, "b")]),
    "operator without end": file([node("Relu" * HUGE, "observation", "b")]),
}
SUM = [node("ReduceSum", "observation", "a"), node("Expand", "a,sizes", "b")]
WITHIN = {  # as much as is allowed
    "constant": file([node("ConstantOfShape", "sizes", "a"), node("Erf", "a", "b")], [whole("sizes", 12 * HUGE)]),
    "whole numbers": file([node("ConstantOfShape", "sizes", "a", value=tensor("", [1], np.int64))], [whole("sizes", 60 * HUGE)]),
    "product": file([node("ConstantOfShape", "sizes", "a"), node("MatMul", "a,a", "b")], [whole("sizes", 990, 990)]),
    "sum": file([*SUM, node("Softmax", "b", "c")], [whole("sizes", 12 * HUGE, 1)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_asks_for_much_is_refused_at_once(name, engine, monkeypatch):
    def never(*_):
        raise AssertionError("onnxruntime saw the file")

    monkeypatch.setattr("onco_gym.agents.onnxfile._session", never)
    begun = time.monotonic()
    with pytest.raises(AgentError, match="the policy ") as error:
        OnnxAgent(engine, HOSTILE[name])
    assert time.monotonic() - begun < 10
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_memory_and_time_of_files_that_ask_for_much(tmp_path):
    pytest.importorskip("resource")
    for kind, contents in (("hostile", HOSTILE), ("within", WITHIN)):
        for name, content in contents.items():
            (tmp_path / f"{kind}-{name}").write_bytes(content)
    script = """
import pathlib, resource, sys, time
import onnxruntime
from onco_gym.agents import AgentError, OnnxAgent
from onco_gym.interfaces.engine import make_engine
engine = make_engine("nsclc", terms=("outcome",), horizon=40)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    begun = time.monotonic()
    try:
        OnnxAgent(engine, path)
        assert path.name.startswith("within"), path.name
    except AgentError as error:
        assert path.name.startswith("hostile"), error
    assert time.monotonic() - begun < 10, path.name
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * (1 if sys.platform == "darwin" else 1024) < 2**30


def test_a_large_batch_is_computed_in_pieces(engine, policy, monkeypatch):
    agent, seen = OnnxAgent(engine, policy), np.random.default_rng(0).random((1000, FEATURES), np.float32)
    whole_batch = agent.scores(seen)
    monkeypatch.setattr(check, "NUMBERS", 20_000)
    again, sizes = OnnxAgent(engine, policy), []
    run = again._session.run
    again._session = SimpleNamespace(run=lambda names, batch: sizes.append(len(batch["observation"])) or run(names, batch))
    np.testing.assert_allclose(again.scores(seen), whole_batch, rtol=1e-5)
    assert sum(sizes) == 1000
    assert max(sizes) < 150


# Shapes

NUMBERS = [
    tensor("rows", np.ones((4, FEATURES)), np.float32),
    tensor("vector", np.ones(FEATURES), np.float32),
    tensor("square", np.ones((FEATURES, FEATURES)), np.float32),
    tensor("stack", np.ones((2, 1, FEATURES, 3)), np.float32),
    tensor("unit", [1.0], np.float32),
    tensor("number", 0.5, np.float32),
    whole("none"),
    whole("zero", 0),
    whole("one", 1),
    whole("last", -1),
    whole("two", 2),
    whole("three", 3),
    whole("far", 2**62),
    whole("both", 0, 1),
    whole("parts", 100, 13),
    whole("free", -1, 1, FEATURES),
    whole("kept", 0, 0, -1),
    whole("sizes", 5, 1, 1),
]
BEFORE = [node("Squeeze", "stack,one", "cube"), node("Less", "x,vector", "less")]
FLAGS = [{"keepdims": 0}, {"keepdims": 1}]
CASES = [  # operators, inputs of which each is tried, settings of which each is tried, version; x is the observation
    ("Abs Ceil Cos Erf Exp Floor Identity Log Neg Reciprocal Round Sign Sin Sqrt", ["x", "cube"], [{}], 17),
    ("Celu Elu HardSigmoid HardSwish LeakyRelu Relu Selu Sigmoid Softplus Softsign Tanh ThresholdedRelu", ["x"], [{}], 17),
    ("Gelu Mish", ["x"], [{}], 20),
    ("Softmax LogSoftmax", ["x"], [{"axis": 0}, {"axis": 1}, {"axis": -1}], 17),
    ("Add Div Max Mean Min Mul Pow Sub Sum", ["x,x", "x,vector", "number,x"], [{}], 17),
    ("Equal Greater GreaterOrEqual Less LessOrEqual PRelu", ["x,vector", "x,number"], [{}], 17),
    ("Mod", ["sizes,three"], [{}], 17),
    ("And Or", ["less,less"], [{}], 17),
    ("Not", ["less"], [{}], 17),
    ("Where", ["less,x,x", "less,x,number", "less,number,vector"], [{}], 17),
    ("Cast", ["x"], [{"to": 7}, {"to": 11}], 17),
    ("Clip", ["x", "x,number", "x,,number"], [{}], 17),
    ("BatchNormalization", ["x,vector,vector,vector,vector"], [{}], 17),
    ("InstanceNormalization", ["stack,unit,unit"], [{}], 17),
    ("LayerNormalization", ["x,vector"], [{}], 17),
    ("ArgMax ArgMin", ["x"], [{"axis": axis, **flag} for axis in (0, 1, -2) for flag in FLAGS], 17),
    ("ReduceMax ReduceMean", ["x"], [{"axes": axes, **flag} for axes in ([0], [-1], [0, 1]) for flag in FLAGS], 17),
    ("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMin ReduceProd ReduceSumSquare", ["x"], FLAGS, 17),
    ("ReduceMean ReduceSum", ["x", "x,zero", "x,last", "x,both", "x,none"], [{}, {"noop_with_empty_axes": 1}], 18),
    ("Gemm", ["x,square", "x,square,vector", "x,square,number"], [{}, {"transB": 1}], 17),
    ("Gemm", ["x,x"], [{"transA": 1}, {"transB": 1}], 17),
    ("MatMul", ["x,square", "x,vector", "vector,vector", "vector,square", "x,stack", "vector,stack"], [{}], 17),
    ("Flatten", ["x", "cube"], [{}, {"axis": 0}, {"axis": 2}, {"axis": -1}], 17),
    ("Transpose", ["stack"], [{}, {"perm": [3, 0, 2, 1]}], 17),
    ("Reshape", ["x,last", "x,free", "cube,kept", "cube,last"], [{}], 17),
    ("Squeeze", ["stack", "stack,one"], [{}], 17),
    ("Squeeze Unsqueeze", ["stack"], [{"axes": [1]}], 12),
    ("Unsqueeze", ["x,zero", "x,last", "x,both", "x,two"], [{}], 17),
    ("Concat", ["x,rows", "x,x,x", "x"], [{"axis": 0}], 17),
    ("Concat", ["x,x"], [{"axis": -1}], 17),
    ("Gather", ["x,one", "x,parts", "x,last"], [{"axis": 1}, {"axis": -1}], 17),
    ("Slice", ["x,zero,one", "x,last,far", "x,one,far,one"], [{}], 17),
    ("Slice", ["x,one,far,last,three", "x,both,parts,both", "x,zero,far,,two"], [{}], 17),
    ("Split", ["x,parts"], [{"axis": 1}], 17),
    ("Split", ["stack"], [{"axis": 0}], 17),
    ("Expand", ["vector,sizes", "number,sizes"], [{}], 17),
    ("Tile", ["x,parts"], [{}], 17),
    ("ConstantOfShape", ["sizes"], [{}, {"value": tensor("", [2], np.int64)}], 17),
    ("Shape", ["x"], [{}, {"start": 1}, {"start": -1}, {"end": -1}, {"start": 1, "end": 1}], 17),
    ("Constant", [""], [{"value": tensor("", np.ones((2, 3)), np.float32)}, {"value_ints": [1, 2]}, {"value_int": 3}], 17),
    ("Constant", [""], [{"value_float": 0.5}], 17),
]
TRIED = [
    (operator, inputs, settings, version)
    for names, many, settings_of, version in CASES
    for operator in names.split()
    for inputs in many
    for settings in settings_of
]


@pytest.fixture
def worked_out(monkeypatch):
    """What was found out about each array."""
    found, made = {}, check.made

    def told(step, given):
        answer = made(step, given)
        found.update(zip(step.outputs, answer, strict=True))
        return answer

    monkeypatch.setattr(check, "made", told)
    return found


def agrees(content, names, worked_out):
    """Whether onnxruntime makes arrays of the shapes, and of the numbers, that were worked out."""
    model = check.Model(content, "the policy")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    for n in (1, 2, 5):
        assert model.fits((n, FEATURES))
        for name, answer in zip(names, session.run(names, {"observation": np.ones((n, FEATURES), np.float32)}), strict=True):
            assert worked_out[name].shape == answer.shape
            if worked_out[name].value is not None:
                np.testing.assert_array_equal(worked_out[name].value, answer)


@pytest.mark.parametrize(("operator", "inputs", "settings", "version"), TRIED)
def test_shapes_are_those_of_onnxruntime(operator, inputs, settings, version, worked_out):
    outputs = "made,other" if operator == "Split" else "made"
    before = [node("Identity", "observation", "x"), *(BEFORE if version > 12 else [])]
    steps = [*before, node(operator, inputs, outputs, **settings)]
    agrees(file(steps, NUMBERS, answers=outputs.split(","), version=version), outputs.split(","), worked_out)


def test_every_operator_is_tried_and_documented():
    assert {operator for operator, *_ in TRIED} == set(OPERATORS)
    text = (ROOT / "docs" / "training.md").read_text()
    assert all(f"`{operator}`" in text for operator in OPERATORS)


EXPORTED = """Shape observation shape; Gather shape,one features; Gather shape,zero n; Cast n cast
Mul cast,two twice; Sub twice,n same; Add same,n sum; Div sum,two half; Mod half,far rest
Slice shape,zero,one first; Concat first,last rows_and_rest; Reshape observation,rows_and_rest reshaped
Unsqueeze rest,zero deep; Squeeze deep,zero flat; Concat flat,one,features three_axes
ConstantOfShape three ones; Equal three_axes,last is_free; Where is_free,ones,three_axes wanted
Expand number,wanted expanded; Expand n,two n_and_n; Identity n_and_n again; ConstantOfShape again quadratic
Slice shape,two,far nothing; Concat nothing,first something"""  # operator, inputs, output


def test_whole_numbers_are_followed_as_exporters_make_shapes(worked_out):
    settings = {"cast": {"to": 7}, "ones": {"value": tensor("", [1], np.int64)}}
    settings |= {name: {"axis": 0} for name in ("rows_and_rest", "three_axes", "something")}
    steps = [step.split() for step in EXPORTED.replace("\n", ";").split(";")]
    steps = [node(operator, inputs, output, **settings.get(output, {})) for operator, inputs, output in steps]
    names = ["features", "rows_and_rest", "reshaped", "wanted", "expanded", "rest", "quadratic", "nothing", "something"]
    agrees(file(steps, NUMBERS, answers=names), names, worked_out)
    assert worked_out["expanded"].shape == (5, 1, FEATURES)
    assert worked_out["reshaped"].shape == (5, FEATURES)
