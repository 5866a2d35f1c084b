"""Policy files that are damaged or hostile are refused; the shapes that are worked out beforehand are those of onnxruntime."""

import itertools
import os
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import ROOT, refuses
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array

from onco_gym.agents import AgentError, OnnxAgent, save_mlp_onnx
from onco_gym.agents import onnx_check as check
from onco_gym.agents.onnx_policy import LARGEST
from onco_gym.agents.onnxfile import labelled
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


def whole(name, *values):
    return from_array(np.array(values, np.int64), name)


def numbers(name, values):
    return from_array(np.array(values, np.float32), name)


def raw(*sizes, kind=1, **fields):
    """An array of a few bytes that do not have to fit its sizes."""
    return TensorProto(name="raw", data_type=kind, dims=sizes, **fields)


def node(operator, inputs, outputs, **settings):
    return helper.make_node(operator, inputs.split(",") if inputs else [], outputs.split(","), **settings)


def described(name, *sizes):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)


def file(nodes, tensors=(), version=17, more=b"", output=(), **graph):
    """A policy that answers with nothing but zeros, and computes ``nodes`` beside."""
    graph = {"name": "policy", "input": [described("observation", "n", FEATURES)], **graph}
    graph["node"] = [node("MatMul", "observation,weights", "scores"), *nodes]
    graph["initializer"] = [numbers("weights", np.zeros((FEATURES, ANSWERS))), *tensors]
    made = onnx.GraphProto(output=[described("scores", "n", ANSWERS), *output], **graph)
    imports = [helper.make_opsetid("", version)]
    return onnx.ModelProto(ir_version=8, graph=made, opset_import=imports).SerializeToString() + more


def with_more(content, **fields):
    """A message with more fields."""
    made = type(content)()
    made.CopyFrom(content)
    made.MergeFrom(type(content)(**fields))
    return made


def field(number, content):
    """A field of a protobuf message that holds bytes."""
    size, length = len(content), []
    while size > 127:
        length, size = [*length, size & 127 | 128], size >> 7
    return bytes([number << 3 | 2, *length, size]) + content


def test_a_file_of_nothing_else_is_a_policy(engine):
    assert not OnnxAgent(engine, file([])).scores(np.ones((5, FEATURES))).any()
    assert OnnxAgent(engine, file([])).scores(np.ones((0, FEATURES))).shape == (0, ANSWERS)


def test_policies_that_are_shipped_are_read():
    files = sorted(POLICIES.rglob("*.onnx"))
    assert files
    for path in files:
        policy = check.Model(path.read_bytes(), str(path))
        ((_, features),) = (declared.shape for declared in policy.inputs.values())
        assert policy.fits({"observation": (1, features)})
        assert policy.fits({"observation": (20_000, features)})


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
    refuses(
        AgentError,
        "goes on after its checksum",
        OnnxAgent,
        engine,
        policy + onnx.ModelProto(doc_string="a remark").SerializeToString(),
    )


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


RELU = node("Relu", "observation", "a")
ELU = node("Elu", "observation", "a", alpha=1.0)
DAMAGED = {
    "field that ONNX does not have": file([], more=b"\xf8\x06\x01"),
    "number as text": file([], more=b"\x2a\x011"),
    "no text": file([], more=b"\x32\x02\xff\xfe"),
    "no end": file([])[:-1],
    "nothing": b"",
    "no graph": onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)]).SerializeToString(),
    "setting twice": file([with_more(ELU, attribute=ELU.attribute)]),
    "setting of two kinds": file([with_more(node("Elu", "observation", "a"), attribute=[with_more(ELU.attribute[0], s=b"1")])]),
    "setting that the operator does not have": file([node("Relu", "observation", "a", alpha=1.0)]),
    "setting of a function": file([with_more(RELU, attribute=[onnx.AttributeProto(name="alpha", ref_attr_name="b", type=1)])]),
    "two arrays of one name": file([], [whole("one", 1), whole("one", 2)]),
    "array of the name of a result": file([RELU], [whole("a", 1)]),
    "two results of one name": file([RELU, RELU]),
    "circle": file([node("Relu", "a", "b"), node("Relu", "b", "a")]),
    "input that is missing": file([node("Add", ",observation", "a")]),
    "numbers are missing": file([], [raw(10**9, raw_data=b"1234")]),
    "numbers are cut": file([], [raw(1, raw_data=b"123")]),
    "numbers of another type": file([], [raw(1, int64_data=[1])]),
    "numbers twice": file([], [raw(1, kind=7, int64_data=[1], raw_data=b"12345678")]),
    "negative size": file([], [raw(-1, raw_data=b"")]),
    "size that follows from the others": file([], [raw(-1, raw_data=b"1234")]),
    "two negative sizes": file([], [raw(-1, -1, raw_data=b"1234")]),
    "many axes": file([], [numbers("one", np.zeros((1,) * 9))]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(name, engine):
    with pytest.raises(AgentError, match=r"the policy is not an ONNX file, or is damaged: \w+"):
        OnnxAgent(engine, DAMAGED[name])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value, engine):
    contents = (
        file([], [numbers("one", [0.0, value])]),
        file([], [raw(1, float_data=[value])]),
        file([node("Elu", "observation", "more", alpha=value)]),
        file([node("Constant", "", "more", value=from_array(np.array([value])))]),
        file([node("Constant", "", "more", value_floats=[0.0, value])]),
    )
    for content in contents:
        with pytest.raises(AgentError, match="holds numbers that are not finite"):
            OnnxAgent(engine, content)


# What a policy has no use for

SPARSE = helper.make_sparse_tensor(numbers("big", [1.0]), whole("where", 0), [HUGE * HUGE])
GRAPH = onnx.GraphProto(name="within", node=[RELU])
UNUSED = {  # what the error names
    "functions": file([], more=onnx.ModelProto(functions=[onnx.FunctionProto(name="mine")]).SerializeToString()),
    "training_info": file([], more=onnx.ModelProto(training_info=[onnx.TrainingInfoProto()]).SerializeToString()),
    "sparse_initializer": file([], sparse_initializer=[SPARSE]),
    "sparse_tensor": file([node("Constant", "", "more", sparse_value=SPARSE)]),
    "quantization_annotation": file([], quantization_annotation=[onnx.TensorAnnotation(tensor_name="scores")]),
    "g": file([node("Relu", "observation", "more", body=GRAPH)]),
    "graphs": file([node("Relu", "observation", "more", bodies=[GRAPH])]),
    "sequence_type": file([], value_info=[helper.make_tensor_sequence_value_info("a", 1, None)]),
}


@pytest.mark.parametrize("name", UNUSED)
def test_parts_a_policy_has_no_use_for(name, engine):
    with pytest.raises(AgentError, match=f"holds {name}, which policies may not use"):
        OnnxAgent(engine, UNUSED[name])


def test_numbers_in_other_files_are_refused(engine, tmp_path, monkeypatch):
    """A tensor whose numbers stand in another file, or in memory, in the graph or in an operator's setting."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(b"\0" * 4096)
    places = [[onnx.StringStringEntryProto(key="location", value=value)] for value in ("secret", "*/_ORT_MEM_ADDR_/*")]
    hidden = [raw(8, data_location=1), *(raw(8, external_data=place, data_location=1) for place in places)]
    hidden += [raw(8, external_data=place, raw_data=b"\0" * 32) for place in places]
    for one in hidden:
        for content in (file([], [one]), file([node("Constant", "", "more", value=one)])):
            with pytest.raises(AgentError, match=r"keeps numbers in another file|holds external_data"):
                OnnxAgent(engine, content)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.INT8, TensorProto.STRING, TensorProto.COMPLEX64, 0, 99])
def test_numbers_of_other_types_are_refused(kind, engine):
    with pytest.raises(AgentError, match=r"holds numbers of type \d+|is damaged"):
        OnnxAgent(engine, file([], [raw(1, kind=1, raw_data=b"1234")]).replace(b"\x08\x01\x10\x01", bytes([8, 1, 16, kind])))


def test_graphs_within_graphs_within_graphs(engine):
    nested = b""
    for _ in range(5000):
        nested = field(1, field(5, field(6, nested)))
    refuses(AgentError, "is damaged", OnnxAgent, engine, file([], more=field(7, nested)))


@pytest.mark.parametrize("name", ["RandomUniformLike", "Dropout", "Loop", "If", "Range", "Pad", "OneHot", "Anything", ""])
def test_operators_a_policy_has_no_use_for(name, engine):
    with pytest.raises(AgentError, match=f"uses operator '{name}', which policies may not use"):
        OnnxAgent(engine, file([node(name, "observation", "more")]))


def test_operators_of_others_are_refused(engine):
    for name, domain in (("Anything", "com.example"), ("Gelu", "com.microsoft"), ("Relu", "ai.onnx.ml")):
        with pytest.raises(AgentError, match=f"uses operator '{name}' of '{domain}'"):
            OnnxAgent(engine, file([node(name, "observation", "more", domain=domain)]))
    OnnxAgent(engine, file([node("Relu", "observation", "more", domain="ai.onnx")]))
    for version in (9, 999):
        refuses(AgentError, rf"uses versions \[{version}\] of ONNX's operators", OnnxAgent, engine, file([], version=version))


# Few bytes that ask for much

LONG = [whole("long", 1, HUGE), whole("tall", HUGE, 1), whole("wide", 2**62 + 1, 1)]
ZEROS = [node("ConstantOfShape", "long", "row"), node("ConstantOfShape", "tall", "column")]
LESS = node("Less", "row,row", "which")
LETTERS = "abcdefghijklmnopqrstuvwx"
COUNTS = node("ConstantOfShape", "long", "places", value=whole("", 0))
SHAPE, OF_SHAPE = node("Shape", "observation", "shape"), node("ConstantOfShape", "shape", "big")
BIG = node("ConstantOfShape", "sizes", "big")
PRODUCTS = [node("MatMul", f"{a},{a}", b) for a, b in itertools.pairwise(["big", *LETTERS[:14]])]
INTEGERS = [node("Cast", "observation", "whole", to=7), node("Add", "whole,lowest", "least")]
HOSTILE = {
    "constant": file([BIG], [whole("sizes", HUGE, HUGE)]),
    "constant of absurd size": file([BIG], [whole("sizes", 2**62, 2**62, 2**62)]),
    "expand": file([node("Expand", "observation,sizes", "big")], [whole("sizes", HUGE, 1, FEATURES)]),
    "expand by the shape": file([SHAPE, node("Mul", "shape,tall", "more"), node("ConstantOfShape", "more", "big")], LONG),
    "tile": file([node("Tile", "observation,times", "big")], [whole("times", HUGE, HUGE)]),
    "tile so often that it overflows": file([node("Tile", "observation,wide", "big")], LONG),
    "product of a column and a row": file([*ZEROS, node("MatMul", "column,row", "big")], LONG),
    "gemm of a column and a row": file([*ZEROS, node("Gemm", "row,row", "big", transA=1)], LONG),
    "sum of a column and a row": file([*ZEROS, node("Add", "column,row", "big")], LONG),
    "choice of a column and a row": file([*ZEROS, LESS, node("Where", "which,column,row", "big")], LONG),
    "slopes of a column": file([*ZEROS, node("PRelu", "row,column", "big")], LONG),
    "gather": file([*ZEROS, COUNTS, node("Gather", "row,places", "big", axis=0)], LONG),
    "rows joined again and again": file(
        [node("Concat", f"{a},{a}", b, axis=0) for a, b in itertools.pairwise(["observation", *LETTERS])]
    ),
    "axes without end": file(
        [node("ConstantOfShape", "sizes", "ones", value=whole("", 1)), node("ConstantOfShape", "ones", "big")],
        [whole("sizes", 30 * HUGE)],
    ),
    "axes joined again and again": file(
        [SHAPE]
        + [node("Concat", f"{a},{a}", b, axis=0) for a, b in itertools.pairwise(["shape", *LETTERS[:20]])]
        + [node("Reshape", f"observation,{LETTERS[19]}", "big")]
    ),
    "constant in pieces": file([node("ConstantOfShape", "sizes", f"big{k}") for k in range(100)], [whole("sizes", HUGE)]),
    "products without end": file([BIG, *PRODUCTS], [whole("sizes", 2000, 2000)]),
    "sums without end": file([BIG, *(node("ReduceSum", "big", f"sum{k}") for k in range(200))], [whole("sizes", 30 * HUGE)]),
    "batch of negative size": file([], input=[described("observation", -1, FEATURES)]),
    "batch that is fixed": file([SHAPE, OF_SHAPE], input=[described("observation", 2**30, FEATURES)]),
    "sizes from what is seen": file([node("Cast", "observation", "sizes", to=7), BIG]),
    "text": file([node("Cast", "observation", "text", to=8)]),
    "division that crashes": file([*INTEGERS, node("Div", "least,last", "big")], [whole("lowest", -(2**63)), whole("last", -1)]),
    "division by what is seen": file([*INTEGERS, node("Mod", "least,whole", "big")], [whole("lowest", 1)]),
    "split that crashes": file([node("Split", "observation", "a,b,c", axis=1, num_outputs=2)], version=18),
    "more results than one": file([node("LayerNormalization", "observation,scale", "a,b")], [numbers("scale", [1.0])]),
    "setting that is read in two ways": file([node("Gemm", "observation,observation", "big", transA=2**40)]),
    "cast that makes no numbers": file([node("Cast", "two", "a", to=6, saturate=2)], [whole("two", 2)], version=19),
    "squeeze of no axes": file([node("Squeeze", "observation,none", "a")], [whole("none")]),
    "empty array": file([node("ConstantOfShape", "zero", "a")], [whole("zero", 0)]),
    "many results": file(
        [BIG, node("Split", "big", ",".join(f"a{k}" for k in range(HUGE // 4)), axis=0)], [whole("sizes", HUGE // 4)]
    ),
    "many operators": file([node("Relu", "observation", f"a{k}") for k in range(check.NODES)]),
    "array of the observation's name": file([], [numbers("observation", [1.0])]),
    "names without end": file([node("Relu", "a" * HUGE, "b")]),
    "operator without end": file([node("Relu" * HUGE, "observation", "b")]),
    "operators of two bytes": file([], more=field(7, (LARGEST // 2 - 10**5) * field(1, b""))),
    "settings of two bytes": file([], more=field(7, field(1, b"\x22\x04Relu\x12\0" + (LARGEST // 2 - 10**5) * field(5, b"")))),
    "sizes of one byte": file([], more=field(7, field(5, field(1, (LARGEST - 10**5) * b"\1")))),
    "properties of two bytes": file([], more=(LARGEST // 2 - 10**5) * field(14, b"")),
}
SUM = [node("ReduceSum", "observation", "a"), node("Expand", "a,sizes", "b")]
LIE = node("Shape", "a", "shape")
WITHIN = {  # as much as is allowed, or harmless
    "constant": file([node("ConstantOfShape", "sizes", "a"), node("Erf", "a", "b")], [whole("sizes", 12 * HUGE)]),
    "whole numbers": file([node("ConstantOfShape", "sizes", "a", value=whole("", 1))], [whole("sizes", 60 * HUGE)]),
    "product": file([node("ConstantOfShape", "sizes", "a"), node("MatMul", "a,a", "b")], [whole("sizes", 990, 990)]),
    "sum": file([*SUM, node("Softmax", "b", "c")], [whole("sizes", 12 * HUGE, 1)]),
    "shape that is a lie": file([RELU, LIE, OF_SHAPE], value_info=[described("a", HUGE, HUGE)]),
    "answer that is a lie": file([RELU, LIE, OF_SHAPE], output=[described("a", HUGE, HUGE)]),
    "omitted input that crashes": file(
        [node("LayerNormalization", "observation,scale,", "a")], [numbers("scale", np.ones(FEATURES))]
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_asks_for_much_is_refused_at_once(name, engine, monkeypatch):
    def never(*_):
        raise AssertionError("onnxruntime saw the file")

    monkeypatch.setattr("onco_gym.agents.onnx_policy._session", never)
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
    run = again._policy._session.run
    again._policy._session = SimpleNamespace(
        run=lambda names, batch: sizes.append(len(batch["observation"])) or run(names, batch)
    )
    np.testing.assert_allclose(again.scores(seen), whole_batch, rtol=1e-5)
    assert sum(sizes) == 1000
    assert max(sizes) < 150


# Shapes

NUMBERS = [
    numbers("rows", np.ones((4, FEATURES))),
    numbers("vector", np.ones(FEATURES)),
    numbers("square", np.ones((FEATURES, FEATURES))),
    numbers("stack", np.ones((2, 1, FEATURES, 3))),
    numbers("unit", [1.0]),
    numbers("number", 0.5),
    *(whole(name, *values) for name, values in {"none": [], "zero": [0], "one": [1], "last": [-1], "two": [2]}.items()),
    *(
        whole(name, *values)
        for name, values in {"three": [3], "far": [2**62], "back": [-(2**62)], "both": [0, 1], "parts": [100, 13]}.items()
    ),
    *(whole(name, *values) for name, values in {"free": [-1, 1, FEATURES], "kept": [0, 0, -1], "sizes": [5, 1, 1]}.items()),
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
    ("GreaterOrEqual LessOrEqual", ["x,vector", "x,number"], [{}], 13),
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
    ("Slice", ["x,one,far,last,three", "x,both,parts,both", "x,zero,far,,two", "x,last,back,one,last"], [{}], 17),
    ("Split", ["x,parts"], [{"axis": 1}], 17),
    ("Split", ["stack"], [{"axis": 0}], 17),
    ("Expand", ["vector,sizes", "number,sizes"], [{}], 17),
    ("Tile", ["x,parts"], [{}], 17),
    ("ConstantOfShape", ["sizes"], [{}, {"value": whole("", 2)}], 17),
    ("Shape", ["x"], [{}, {"start": 1}, {"start": -1}, {"end": -1}, {"start": 1, "end": 1}], 17),
    ("Constant", [""], [{"value": numbers("", np.ones((2, 3)))}, {"value_ints": [1, 2]}, {"value_int": 3}], 17),
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
    found, made = {}, check.Model._made

    def told(self, step, given):
        answer = made(self, step, given)
        found.update(zip(step.output, answer, strict=True))
        return answer

    monkeypatch.setattr(check.Model, "_made", told)
    return found


def agrees(content, names, worked_out):
    """Whether onnxruntime makes arrays of the shapes, and of the numbers, that were worked out."""
    policy = check.Model(content, "the policy")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    outputs = onnx.ModelProto(graph=onnx.GraphProto(output=[onnx.ValueInfoProto(name=name) for name in names]))
    session = onnxruntime.InferenceSession(policy.content + outputs.SerializeToString(), options, ["CPUExecutionProvider"])
    for n in (1, 2, 5):
        assert policy.fits({"observation": (n, FEATURES)})
        for name, answer in zip(names, session.run(names, {"observation": np.ones((n, FEATURES), np.float32)}), strict=True):
            known = worked_out[name]
            assert known.shape == answer.shape
            assert helper.tensor_dtype_to_np_dtype(known.type) == answer.dtype
            if known.value is not None:
                np.testing.assert_array_equal(known.value, answer)


@pytest.mark.parametrize(("operator", "inputs", "settings", "version"), TRIED)
def test_shapes_are_those_of_onnxruntime(operator, inputs, settings, version, worked_out):
    outputs = "made,other" if operator == "Split" else "made"
    before = [node("Identity", "observation", "x"), *(BEFORE if version > 12 else [])]
    steps = [*before, node(operator, inputs, outputs, **settings)]
    agrees(file(steps, NUMBERS, version=version), outputs.split(","), worked_out)


def test_every_operator_is_tried_and_documented():
    assert {operator for operator, *_ in TRIED} == check.OPERATORS
    text = (ROOT / "docs" / "training.md").read_text()
    assert all(f"`{operator}`" in text for operator in check.OPERATORS)


EXPORTED = """Shape observation shape; Gather shape,one features; Gather shape,zero n; Cast n cast
Mul cast,two twice; Sub twice,n same; Add same,n sum; Div sum,two half; Mod half,far rest
Slice shape,zero,one first; Concat first,last rows_and_rest; Reshape observation,rows_and_rest reshaped
Unsqueeze rest,zero deep; Squeeze deep,zero flat; Concat flat,one,features three_axes
ConstantOfShape three ones; Equal three_axes,last is_free; Where is_free,ones,three_axes wanted
Expand number,wanted expanded; Expand n,two n_and_n; Identity n_and_n again; ConstantOfShape again quadratic
Slice shape,two,far nothing; Concat nothing,first something"""  # operator, inputs, output


def test_whole_numbers_are_followed_as_exporters_make_shapes(worked_out):
    settings = {"cast": {"to": 7}, "ones": {"value": whole("", 1)}}
    settings |= {name: {"axis": 0} for name in ("rows_and_rest", "three_axes", "something")}
    steps = [step.split() for step in EXPORTED.replace("\n", ";").split(";")]
    steps = [node(operator, inputs, output, **settings.get(output, {})) for operator, inputs, output in steps]
    names = ["features", "rows_and_rest", "reshaped", "wanted", "expanded", "rest", "quadratic", "nothing", "something"]
    agrees(file(steps, NUMBERS), names, worked_out)
    assert worked_out["expanded"].shape == (5, 1, FEATURES)
    assert worked_out["reshaped"].shape == (5, FEATURES)


def test_a_model_can_have_a_state(worked_out):
    """Policies with a memory have a second input and output."""
    steps = [node("Concat", "observation,state_in", "both", axis=1), node("Tanh", "both", "state_out")]
    ends = {"input": [described("observation", "n", FEATURES), described("state_in", "n", 7)]}
    content = file(steps, output=[described("state_out", "n", FEATURES + 7)], **ends)
    policy = check.Model(content, "the policy")
    assert list(policy.inputs) == ["observation", "state_in"]
    assert policy.outputs == ["scores", "state_out"]
    assert policy.fits({"observation": (5, FEATURES), "state_in": (5, 7)})
    assert worked_out["state_out"].shape == (5, FEATURES + 7)


def test_without_onnx_the_error_says_what_to_install(policy, engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    refuses(AgentError, r"pip install \"onco_gym\[onnx\]\"", OnnxAgent, engine, policy)
    refuses(AgentError, r"pip install \"onco_gym\[onnx\]\"", labelled, policy, engine)


def test_onnxruntime_is_told_to_send_no_reports(policy, engine, monkeypatch):
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    OnnxAgent(engine, policy)
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
