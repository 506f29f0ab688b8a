#include "support/idx.h"

#include <gmock/gmock.h>
#include <mezzo/error.h>
#include <zlib.h>

#include <fstream>

namespace examples {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kTwoByThree{"\0\0\x08\x02\0\0\0\2\0\0\0\3\1\2\3\4\5\6", 18};

std::filesystem::path file_with(const std::string& content) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "idx_test";
  std::ofstream(file, std::ios::binary) << content;
  return file;
}

std::string compressed(const std::string& content) {
  const std::string name = testing::TempDir() + "idx_test_compressed.gz";
  gzFile out = gzopen(name.c_str(), "wb");
  gzwrite(out, content.data(), static_cast<unsigned>(content.size()));
  gzclose(out);
  std::ifstream in(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string failure(const std::string& content) {
  try {
    read_idx(file_with(content));
  } catch (const mezzo::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ReadIdx, ReadsShapeAndValues) {
  for (const std::string& content : {kTwoByThree, compressed(kTwoByThree)}) {
    const IdxFile file = read_idx(file_with(content));
    EXPECT_THAT(file.shape, ElementsAre(2, 3));
    EXPECT_THAT(file.values, ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(ReadIdx, ReadsNothingAtAll) {
  EXPECT_TRUE(read_idx(file_with(std::string("\0\0\x08\x01\0\0\0\0", 8))).values.empty());
}

TEST(ReadIdx, SaysWhatIsWrongWithAFile) {
  EXPECT_THAT(failure(""), HasSubstr("is cut off"));
  EXPECT_THAT(failure("hello, world"), HasSubstr("is no IDX file"));
  EXPECT_THAT(failure(kTwoByThree.substr(0, 9)), HasSubstr("is cut off"));
  EXPECT_THAT(failure(kTwoByThree.substr(0, 15)),
              HasSubstr("its header says 6 values, there are 3"));
  EXPECT_THAT(failure(kTwoByThree + "x"), HasSubstr("is longer than its header says"));
  EXPECT_THAT(failure(std::string("\0\0\x0d\x01\0\0\0\1\0\0\0\0", 12)),
              HasSubstr("is no IDX file of unsigned bytes"));
  EXPECT_THAT(failure(std::string("\0\0\x08\x02\x7f\xff\xff\xff\x7f\xff\xff\xff", 12)),
              HasSubstr("too much data"));
}

TEST(ReadIdx, NoticesDamageInsideOfCompressedData) {
  std::string content = compressed(kTwoByThree);
  EXPECT_THAT(failure(content.substr(0, content.size() - 12)), HasSubstr("idx_test' is"));
  content[content.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(failure(content), HasSubstr("is damaged"));
}

TEST(ReadIdx, NamesAFileThatIsNotThere) {
  EXPECT_THROW(read_idx("/nowhere/file.gz"), mezzo::Error);
  EXPECT_THROW(read_idx("/tmp"), mezzo::Error);
}

}  // namespace
}  // namespace examples
