#include <gmock/gmock.h>

#include "parallel/several.h"
#include "support/temporary_files.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (const auto code = mezzo::parallel::testing_ranks::run_as_rank(argc, argv)) return *code;
  testing::UnitTest::GetInstance()->listeners().Append(new mezzo::testing_files::TemporaryFiles);
  return RUN_ALL_TESTS();
}
