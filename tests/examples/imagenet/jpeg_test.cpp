#include "imagenet/data/jpeg.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "examples/imagenet/pictures.h"

namespace examples::imagenet {
namespace {

using testing::HasSubstr;

class JpegTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "image.jpg";

  DecodedPart decode(const Rectangle& part, int side) const {
    const std::string bytes = read_file(file_);
    const Jpeg jpeg({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()});
    return jpeg.decode(part, side);
  }
  std::string failure() const {
    try {
      decode({0, 0, 100, 90}, 90);
    } catch (const BadImage& error) {
      return error.what();
    }
    return "no failure";
  }
};

int largest_difference(const Pixels& whole, int left, int top, const DecodedPart& part) {
  const int x0 = static_cast<int>(part.part.left), y0 = static_cast<int>(part.part.top);
  int most = 0;
  for (int y = 0; y < static_cast<int>(part.part.height); ++y) {
    for (int x = 0; x < 3 * static_cast<int>(part.part.width); ++x) {
      const int a =
          part.pixels.rgb[static_cast<std::size_t>(3 * ((y0 + y) * part.pixels.width + x0) + x)];
      const int b = whole.rgb[static_cast<std::size_t>(3 * ((top + y) * whole.width + left) + x)];
      most = std::max(most, std::abs(a - b));
    }
  }
  return most;
}

TEST_F(JpegTest, DecodesWhatWasWritten) {
  const Pixels image = picture(100, 90);
  write_picture(file_, image);
  const DecodedPart all = decode({0, 0, 100, 90}, 90);
  ASSERT_EQ(all.pixels.width, 100);
  ASSERT_EQ(all.pixels.height, 90);
  EXPECT_LE(largest_difference(image, 0, 0, all), 12);
}

TEST_F(JpegTest, DecodesThePartThatTheWholeHasThere) {
  for (const bool progressive : {false, true}) {
    write_picture(file_, picture(203, 157), progressive);
    const Pixels whole = decode({0, 0, 203, 157}, 157).pixels;
    for (const auto& [left, top, width, height] : {std::array{0, 0, 64, 64},
                                                   {1, 1, 30, 30},
                                                   {37, 53, 100, 77},
                                                   {150, 100, 53, 57},
                                                   {202, 156, 1, 1},
                                                   {0, 120, 203, 37}}) {
      const DecodedPart part = decode({double(left), double(top), double(width), double(height)},
                                      std::min(width, height));
      EXPECT_EQ(largest_difference(whole, left, top, part), 0)
          << left << ' ' << top << ' ' << width << ' ' << height << ' ' << progressive;
    }
  }
}

TEST_F(JpegTest, ScalesDownAsFarAsThePixelsReach) {
  write_picture(file_, picture(800, 640));
  for (const auto& [side, scale] :
       {std::pair{640, 1}, {321, 1}, {320, 2}, {161, 2}, {160, 4}, {80, 8}, {10, 8}}) {
    const DecodedPart all = decode({0, 0, 800, 640}, side);
    EXPECT_EQ(all.pixels.width, 800 / scale) << side;
    EXPECT_EQ(all.part, (Rectangle{0, 0, 800. / scale, 640. / scale})) << side;
  }
  // Half the size of a smooth image is every other pixel's neighbourhood.
  const Pixels small = decode({0, 0, 800, 640}, 320).pixels;
  const Pixels image = picture(800, 640);
  for (int x = 0; x < 400; x += 7)
    EXPECT_NEAR(small.rgb[3 * (400 * 100 + x)], image.rgb[3 * (800 * 200 + 2 * x)], 6);
}

TEST_F(JpegTest, GivesGreyAndCmykAsRgb) {
  const std::vector<std::uint8_t> grey(100 * 90, 77);
  write_jpeg(file_, {.width = 100, .height = 90, .channels = 1}, grey);
  const DecodedPart part = decode({10, 20, 30, 30}, 30);
  for (const std::uint8_t value : part.pixels.rgb) ASSERT_NEAR(value, 77, 1);

  std::vector<std::uint8_t> cmyk;
  for (int i = 0; i < 100 * 90; ++i) cmyk.insert(cmyk.end(), {200, 100, 50, 128});
  write_jpeg(file_, {.width = 100, .height = 90, .channels = 4}, cmyk);
  const DecodedPart colours = decode({10, 20, 30, 30}, 30);
  EXPECT_NEAR(colours.pixels.rgb[0], 200 * 128 / 255, 3);
  EXPECT_NEAR(colours.pixels.rgb[1], 100 * 128 / 255, 3);
  EXPECT_NEAR(colours.pixels.rgb[2], 50 * 128 / 255, 3);
}

TEST_F(JpegTest, NamesDamage) {
  write_picture(file_, picture(100, 90));
  const std::string whole = bytes_of(file_);
  write_bytes(file_, whole.substr(0, whole.size() / 2));
  EXPECT_THAT(failure(), HasSubstr("Premature end of JPEG"));
  write_bytes(file_, whole.substr(0, 30));
  EXPECT_NE(failure(), "no failure");
  write_bytes(file_, "\x89PNG\r\n and so on");
  EXPECT_THAT(failure(), HasSubstr("Not a JPEG file"));
  write_bytes(file_, "");
  EXPECT_THAT(failure(), HasSubstr("is empty"));
  write_bytes(file_, whole + "something behind it");
  EXPECT_EQ(failure(), "no failure");
  EXPECT_THROW(read_file(folder_.path() / "none.jpg"), BadImage);
  EXPECT_THROW(read_file(folder_.path()), BadImage);
}

TEST_F(JpegTest, SurvivesDamageAnywhere) {
  write_picture(file_, picture(64, 48));
  const std::string whole = bytes_of(file_);
  int failures = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    write_bytes(file_, damaged);
    try {
      decode({3, 3, 40, 40}, 20);
    } catch (const BadImage&) {
      ++failures;
    }
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace examples::imagenet
