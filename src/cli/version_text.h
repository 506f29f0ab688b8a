// The answer to `mezzo --version`.
#pragma once

#include <string>

namespace mezzo::cli {

/// Version, commit, compiler and LibTorch of this build, a line each. LibTorch is not loaded for
/// it.
std::string version_text();

}  // namespace mezzo::cli
