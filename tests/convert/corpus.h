// The 1,072 models of Debian's libonnx-testdata.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace mezzo::convert {

/// A folder for many short-lived files: in memory where the system has such a place, since every
/// written model is flushed to the disk.
inline std::filesystem::path scratch_folder(const std::string& name) {
  const std::filesystem::path memory = "/dev/shm";
  const auto root =
      std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
  const auto folder = root / ("mezzo_test_" + std::to_string(getpid())) / name;
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
