"""Policy files for tests, written operator by operator."""

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array

FEATURES, CHOICES = 113, 21
"""Of NSCLC."""


def whole(name, *values):
    return from_array(np.array(values, np.int64), name)


def numbers(name, values):
    return from_array(np.array(values, np.float32), name)


def node(operator, inputs, outputs, **settings):
    return helper.make_node(operator, inputs.split(",") if inputs else [], outputs.split(","), **settings)


def described(name, *sizes, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, sizes)


def weights(seed=0):
    """Of a policy that decides in many ways."""
    return numbers("weights", np.random.default_rng(seed).normal(size=(FEATURES, CHOICES)))


def file(*nodes, tensors=(), inputs=(), outputs=(), observation=None, version=17, more=b"", **graph):
    """A policy that computes ``nodes``; without any, a layer of weights."""
    nodes = nodes or (node("MatMul", "observation,weights", "scores"),)
    made = onnx.GraphProto(
        name="policy",
        node=nodes,
        input=[observation or described("observation", "n", FEATURES), *inputs],
        output=[described("scores", "n", CHOICES), *outputs],
        initializer=[weights(), *tensors],
        **graph,
    )
    imports = [helper.make_opsetid("", version)]
    return onnx.ModelProto(ir_version=8, graph=made, opset_import=imports).SerializeToString() + more


def recurrent(*nodes, width=4, state=None, tensors=(), outputs=None):
    """A policy that counts its visits and decides by their number; with ``nodes`` that make ``told`` from ``state_in``."""
    rng = np.random.default_rng(1)
    return file(
        *(nodes or (node("Identity", "state_in", "told"),)),
        node("MatMul", "observation,weights", "seen"),
        node("MatMul", "told,from_state", "remembered"),
        node("Add", "seen,remembered", "scores"),
        node("MatMul", "observation,to_state", "noted"),
        node("Add", "told,noted", "sum"),
        node("Tanh", "sum", "state_out"),
        tensors=[
            numbers("from_state", 3 * rng.normal(size=(width, CHOICES))),
            numbers("to_state", rng.normal(size=(FEATURES, width))),
            *tensors,
        ],
        inputs=[state or described("state_in", "n", width)],
        outputs=[described("state_out", "n", width)] if outputs is None else outputs,
    )
