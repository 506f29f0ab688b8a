"""Mixed-precision ONNX models from float32 ones.

    import mezzo
    result = mezzo.convert_model("net.onnx", "net16.onnx", profile="ort")
    print(result.report["low_nodes"], "of", result.report["nodes"], "nodes are low")

The names are those of MXNet's convert_model. The work is done by Mezzo's C++ library; the program `mezzo` does the same from a
shell.
"""

from ._convert import Result, apply_plan, convert_model, inspect, plan_model
from ._library import ConfigError, Error, UnsupportedError, version
from ._lists import (
    list_conditional_fp32_ops,
    list_fp32_ops,
    list_lp16_fp32_ops,
    list_lp16_ops,
    list_widest_type_cast,
)

__version__ = version()

__all__ = [
    "ConfigError",
    "Error",
    "Result",
    "UnsupportedError",
    "apply_plan",
    "convert_model",
    "inspect",
    "list_conditional_fp32_ops",
    "list_fp32_ops",
    "list_lp16_fp32_ops",
    "list_lp16_ops",
    "list_widest_type_cast",
    "plan_model",
    "version",
]
