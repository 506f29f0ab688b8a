// The 1,072 models of Debian's libonnx-testdata.
#pragma once

#include <algorithm>
#include <filesystem>
#include <vector>

namespace mezzo::convert {

inline std::vector<std::filesystem::path> corpus_models() {
  std::vector<std::filesystem::path> models;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MEZZO_ONNX_TESTDATA)) {
    if (entry.path().extension() == ".onnx") models.push_back(entry.path());
  }
  std::ranges::sort(models);
  return models;
}

}  // namespace mezzo::convert
