#include "ranks/rank_output.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace mezzo::ranks {
namespace {

// The shown form of a text that arrives in pieces of that length.
std::string shown(const std::string& text, std::size_t piece) {
  std::ostringstream out;
  std::ostringstream err;
  RankOutput output(3, {}, false, out, err);
  for (std::size_t at = 0; at < text.size(); at += piece) output.add(0, text.substr(at, piece));
  output.flush();
  EXPECT_EQ(err.str(), "");
  return out.str();
}

TEST(RankOutput, ShowsTheSameLinesInWhateverPiecesTheyArrive) {
  const std::string text =
      "one\n\n" + std::string(200'000, 'x') + "\n" + std::string(65536, 'y') + "\nno end of line";
  const std::string whole = shown(text, text.size());
  EXPECT_EQ(whole.substr(0, 26), "[rank 3] one\n[rank 3] \n[ra");
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 1 + 1 + 4 + 1 + 1);
  for (const std::size_t piece : {1, 7, 4096, 65536, 65537}) EXPECT_EQ(shown(text, piece), whole);
}

TEST(RankOutput, SaysOnceWhereAFileCannotTakeWhatComes) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("mezzo_full_disk_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink("/dev/full", folder / "rank_2.out");
  std::ostringstream out, err;
  RankOutput output(2, folder, /*tee=*/true, out, err);
  EXPECT_FALSE(output.has_lost());
  output.add(0, "one\n");
  output.add(0, "two\n");
  EXPECT_TRUE(output.has_lost());
  EXPECT_EQ(err.str(),
            "[launch] cannot write '" + (folder / "rank_2.out").string() +
                "': No space left on device; what rank 2 writes there from now on is lost\n");
  EXPECT_EQ(out.str(), "[rank 2] one\n[rank 2] two\n");
  std::filesystem::remove_all(folder);
}

TEST(RankOutput, AFileGetsEveryByteAsItComes) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("mezzo_rank_output_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  // Not by `+`, of which g++ 12 warns that it writes beyond a short string.
  std::string text(200'000, 'x');
  text += "\r50 %\r100 %\nno end of line";
  std::ostringstream nothing;
  {
    RankOutput output(0, folder, false, nothing, nothing);
    output.add(1, text);
    output.flush();
  }
  std::ostringstream file;
  file << std::ifstream(folder / "rank_0.err").rdbuf();
  EXPECT_EQ(file.str(), text);
  EXPECT_EQ(nothing.str(), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mezzo::ranks
