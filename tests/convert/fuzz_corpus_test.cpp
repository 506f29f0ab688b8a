// The fuzzer's corpus, whole, cut off and with single bytes turned: never a crash, never an invalid
// result.
#include <gmock/gmock.h>

#include "builder.h"
#include "fuzz/one_input.h"

namespace mezzo::convert {
namespace {

TEST(FuzzCorpus, IsSurvivedWholeCutAndTurned) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/convert/fuzz/corpus")) {
    const std::string bytes = contents(entry.path());
    fuzz_one(bytes);
    for (std::size_t i = 0; i < bytes.size(); i += 5) {
      fuzz_one(bytes.substr(0, i));
      std::string turned = bytes;
      turned[i] = static_cast<char>(turned[i] ^ (1 << i % 8));
      fuzz_one(turned);
    }
    ++files;
  }
  EXPECT_GT(files, 9U);
}

}  // namespace
}  // namespace mezzo::convert
