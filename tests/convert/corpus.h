// The 1,072 models of Debian's libonnx-testdata.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/temporary_files.h"

namespace mezzo::convert {

/// A folder for many short-lived files: in memory where the system has such a place, since every
/// written model is flushed to the disk.
inline std::filesystem::path scratch_folder(const std::string& name) {
  const auto folder = testing_files::folder_in_memory() / "scratch" / name;
  std::filesystem::create_directories(folder);
  return folder;
}

inline std::vector<std::filesystem::path> corpus_models() {
  std::vector<std::filesystem::path> models;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MEZZO_ONNX_TESTDATA)) {
    if (entry.path().extension() == ".onnx") models.push_back(entry.path());
  }
  std::ranges::sort(models);
  return models;
}

}  // namespace mezzo::convert
