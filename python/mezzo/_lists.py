"""The default lists of operators, by their names in ONNX, sorted."""

from typing import List, Tuple

from ._library import call


def list_lp16_ops(target_dtype: str = "float16") -> List[str]:
    """Operators that run in `target_dtype` ("float16" or "bfloat16")."""
    return call("mezzo_list", "lp16_ops", target_dtype)


def list_fp32_ops(target_dtype: str = "float16") -> List[str]:
    """Operators that stay float32."""
    return call("mezzo_list", "fp32_ops", target_dtype)


def list_lp16_fp32_ops(target_dtype: str = "float16") -> List[str]:
    """Operators that run in either type, whichever their neighbours have."""
    return call("mezzo_list", "lp16_fp32_ops", target_dtype)


def list_widest_type_cast(target_dtype: str = "float16") -> List[str]:
    """Operators that run in the widest type among their inputs."""
    return call("mezzo_list", "widest_type_cast", target_dtype)


def list_conditional_fp32_ops(target_dtype: str = "float16") -> List[Tuple[str, str, List[str]]]:
    """Operators that stay float32 for some values of an attribute: (operator, attribute, values)."""
    return [tuple(row) for row in call("mezzo_list", "conditional_fp32_ops", target_dtype)]
