// Every test begins with the same random numbers, whatever ran before it.
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace {

class Seed : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { torch::manual_seed(20); }
};

// The framework owns its listeners.
const bool kSeeds = [] {
  testing::UnitTest::GetInstance()->listeners().Append(std::make_unique<Seed>().release());
  return true;
}();

}  // namespace
