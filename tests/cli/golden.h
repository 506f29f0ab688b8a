// Text that people read is compared with a file. MEZZO_REWRITE_GOLDEN=1 writes the files anew, for
// review.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "cli/program.h"

namespace mezzo::cli {

inline void expect_golden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(MEZZO_GOLDEN_FOLDER) / name;
  if (std::getenv("MEZZO_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(text, content_of(path))
      << "differs from " << path << "; MEZZO_REWRITE_GOLDEN=1 writes it anew";
}

}  // namespace mezzo::cli
