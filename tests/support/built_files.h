// Files of the build that a test program opens, also where it was carried to another machine.
#pragma once

#include <filesystem>
#include <string>

#include "platform/libraries.h"

namespace mezzo::testing_support {

/// The file where it was built; where that is not, the one of this name beside the program.
inline std::string built_file(const std::string& path) {
  if (std::filesystem::exists(path)) return path;
  return platform::program_path().parent_path() / std::filesystem::path(path).filename();
}

}  // namespace mezzo::testing_support
