#include <gmock/gmock.h>

#include "temporary_files.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  // GoogleTest owns its listeners.
  testing::UnitTest::GetInstance()->listeners().Append(new mezzo::testing_files::TemporaryFiles);
  return RUN_ALL_TESTS();
}
