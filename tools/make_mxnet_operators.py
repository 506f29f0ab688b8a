#!/usr/bin/env python3
"""Writes src/convert/mxnet/operator_table.inc from the operator registry of MXNet 1.9.1.

A row is an operator's name, its tensors in order, and its attributes as NAME:KIND, with ! behind the kind of one that must be
written. Kinds: b boolean, i whole number, u whole number from 0, f number, t list of whole numbers, d list of numbers,
{A,B} one of these words, s any text; ? behind a kind: None as well. A name alone is another name of the operator behind it.

    PYTHONPATH=.deps/mxnet python3.11 tools/make_mxnet_operators.py            # rewrite the table
    PYTHONPATH=.deps/mxnet python3.11 tools/make_mxnet_operators.py --check    # fail where it differs from the registry
"""
import ctypes
import pathlib
import re
import sys
import textwrap

import numpy

for name, kind in {"bool": bool, "float": float, "int": int, "object": object}.items():
    setattr(numpy, name, kind)  # MXNet 1.9.1 asks for these
from mxnet.base import _LIB, OpHandle, c_str, check_call, mx_uint, py_str

KINDS = {"boolean": "b", "int": "i", "long": "i", "int (non-negative)": "u", "long (non-negative)": "u", "float": "f",
         "double": "f", "real_t": "f", "Shape(tuple)": "t", "Shape": "t", "tuple of <long>": "t", "tuple of <float>": "d",
         "tuple of <double>": "d"}
TENSORS = ("NDArray", "Symbol")


def names_of_operators():
    names, size = ctypes.POINTER(ctypes.c_char_p)(), mx_uint()
    check_call(_LIB.MXListAllOpNames(ctypes.byref(size), ctypes.byref(names)))
    return [py_str(names[i]) for i in range(size.value)]


def described(name):
    """The operator's own name and its arguments with their types."""
    handle, count = OpHandle(), mx_uint()
    check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
    own, text, variable, result = (ctypes.c_char_p() for _ in range(4))
    arguments, types, texts = (ctypes.POINTER(ctypes.c_char_p)() for _ in range(3))
    places = (own, text, count, arguments, types, texts, variable, result)
    check_call(_LIB.MXSymbolGetAtomicSymbolInfo(handle, *(ctypes.byref(place) for place in places)))
    return py_str(own.value), [(py_str(arguments[i]), py_str(types[i])) for i in range(count.value)]


def kind_of(text):
    required = "!" if text.endswith(", required") else ""
    words = re.match(r"\{([^}]*)\}", text)
    if words:
        return "{" + words[1].replace("'", "").replace(" ", "") + "}" + required
    kind = text.split(",")[0].strip()
    optional = "?" if kind.endswith(" or None") else ""
    return KINDS.get(kind.removesuffix(" or None"), "s") + optional + required


def row_of(name, arguments):
    tensors, attributes = [], []
    for argument, text in arguments:
        if text.startswith(TENSORS):
            tensors.append(argument + ("*" if text.split(",")[0].endswith("[]") else ""))
        else:
            attributes.append(argument + ":" + kind_of(text))
    return name, " ".join(tensors), " ".join(attributes)


def literal(text, before):
    lines = textwrap.wrap(text, 92, break_long_words=False, break_on_hyphens=False) or [""]
    return ("\n" + before).join(f'"{line}{" " if line is not lines[-1] else ""}"' for line in lines)


def table():
    rows, aliases = [], []
    for name in sorted(names_of_operators()):
        if "backward" in name:
            continue
        own, arguments = described(name)
        if own == name:
            rows.append(row_of(name, arguments))
        else:
            aliases.append((name, own))
    text = "// Written by tools/make_mxnet_operators.py from the registry of MXNet 1.9.1; do not edit.\n\n// clang-format off\n"
    text += "constexpr OperatorRow kOperatorRows[] = {\n"
    for name, tensors, attributes in rows:
        text += f'    {{"{name}", {literal(tensors, "     ")},\n     {literal(attributes, "     ")}}},\n'
    text += "};\n\nconstexpr OperatorAlias kOperatorAliases[] = {\n"
    text += "".join(f'    {{"{name}", "{own}"}},\n' for name, own in aliases)
    return text + "};\n// clang-format on\n"


def main():
    path = pathlib.Path(__file__).resolve().parent.parent / "src/convert/mxnet/operator_table.inc"
    if "--check" not in sys.argv:
        path.write_text(table())
    elif path.read_text() != table():
        sys.exit(f"{path} differs from the registry; run this without --check")


main()
