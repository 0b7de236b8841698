"""The panel of the dual solver: how the weights of a lane come in, and how they leave it. See lanes.py and panel.py."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from longtail.compiled import kernel

EMPTY = 0  # as in dual_kernels.py; a test compares them


@intrinsic
def put_weight(typing_context, panel, line, lane, value):
    """Write panel[line, lane], in half precision (uint16) or float32."""
    signature = types.void(panel, types.uint64, types.uint64, types.float32)

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        width = builder.extract_value(array.shape, 1)
        address = builder.gep(array.data, [builder.add(builder.mul(args[1], width), args[2])])
        value = args[3]
        if signature.args[0].dtype == types.uint16:
            value = builder.bitcast(builder.fptrunc(value, ir.HalfType()), ir.IntType(16))
        builder.store(value, address)
        return context.get_dummy_value()

    return signature, generate


@kernel
def fill_lane(b, lanes):
    """Lane b of the panel = its weights. The features that it already has a line for come first, in the same order."""
    features, weights = lanes.features[b], lanes.weights[b, 1:]
    users, line_of, n_free = lanes.users, lanes.line_of, lanes.n_free[0]
    for f in range(lanes.n_features[b], lanes.n_weights[b]):
        if users[features[f]] == 0:
            n_free -= 1
            line_of[features[f]] = lanes.free[n_free]
        users[features[f]] += np.uint8(1)
    for f in range(lanes.n_weights[b]):
        put_weight(lanes.panel, line_of[features[f]], b, weights[f])
    lanes.n_features[b], lanes.n_free[0] = lanes.n_weights[b], n_free


@kernel
def fill(lanes):
    """Fill the lanes that have a label, before a pass."""
    for b in range(len(lanes.phase)):
        if lanes.phase[b] != EMPTY:
            fill_lane(b, lanes)
