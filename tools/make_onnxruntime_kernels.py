#!/usr/bin/env python3
"""Writes src/convert/standard/onnxruntime_kernels.inc: what ONNX Runtime's CPU provider does not run in float16.

Every case of the `onnx` package's own operator tests becomes a model of one node, in every opset from 13 on that has another version of
the operator. ONNX Runtime loads and runs it in float32, and then once for every choice of type variables that are float16, with its
optimisations and without. What fails is a row. Several versions of ONNX Runtime may be asked; what fails in one of them fails:

    python3 -m venv new && new/bin/pip install onnx==1.23.2 onnxruntime==1.32.0
    python3 -m venv old && old/bin/pip install onnx==1.23.2 onnxruntime==1.31.1
    python3 tools/make_onnxruntime_kernels.py new/bin/python old/bin/python           # rewrite the table
    python3 tools/make_onnxruntime_kernels.py --check new/bin/python old/bin/python   # fail where it differs

The test `convert_ort` holds the same table against the ONNX Runtime that it has, without Python.
"""
import collections
import itertools
import json
import pathlib
import subprocess
import sys
import warnings

FIRST_OPSET = 13
# Drawn at random, or read as bits: the converter leaves these as they are.
LEFT_OUT = ("Bernoulli", "BitCast", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def formal_at(formals, i):
    if i < len(formals):
        return formals[i]
    is_repeated = formals and formals[-1].option.name == "Variadic" and formals[-1].is_homogeneous
    return formals[-1] if is_repeated else None


def float_variables(schema):
    wanted = {"tensor(float)", "tensor(float16)"}
    return {c.type_param_str for c in schema.type_constraints if wanted <= set(c.allowed_type_strs)}


def versions():
    """Operator -> its schemas, from the one of opset 13 on."""
    from onnx import defs
    found = collections.defaultdict(list)
    for schema in defs.get_all_schemas_with_history():
        if schema.domain in ("", "ai.onnx.ml") and not schema.deprecated and schema.name not in LEFT_OUT:
            found[schema.domain, schema.name].append(schema)
    for key, schemas in found.items():
        schemas.sort(key=lambda s: s.since_version)
        if key[0] == "":
            while len(schemas) > 1 and schemas[1].since_version <= FIRST_OPSET:
                schemas.pop(0)
    return found


def cases():
    """Operator -> (node, the arrays that it reads)."""
    import numpy as np
    import onnx
    from onnx.backend.test.case.node import collect_testcases
    found = collections.defaultdict(list)
    for case in collect_testcases(None):
        if len(case.model.graph.node) != 1 or not case.data_sets:
            continue
        values = [onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in case.data_sets[0][0]]
        names = [i.name for i in case.model.graph.input]
        if len(values) != len(names) or not all(isinstance(v, (np.ndarray, np.generic)) for v in values):
            continue
        node = case.model.graph.node[0]
        found[node.domain, node.op_type].append((node, {n: np.asarray(v) for n, v in zip(names, values)}))
    return found


class Trial:
    """A node in one opset, whose type variables are float32 or float16."""

    def __init__(self, schema, node, arrays, as_float):
        import numpy as np
        self.schema, self.node = schema, node
        self.arrays = {}
        self.variables, self.typed = set(), None  # `typed`: the variable whose type an attribute says
        self.is_whole = True
        candidates = float_variables(schema)
        for i, name in enumerate(node.input):
            formal = formal_at(schema.inputs, i)
            if not name:
                continue
            if formal is None or name not in arrays:
                self.is_whole = False
                return
            if formal.type_str in as_float:
                arrays = {**arrays, name: arrays[name].astype(np.float32)}
            self.arrays[name] = arrays[name]
            if formal.type_str in candidates and arrays[name].dtype == np.float32:
                self.variables.add(formal.type_str)
        bound = {formal_at(schema.inputs, i).type_str for i, name in enumerate(node.input) if name}
        for i, name in enumerate(node.output):
            formal = formal_at(schema.outputs, i)
            if formal is None:
                self.is_whole = False
            elif name and formal.type_str in candidates - bound and self.says_float():
                self.typed = formal.type_str
                self.variables.add(self.typed)

    def says_float(self):
        from onnx import TensorProto
        return any((a.name in ("dtype", "to") and a.i == TensorProto.FLOAT) or
                   (a.name == "value" and a.t.data_type == TensorProto.FLOAT) for a in self.node.attribute)

    def attributes(self):
        """As the node has them in float32, but for those that are no single number or word."""
        texts = {}
        for attribute in self.node.attribute:
            if attribute.type == attribute.INT:
                texts[attribute.name] = str(attribute.i)
            if attribute.type == attribute.STRING:
                texts[attribute.name] = attribute.s.decode()
        return texts

    def model(self, low):
        import onnx
        from onnx import TensorProto, helper
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        nodes, infos, outputs = [], [], []
        for name, array in self.arrays.items():
            infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
        for i, name in enumerate(node.input):
            if name and formal_at(self.schema.inputs, i).type_str in low:
                node.input[i] = f"{name}_low_{i}"
                nodes.append(helper.make_node("Cast", [name], [node.input[i]], to=TensorProto.FLOAT16))
        nodes.append(node)
        for i, name in enumerate(node.output):
            if not name:
                continue
            outputs.append(helper.make_empty_tensor_value_info(name))
            if formal_at(self.schema.outputs, i).type_str in low:
                node.output[i] = f"{name}_low"
                nodes.append(helper.make_node("Cast", [node.output[i]], [name], to=TensorProto.FLOAT))
        for attribute in node.attribute if self.typed in low else []:
            if attribute.name in ("dtype", "to"):
                attribute.i = TensorProto.FLOAT16
            if attribute.name == "value":
                array = onnx.numpy_helper.to_array(attribute.t).astype("float16")
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(array))
        since = self.schema.since_version
        imports = [helper.make_opsetid("", max(since, FIRST_OPSET) if not node.domain else 21)]
        if node.domain:
            imports.append(helper.make_opsetid(node.domain, since))
        graph = helper.make_graph(nodes, "trial", infos, outputs)
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        try:
            return onnx.shape_inference.infer_shapes(model)
        except Exception:
            return model

    def runs(self, low):
        import onnxruntime
        bytes_of_it = self.model(low).SerializeToString()
        for level in (onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = 1
            options.graph_optimization_level = level
            try:
                session = onnxruntime.InferenceSession(bytes_of_it, options, providers=["CPUExecutionProvider"])
                session.run(None, {i.name: self.arrays[i.name] for i in session.get_inputs()})
            except Exception:
                return False
        return True

    def is_valid(self, low):
        import onnx
        try:
            model = self.model(low)
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
            return True
        except Exception:
            return False


def trials(schema, of_operator):
    """As the cases are, and with integers as floats where a variable may be both."""
    import numpy as np
    for node, arrays in of_operator:
        first = Trial(schema, node, arrays, ())
        others = {formal_at(schema.inputs, i).type_str for i, name in enumerate(node.input)
                  if first.is_whole and name and arrays[name].dtype != np.float32 and arrays[name].dtype.kind in "iuf"}
        others &= float_variables(schema)
        for as_float in [(), *((v,) for v in sorted(others))]:
            trial = Trial(schema, node, arrays, as_float)
            if trial.is_whole and trial.variables and trial.runs(()):
                yield trial


def probe():
    """One record a trial and choice of variables."""
    warnings.filterwarnings("ignore")
    of_operators = cases()
    records = []
    for key, schemas in sorted(versions().items()):
        for schema in schemas:
            for trial in trials(schema, of_operators.get(key, [])):
                names = sorted(trial.variables)
                for count in range(1, len(names) + 1):
                    for low in itertools.combinations(names, count):
                        runs = trial.runs(low)
                        records.append({"op": "::".join(filter(None, key)), "since": schema.since_version, "low": low,
                                        "of": names, "attributes": trial.attributes(), "runs": runs,
                                        "valid": runs or trial.is_valid(low) or not trial.is_valid(())})
    return records


def alone(records, variable):
    """Rows of a variable that is never float16, and the attribute and its values under which that is."""
    mine = [r for r in records if variable in r["low"]]
    failed = [r for r in mine if not r["runs"]]
    if not failed:
        return []
    valid = all(r["valid"] for r in failed)
    if len(failed) == len(mine):
        return [("", "", valid)]
    for name in sorted({n for r in failed for n in r["attributes"]}):
        values = {r["attributes"].get(name) for r in failed}
        if None not in values and all(not r["runs"] for r in mine if r["attributes"].get(name) in values):
            return [(name, value, valid) for value in sorted(values)]
    return None


def rows_of(op, since, records):
    variables = sorted({v for r in records for v in r["low"]})
    failing = lambda r: not r["runs"]
    rows = []
    explained = lambda r: any(row[4] in r["low"] and row[5] not in r["low"] for row in rows)
    whole = [r for r in records if list(r["low"]) == r["of"]]
    for variable in variables:
        for attribute, value, valid in alone(whole, variable) or []:
            rows.append((op, since, attribute, value, variable, "", valid))
    for variable, other in itertools.permutations(variables, 2):
        choices = collections.defaultdict(list)
        for r in records:
            if variable in r["low"] and other in r["of"] and other not in r["low"]:
                choices[tuple(r["low"]), tuple(r["of"])].append(r)
        if choices and all(any(map(failing, tried)) for tried in choices.values()) and not any(row[4] == variable for row in rows):
            rows.append((op, since, "", "", variable, other, all(r["valid"] for t in choices.values() for r in t if failing(r))))
    for r in records:
        if failing(r) and not explained(r):
            sys.exit(f"no row says why {op} {since} fails with {r['low']} in float16: {r['attributes']}")
    return rows


def quoted(text):
    return '"' + text + '"'


def generate(interpreters):
    grouped = collections.defaultdict(list)
    names = []
    for interpreter in interpreters:
        answer = json.loads(subprocess.run([interpreter, "-W", "ignore", __file__, "--probe"], check=True, stdout=subprocess.PIPE).stdout)
        names.append(answer["version"])
        for record in answer["records"]:
            grouped[record["op"], record["since"]].append(record)
    lines = ["// Written by tools/make_onnxruntime_kernels.py with ONNX Runtime " + " and ".join(sorted(names)) + "; do not edit.", "",
             "// clang-format off", "constexpr KernelGap kKernelGaps[] = {"]
    for (op, since), records in sorted(grouped.items()):
        for row in rows_of(op, since, records):
            op_text, _, attribute, value, variable, other, valid = row
            lines.append(f"    {{{quoted(op_text)}, {since}, {quoted(attribute)}, {quoted(value)}, {quoted(variable)}, "
                         f"{quoted(other)}, {'true' if valid else 'false'}}},")
    return "\n".join([*lines, "};", "// clang-format on", ""])


def main():
    if sys.argv[1:] == ["--probe"]:
        import onnxruntime
        print(json.dumps({"version": onnxruntime.__version__, "records": probe()}))
        return
    path = pathlib.Path(__file__).resolve().parent.parent / "src/convert/standard/onnxruntime_kernels.inc"
    interpreters = [a for a in sys.argv[1:] if a != "--check"]
    if not interpreters:
        sys.exit(__doc__)
    text = generate(interpreters)
    if "--check" not in sys.argv:
        path.write_text(text)
    elif path.read_text() != text:
        sys.exit(f"{path} differs from what ONNX Runtime does")
    else:
        print("the table says what ONNX Runtime does")


if __name__ == "__main__":
    main()
