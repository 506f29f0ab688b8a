#!/usr/bin/env python3
"""Writes src/convert/mxnet/attribute_defaults_table.inc from MXNet's own registry.

The values that attributes have where a symbol leaves them out are read from the descriptions that MXNet's C interface gives of every
operator. Only people who follow a new release of MXNet run this:

    python3.8 -m venv venv && venv/bin/pip install mxnet==1.9.1 'numpy<1.24'
    venv/bin/python tools/make_mxnet_defaults.py            # rewrite the table
    venv/bin/python tools/make_mxnet_defaults.py --check    # fail where it differs from the registry
"""
import ctypes
import pathlib
import re
import sys

import numpy

for name, kind in (("bool", bool), ("object", object)):  # newer ones than MXNet knows have no such names
    if name not in numpy.__dict__:
        setattr(numpy, name, kind)

from mxnet.base import _LIB, c_str, check_call, py_str  # noqa: E402

TABLE = pathlib.Path(__file__).parent.parent / "src/convert/mxnet/attribute_defaults_table.inc"
WIDTH = 100


def operator_names():
    names, size = ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_uint()
    check_call(_LIB.MXListAllOpNames(ctypes.byref(size), ctypes.byref(names)))
    return sorted(py_str(names[i]) for i in range(size.value))


def arguments(op):
    handle = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(c_str(op), ctypes.byref(handle)))
    texts = [ctypes.c_char_p() for _ in range(4)]
    count = ctypes.c_uint()
    lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
    check_call(_LIB.MXSymbolGetAtomicSymbolInfo(
        handle, ctypes.byref(texts[0]), ctypes.byref(texts[1]), ctypes.byref(count), *(ctypes.byref(each) for each in lists),
        ctypes.byref(texts[2]), ctypes.byref(texts[3])))
    return [(py_str(lists[0][i]), py_str(lists[1][i])) for i in range(count.value)]


def defaults(op):
    found = []
    for name, description in arguments(op):
        match = re.search(r"default=(.*)$", description)
        if not match:
            continue
        value = match.group(1).strip().strip("'").replace(" ", "")
        if description.startswith("boolean"):
            value = {"0": "False", "1": "True"}.get(value, value)
        found.append(f"{name}={value}")
    return " ".join(sorted(found))


def row(op, text):
    lines, line = [], f'    {{"{op}",'
    rest = text.split(" ")
    if len(line) + len(text) + 5 <= WIDTH:
        return f'{line} "{text}"}},'
    lines.append(line)
    while rest:
        part = rest.pop(0)
        while rest and len(part) + len(rest[0]) + 15 <= WIDTH:
            part += " " + rest.pop(0)
        lines.append(f'     "{part}{" " if rest else ""}"' + ("" if rest else "},"))
    return "\n".join(lines)


def main():
    lines = ["// The defaults of MXNet 1.9.1, made by tools/make_mxnet_defaults.py."]
    for op in operator_names():
        text = defaults(op)
        if text and not op.startswith("_backward"):
            lines.append(row(op, text))
    made = "\n".join(lines) + "\n"
    if "--check" not in sys.argv[1:]:
        TABLE.write_text(made)
    elif TABLE.read_text() != made:
        sys.exit(f"{TABLE} differs from MXNet's registry; run this without --check")


main()
