// TorchScript files: how they are read, and errors that name them.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <exception>
#include <filesystem>
#include <string>

#include "mezzo/export.h"

namespace mezzo::deploy {

/// Reads a TorchScript file onto the CPU. Operators of torchvision are known afterwards, whether or
/// not the process has that library. Throws Error, with `where` in front, for a file that cannot be
/// read or is none, and UnsupportedError for one that calls operators which nobody registered.
MEZZO_API torch::jit::Module load_script(const std::filesystem::path& path, const char* where);

/// Throws ConfigError if both paths lead to one file, so that no result replaces what it is made
/// of.
MEZZO_API void refuse_same_file(const std::filesystem::path& in, const std::filesystem::path& out,
                                const char* where);

/// The line of an exception that says what happened: the last of TorchScript's errors, the first
/// of all others.
MEZZO_API std::string reason_of(const std::exception& error);

/// For a handler: throws the current exception again as one of Mezzo's, with `where` and the file
/// in front.
[[noreturn]] MEZZO_API void rethrow_naming(const std::filesystem::path& file, const char* where);

}  // namespace mezzo::deploy
