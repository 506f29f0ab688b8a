#!/usr/bin/env python3
"""Writes src/convert/standard/schema_table.inc from the public operator documentation.

The facts (which type a formal may have in which opset, attributes and their defaults) are read from the operator registry of
the `onnx` package, which also generates the public documentation. Only people who add an opset run this:

    python3 -m venv venv && venv/bin/pip install onnx==1.23.2
    venv/bin/python tools/make_onnx_schemas.py            # rewrite the table
    venv/bin/python tools/make_onnx_schemas.py --check    # fail where it differs from the registry

The test `convert_oracle` compares the same table with Debian's libonnx (opsets up to 17) without Python.
"""
import pathlib
import re
import sys

from onnx import defs

DOMAINS = ["", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview"]
ELEMENTS = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9,
    "float16": 10, "double": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16,
    "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20, "uint4": 21, "int4": 22,
    "float4e2m1": 23, "float8e8m0": 24, "uint2": 25, "int2": 26, "float6e2m3": 27, "float6e3m2": 28,
}
FORMS = [r"tensor\((\w+)\)", r"seq\(tensor\((\w+)\)\)", r"optional\(tensor\((\w+)\)\)",
         r"optional\(seq\(tensor\((\w+)\)\)\)"]


def type_set(types):
    masks = [0, 0, 0, 0]
    others = False
    for text in types:
        for k, form in enumerate(FORMS):
            match = re.fullmatch(form, text)
            if match:
                masks[k] |= 1 << ELEMENTS[match.group(1)]
                break
        else:
            assert "map(" in text, text
            others = True
    return (*masks, others)


def text_of(attribute):
    if not attribute.default_value.type:
        return None
    from onnx.helper import get_attribute_value
    value = get_attribute_value(attribute.default_value)
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, float):
        return f"{value:.9g}"
    return str(value)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def placed(rows, run):
    """Where `rows` holds that run; appended if nowhere. Most versions of an operator have another's formals and attributes."""
    for start in range(len(rows) - len(run) + 1):
        if rows[start:start + len(run)] == run:
            return start
    rows += run
    return len(rows) - len(run)


class Table:
    def __init__(self):
        self.sets, self.set_index = [], {}
        self.variables, self.formals, self.attributes, self.schemas = [], [], [], []

    def set_of(self, types):
        key = type_set(types)
        if key not in self.set_index:
            self.set_index[key] = len(self.sets)
            self.sets.append(key)
        return self.set_index[key]

    def add(self, schema):
        variables, formals, attributes = [], [], []
        own = {}
        for constraint in schema.type_constraints:
            own[constraint.type_param_str] = len(own)
            variables.append((constraint.type_param_str, self.set_of(constraint.allowed_type_strs), False))
        for formal in [*schema.inputs, *schema.outputs]:
            if formal.type_str not in own:
                own[formal.type_str] = len(own)
                variables.append((formal.type_str, self.set_of([formal.type_str]), True))
            option = {"Single": 0, "Optional": 1, "Variadic": 2}[formal.option.name]
            if option == 2 and not formal.is_homogeneous:
                option = 3
            formals.append((formal.name, own[formal.type_str], option))
        for name in sorted(schema.attributes):
            attribute = schema.attributes[name]
            attributes.append((name, int(attribute.type.value), attribute.required, text_of(attribute)))
        self.schemas.append((DOMAINS.index(schema.domain), schema.name, schema.since_version, schema.deprecated,
                             placed(self.formals, formals), len(schema.inputs), len(schema.outputs),
                             placed(self.variables, variables), len(variables),
                             placed(self.attributes, attributes), len(attributes), schema.min_input,
                             min(schema.max_input, 65535), schema.min_output, min(schema.max_output, 65535)))


def generate():
    table = Table()
    schemas = defs.get_all_schemas_with_history()
    for schema in sorted(schemas, key=lambda s: (DOMAINS.index(s.domain), s.name, s.since_version)):
        table.add(schema)
    flag = {True: "true", False: "false"}
    lines = ["// Written by tools/make_onnx_schemas.py from the public operator documentation; do not edit.",
             f"constexpr int kNewestOpset = {defs.onnx_opset_version()};", "", "// clang-format off",
             "constexpr TypeSet kTypeSets[] = {"]
    lines += ["    {" + ", ".join(f"{m:#x}" for m in s[:4]) + f", {flag[s[4]]}}}," for s in table.sets]
    lines += ["};", "", "constexpr Variable kVariables[] = {"]
    lines += [f"    {{{quoted(n)}, kTypeSets + {s}, {flag[x]}}}," for n, s, x in table.variables]
    lines += ["};", "", "constexpr Formal kFormals[] = {"]
    lines += [f"    {{{quoted(n)}, {v}, Arity{{{o}}}}}," for n, v, o in table.formals]
    lines += ["};", "", "constexpr AttributeFact kAttributes[] = {"]
    lines += [f"    {{{quoted(n)}, {t}, {flag[r]}, {quoted(d) if d is not None else 'nullptr'}}},"
              for n, t, r, d in table.attributes]
    lines += ["};", "", "constexpr Row kRows[] = {"]
    lines += [f"    {{{s[0]}, {quoted(s[1])}, {s[2]}, {flag[s[3]]}, " + ", ".join(str(x) for x in s[4:]) + "},"
              for s in table.schemas]
    lines += ["};", "// clang-format on", ""]
    return "\n".join(lines)


def main():
    path = pathlib.Path(__file__).resolve().parent.parent / "src/convert/standard/schema_table.inc"
    text = generate()
    if "--check" in sys.argv:
        if path.read_text() != text:
            sys.exit(f"{path} differs from the operator registry")
        print("the table agrees with the operator registry")
    else:
        path.write_text(text)


if __name__ == "__main__":
    main()
