#include <cstring>

#include "mezzo/error.h"
#include "report/record.h"
#include "report/sample.h"

namespace mezzo::report {
namespace {

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);  // the check value of the algorithm's catalogue
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(ScalarEvent, IsTheProtobufThatTensorBoardReads) {
  using std::string_literals::operator""s;
  const std::string expected =
      "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"s  // wall_time = 1.5
      "\x10\xac\x02"s                          // step = 300
      "\x2a\x0b\x0a\x09"s                      // summary { value {
      "\x0a\x02lr"s                            //   tag
      "\x15\x00\x00\x00\x40"s;                 //   simple_value = 2
  EXPECT_EQ(scalar_event(1.5, 300, "lr", 2.0F), expected);
}

TEST(TensorBoardSink, WritesOneFolderARunOfWholeRecords) {
  const auto folder = sample::folder();
  {
    const auto sink = tensorboard(folder);
    for (const Event& event : sample::events()) sink->write(event);
  }
  for (const char* run : {"O0", "O1"}) {
    const auto files = std::filesystem::directory_iterator(folder / run);
    const std::string content = sample::content(files->path());
    int records = 0;
    for (std::size_t at = 0; at < content.size(); ++records) {
      std::uint64_t length = 0;
      std::memcpy(&length, content.data() + at, sizeof(length));
      ASSERT_LE(at + length + 16, content.size());
      const std::string message = content.substr(at + 12, length);
      EXPECT_EQ(framed(message), content.substr(at, length + 16));
      at += length + 16;
    }
    EXPECT_EQ(records, run == std::string("O0") ? 1 + 2 * 5 + 2 + 2 : 1 + 2 * 5 + 1 + 2);
  }
}

TEST(TensorBoardSink, KeepsARunsNameFromLeavingTheFolder) {
  const auto folder = sample::folder();
  tensorboard(folder / "logs")->write(RunStarted{.run = "../x/y"});
  EXPECT_TRUE(std::filesystem::exists(folder / "logs" / ".._x_y"));
}

std::ptrdiff_t files_in(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(TensorBoardSink, WritesOverNothingThatAnotherOneWrote) {
  const auto folder = sample::folder();
  for (int i = 0; i < 3; ++i) tensorboard(folder)->write(RunStarted{.run = "O1"});
  EXPECT_EQ(files_in(folder / "O1"), 3);
}

TEST(TensorBoardSink, GivesRunsOfOneNameAFolderEach) {
  const auto folder = sample::folder();
  const auto sink = tensorboard(folder);
  for (int i = 0; i < 2; ++i) sink->write(RunStarted{.run = "O1"});
  EXPECT_EQ(files_in(folder / "O1"), 1);
  EXPECT_EQ(files_in(folder / "O1-2"), 1);
}

TEST(TensorBoardSink, LeavesOutWhatAReportDoesNotHold) {
  const auto folder = sample::folder();
  save(sample::report(), folder / "report.json");
  replay(read(folder / "report.json"), *tensorboard(folder));
  const std::string content =
      sample::content(std::filesystem::directory_iterator(folder / "O1")->path());
  EXPECT_NE(content.find("train/loss"), std::string::npos);
  for (const char* tag : {"train/accuracy", "train/items_per_second", "scale/"})
    EXPECT_EQ(content.find(tag), std::string::npos) << tag;
}

TEST(TensorBoardSink, RefusesAFolderThatCannotBeMade) {
  EXPECT_THROW(tensorboard("/dev/null/logs"), Error);
}

}  // namespace
}  // namespace mezzo::report
