#include <gmock/gmock.h>

#include "parallel/several.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (const auto code = mezzo::parallel::testing_ranks::run_as_rank(argc, argv)) return *code;
  return RUN_ALL_TESTS();
}
