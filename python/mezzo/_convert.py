"""convert_model, plan_model, apply_plan, inspect."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import tempfile
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._library import ConfigError, Progress, call, call_with_progress

Path = Union[str, "os.PathLike[str]"]
Model = Any
"""A path, or an onnx.ModelProto where the package onnx is installed."""
Plan = Dict[str, Any]


@dataclasses.dataclass
class Result:
    """The decisions, their result, and the model if no file was named."""

    plan: Plan
    report: Dict[str, Any]
    model: Optional[Model] = None


def convert_model(
    model: Model,
    out: Optional[Path] = None,
    *,
    target_dtype: Optional[str] = None,
    target_dtype_ops: Optional[Sequence[str]] = None,
    fp32_ops: Optional[Sequence[str]] = None,
    widest_dtype_ops: Optional[Sequence[str]] = None,
    conditional_fp32_ops: Optional[Sequence[Tuple[str, str, Sequence[str]]]] = None,
    excluded_names: Optional[Sequence[str]] = None,
    included_names: Optional[Sequence[str]] = None,
    excluded_tensors: Optional[Sequence[str]] = None,
    excluded_inputs: Optional[Sequence[str]] = None,
    excluded_regions: Optional[Sequence[Tuple[str, str]]] = None,
    custom_operators: Optional[Sequence[Path]] = None,
    allow_unknown_ops: Optional[bool] = None,
    cast_optional_params: Optional[bool] = None,
    io: Optional[str] = None,
    io_of: Optional[Mapping[str, str]] = None,
    profile: Optional[str] = None,
    opset: Union[str, int, None] = None,
    calibration: Optional[Sequence[Path]] = None,
    headroom: Optional[float] = None,
    verify: Optional[str] = None,
    tolerance: Optional[float] = None,
    check: Optional[str] = None,
    attempts: Optional[int] = None,
    time_limit: Optional[float] = None,
    evaluator: Optional[Path] = None,
    onnxruntime: Optional[Path] = None,
    weights_only: Optional[bool] = None,
    clamp_weights: Optional[bool] = None,
    raise_epsilons: Optional[bool] = None,
    fold_batch_norm: Optional[bool] = None,
    without_pins: Optional[Sequence[str]] = None,
    progress: Optional[Progress] = None,
) -> Result:
    """Makes a mixed-precision model.

    `model` is a path or an onnx.ModelProto, and is never changed. With `out`, a path, the new model is written there, whole or not
    at all; without, Result.model is it, an onnx.ModelProto.

    An option that is None has its default, which stands in brackets:

    target_dtype: "float16" or "bfloat16" ["float16"].
    target_dtype_ops, fp32_ops, widest_dtype_ops: operators that run in the target type, in float32, in the widest type among their
        inputs. A list replaces the default one (list_lp16_ops() and its siblings); entries "+Op" and "-Op" edit it.
    conditional_fp32_ops: (operator, attribute, values): the operator stays float32 where the attribute has one of the values.
    excluded_names, included_names: nodes that stay float32, or go low: exact, a glob, or "/regex/".
    excluded_tensors: values that stay float32 wherever they are made and read.
    excluded_inputs: inputs that stay float32, "NODE:INDEX" or "OP:INDEX".
    excluded_regions: (from, to): the nodes on every way between two values stay float32.
    custom_operators: files that describe operators that the standard does not know.
    allow_unknown_ops: lists may name operators that nothing describes [False].
    cast_optional_params: True stores weights in the target type, False keeps them float32 behind Casts [False].
    io: "keep" or "low": the types of inputs and outputs ["keep"].
    io_of: the type of single inputs and outputs, by name.
    profile: what the target runs in 16 bits: "spec", "portable", "ort", "ort-cpu", "ort-cuda", "trt", "openvino" ["portable"].
    opset: "keep", "auto", or a number ["keep"].
    calibration: samples (.npz, .npy or ONNX tensor files) on which ranges are measured.
    headroom: a value this many times larger than on the samples must still be finite [4].
    verify: "none", "load", "run" or "compare": what must be confirmed before the model is written ["load"].
    tolerance: the largest error, relative to an output's range; starts a search for what must stay float32.
    check: a shell command that accepts a model ({}) by exit code 0.
    attempts, time_limit: the budget of a search: judgements [80], and seconds.
    evaluator: the library or folder of the evaluator on LibTorch [that of the package mezzo-evaluator, beside torch].
    onnxruntime: the library or folder of ONNX Runtime [that of this environment].
    weights_only: stores weights in the target type, computes in float32 [False].
    clamp_weights, raise_epsilons, fold_batch_norm: changes of constants that let more go low [False].
    without_pins: reasons to keep something float32 that do not hold for this model.
    progress: called with what is being done and how much of it is done, 0 to 1. What it throws ends the conversion, as Ctrl-C does
        at the next such call: one at the start, and many while samples are judged and large models are written. Nothing is written then.

    Raises ConfigError for options that cannot be, UnsupportedError for models that cannot be treated, Error for the rest.
    """
    options = dict(locals())
    for name in ("model", "out", "progress"):
        del options[name]
    texts = _as_json(options)
    with _as_file(model) as source, _target(out) as target:
        answer = call_with_progress("mezzo_convert_model", source, target, texts, progress=progress)
        return _result(answer, out, target)


def plan_model(model: Model, *, progress: Optional[Progress] = None, **options: Any) -> Plan:
    """The decisions alone, as a dict that json can store; nothing is written. Options are those of convert_model()."""
    with _as_file(model) as source:
        return call_with_progress("mezzo_plan_model", source, _as_json(options), progress=progress)


def apply_plan(
    model: Model,
    plan: Plan,
    out: Optional[Path] = None,
    *,
    verify: Optional[str] = None,
    calibration: Optional[Sequence[Path]] = None,
    tolerance: Optional[float] = None,
    check: Optional[str] = None,
    evaluator: Optional[Path] = None,
    onnxruntime: Optional[Path] = None,
    progress: Optional[Progress] = None,
) -> Result:
    """Applies the decisions of a plan to the same graph, or to another checkpoint of it.

    `model` and `out` are as in convert_model(), and so are the other arguments: who judges the result.
    """
    judges = _as_json(
        {
            "verify": verify,
            "calibration": calibration,
            "tolerance": tolerance,
            "check": check,
            "evaluator": evaluator,
            "onnxruntime": onnxruntime,
        }
    )
    with _as_file(model) as source, _target(out) as target:
        answer = call_with_progress("mezzo_apply_plan", source, target, json.dumps(plan), judges, progress=progress)
        return _result(answer, out, target)


def inspect(model: Model) -> Dict[str, Any]:
    """Describes a model (a path or an onnx.ModelProto): types, operators, ranges, control flow, sizes."""
    with _as_file(model) as source:
        return call("mezzo_inspect_model", source)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ConfigError("[convert] a model that is no file needs the package onnx; name files, or install it") from error
    return onnx


@contextlib.contextmanager
def _as_file(model: Model) -> Iterator[str]:
    if isinstance(model, (str, os.PathLike)):
        yield os.fspath(model)
        return
    onnx = _onnx()
    if not isinstance(model, onnx.ModelProto):
        raise ConfigError(f"[convert] the model is a {type(model).__name__}; expected a path or an onnx.ModelProto")
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = os.path.join(folder, "model.onnx")
        copy = onnx.ModelProto()  # saving weights beside the model would move them out of the caller's
        copy.CopyFrom(model)
        onnx.save(copy, path, save_as_external_data=model.ByteSize() > 1 << 30)
        yield path


@contextlib.contextmanager
def _target(out: Optional[Path]) -> Iterator[str]:
    if out is not None:
        yield os.fspath(out)
        return
    _onnx()
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        yield os.path.join(folder, "model.onnx")


def _result(answer: Dict[str, Any], out: Optional[Path], target: str) -> Result:
    return Result(answer["plan"], answer["report"], None if out is not None else _onnx().load(target))


def _as_json(options: Mapping[str, Any]) -> str:
    given: Dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "opset" in given:
        given["opset"] = str(given["opset"])
    if "onnxruntime" not in given:
        judge = _onnxruntime_here()
        if judge is not None:
            given["onnxruntime"] = judge
    for name, value in given.items():
        if isinstance(value, (str, os.PathLike, bool, int, float, dict)):
            continue
        given[name] = dict(value) if isinstance(value, Mapping) else list(value)
    return json.dumps(given, default=_as_text)


def _as_text(value: Any) -> Union[str, List[Any]]:
    return os.fspath(value) if isinstance(value, os.PathLike) else list(value)


def _onnxruntime_here() -> Optional[str]:
    """The folder of this environment's ONNX Runtime, which is not imported for it."""
    try:
        found = importlib.util.find_spec("onnxruntime")
    except (ImportError, ValueError):
        return None
    for place in (found.submodule_search_locations or []) if found is not None else []:
        folder = os.path.join(place, "capi")
        if os.path.isdir(folder) and any(name.startswith("libonnxruntime.so") for name in os.listdir(folder)):
            return folder
    return None
