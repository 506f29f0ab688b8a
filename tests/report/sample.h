// Two runs with every kind of event, as the tests of this folder use them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "mezzo/report.h"

namespace mezzo::report::sample {

inline Machine machine() {
  return {.processor = "Test CPU <9000>",
          .instruction_sets = {"avx2", "avx512_bf16"},
          .cores = 2,
          .threads = 1,
          .devices = {"cpu"},
          .versions = {{"libtorch", "2.11.0"}, {"mezzo", "0.1.0"}},
          .compute = {{"float16", "emulated"}}};
}

inline std::vector<Event> events() {
  return {
      RunStarted{"O0", 1, 20, 128, "images", machine()},
      StepTaken{1, 10, 1.5, 0.5, 2000, 1, 0},
      StepTaken{1, 20, 1.0, 0.75, 2100, 1, 0},
      EpochEnded{1, 1.25, 0.75, 0.8125, 2.5},
      RunEnded{0.8125, 0.05, 3 << 20, 4096, 0, 4096, 0, 0, 0, 1},
      RunStarted{"O1", 1, 20, 128, "images", machine()},
      StepTaken{1, 10, 1.25, 0.5, 3000, 32768, 1},
      Message{"an overflow; scale is now 32768"},
      StepTaken{1, 20, 1.0, 0.7, 3000, 32768, 1},
      EpochEnded{1, 1.125, 0.7, std::nullopt, 2.5},
      RunEnded{0.8, 0.025, 2 << 20, 4096, 4096, 4096, 4.5, 12.25, 1, 32768},
  };
}

inline Report report() {
  Report all;
  for (const Event& event : events()) add(all, event);
  return all;
}

/// A folder of this test's own, empty at its start.
inline std::filesystem::path folder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) /
                                     (std::string(test->test_suite_name()) + '.' + test->name());
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

inline std::string content(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace mezzo::report::sample
