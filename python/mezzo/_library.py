"""The C library (mezzo/convert_c.h), and its answers as Python values and exceptions."""

import ctypes
import json
import os
from typing import Any, Callable, Optional

Progress = Callable[[str, float], None]


class Error(RuntimeError):
    """A file cannot be read or written, or a judge does not accept the result."""


class ConfigError(Error, ValueError):
    """The request cannot be met."""


class UnsupportedError(Error):
    """The model holds what is not supported."""


_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_double, ctypes.c_void_p)
_ANSWER = ctypes.POINTER(ctypes.c_void_p)
_TEXT = ctypes.c_char_p
_STOPPED = 4
_ERRORS = {1: Error, 2: ConfigError, 3: UnsupportedError}


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libmezzo_convert.so"))
    arguments = {
        "mezzo_convert_model": [_TEXT, _TEXT, _TEXT, _PROGRESS, ctypes.c_void_p, _ANSWER],
        "mezzo_plan_model": [_TEXT, _TEXT, _PROGRESS, ctypes.c_void_p, _ANSWER],
        "mezzo_apply_plan": [_TEXT, _TEXT, _TEXT, _TEXT, _PROGRESS, ctypes.c_void_p, _ANSWER],
        "mezzo_inspect_model": [_TEXT, _ANSWER],
        "mezzo_list": [_TEXT, _TEXT, _ANSWER],
    }
    for name, types in arguments.items():
        function = getattr(library, name)
        function.argtypes = types
        function.restype = ctypes.c_int
    library.mezzo_version.argtypes = []
    library.mezzo_version.restype = _TEXT
    library.mezzo_free.argtypes = [ctypes.c_void_p]
    library.mezzo_free.restype = None
    return library


_library = _load()


def version() -> str:
    """The version of the library."""
    return _library.mezzo_version().decode()


def call(function: str, *texts: str) -> Any:
    """The answer of a function that takes texts alone."""
    return _answer(function, [text.encode() for text in texts], None)


def call_with_progress(function: str, *texts: str, progress: Optional[Progress]) -> Any:
    """The same of one that tells how far it is.

    An exception of `progress`, or a Ctrl-C, ends the work and is thrown from here.
    """
    thrown = []

    def told(what: bytes, share: float, _own: Any) -> int:
        try:
            if progress is not None:
                progress(what.decode(), share)
            return 0
        except BaseException as error:  # a Ctrl-C too: nothing may be thrown through C
            thrown.append(error)
            return 1

    return _answer(function, [text.encode() for text in texts] + [_PROGRESS(told), None], thrown)


def _answer(function: str, arguments: list, thrown: Optional[list]) -> Any:
    answer = ctypes.c_void_p()
    try:
        code = getattr(_library, function)(*arguments, ctypes.byref(answer))
        text = "" if not answer.value else ctypes.string_at(answer.value).decode()
    finally:
        _library.mezzo_free(answer)
    if code == _STOPPED and thrown:
        raise thrown[0]
    if code != 0:
        raise _ERRORS.get(code, Error)(text)
    return json.loads(text)
