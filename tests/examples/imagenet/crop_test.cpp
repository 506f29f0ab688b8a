#include "imagenet/data/crop.h"

#include <gtest/gtest.h>

#include <cmath>

#include "examples/imagenet/pictures.h"
#include "imagenet/data/resize.h"

namespace examples::imagenet {
namespace {

TEST(RandomCrop, LiesInsideAndHasTheAreaAndRatioThatWereAskedFor) {
  Random random({1});
  const RandomCrop how{.least_area = 0.2, .most_area = 0.5};
  double least = 1, most = 0;
  for (int i = 0; i < 2000; ++i) {
    const Rectangle part = random_crop(500, 375, how, random);
    EXPECT_GE(part.left, 0);
    EXPECT_GE(part.top, 0);
    EXPECT_LE(part.left + part.width, 500);
    EXPECT_LE(part.top + part.height, 375);
    const double area = part.width * part.height / (500. * 375.);
    const double ratio = part.width / part.height;
    EXPECT_GE(ratio, 0.74);
    EXPECT_LE(ratio, 1.35);
    least = std::min(least, area);
    most = std::max(most, area);
  }
  EXPECT_NEAR(least, 0.2, 0.01);
  EXPECT_NEAR(most, 0.5, 0.01);
}

TEST(RandomCrop, FallsBackToTheMiddleOfAnImageThatIsTooLong) {
  Random random({1});
  EXPECT_EQ(random_crop(900, 30, {}, random), (Rectangle{430, 0, 40, 30}));
  EXPECT_EQ(random_crop(30, 900, {}, random), (Rectangle{0, 430, 30, 40}));
  EXPECT_EQ(random_crop(1, 1, {}, random), (Rectangle{0, 0, 1, 1}));
}

TEST(CentreCrop, TakesItsShareOfTheShorterSide) {
  EXPECT_EQ(centre_crop(512, 256, 224. / 256), (Rectangle{144, 16, 224, 224}));
  EXPECT_EQ(centre_crop(100, 200, 1), (Rectangle{0, 50, 100, 100}));
}

/// The same by its definition, in double.
double reference(const Pixels& image, const Rectangle& part, int side, int x, int y, int channel) {
  const auto weight = [&](double begin, double length, int i, int place) {
    const double step = length / side, reach = std::max(step, 1.);
    return std::max(0., 1 - std::abs(place + 0.5 - (begin + (i + 0.5) * step)) / reach);
  };
  const int left = static_cast<int>(std::floor(part.left)),
            top = static_cast<int>(std::floor(part.top));
  const int right = static_cast<int>(std::ceil(part.left + part.width)),
            bottom = static_cast<int>(std::ceil(part.top + part.height));
  double sum = 0, weights = 0;
  for (int v = top; v < bottom; ++v) {
    for (int u = left; u < right; ++u) {
      const double w = weight(part.left, part.width, x, u) * weight(part.top, part.height, y, v);
      const std::size_t index =
          static_cast<std::size_t>(v) * static_cast<std::size_t>(image.width) +
          static_cast<std::size_t>(u);
      sum += w * image.rgb[3 * index + static_cast<std::size_t>(channel)];
      weights += w;
    }
  }
  return sum / weights;
}

TEST(Resize, IsTheTrianglesMean) {
  Random random({7});
  Pixels noise{61, 47, {}};
  for (int i = 0; i < 61 * 47 * 3; ++i)
    noise.rgb.push_back(static_cast<std::uint8_t>(random.below(256)));
  for (const int side : {1, 8, 32, 70}) {
    for (const Rectangle& part : {Rectangle{0, 0, 61, 47},
                                  {5.5, 3.25, 40, 30.5},
                                  {60, 46, 1, 1},
                                  {45, 0, 16, 47},  // rows of 48 bytes, whole vectors of 16
                                  {0, 40, 11, 7}}) {
      std::vector<std::uint8_t> result(static_cast<std::size_t>(3 * side * side));
      resize(noise, part, side, false, result.data());
      for (int y = 0; y < side; ++y) {
        for (int x = 0; x < side; ++x) {
          for (int c = 0; c < 3; ++c) {
            ASSERT_NEAR(result[static_cast<std::size_t>(3 * (y * side + x) + c)],
                        reference(noise, part, side, x, y, c), 1.6);
          }
        }
      }
    }
  }
}

TEST(Resize, KeepsAnImageOfTheSameSize) {
  const Pixels image = picture(40, 40);
  std::vector<std::uint8_t> result(image.rgb.size());
  resize(image, {0, 0, 40, 40}, 40, false, result.data());
  EXPECT_EQ(result, image.rgb);
}

TEST(Resize, MirrorsFromLeftToRight) {
  const Pixels image = picture(50, 30);
  std::vector<std::uint8_t> plain(1200), mirrored(1200);
  resize(image, {0, 0, 50, 30}, 20, false, plain.data());
  resize(image, {0, 0, 50, 30}, 20, true, mirrored.data());
  for (std::size_t y = 0; y < 20; ++y) {
    for (std::size_t x = 0; x < 20; ++x) {
      for (std::size_t c = 0; c < 3; ++c)
        EXPECT_EQ(plain[3 * (20 * y + x) + c], mirrored[3 * (20 * y + 19 - x) + c]);
    }
  }
}

TEST(Random, GivesEqualNumbersForEqualKeysAndEvenOnes) {
  Random a({1, 2}), b({1, 2}), c({2, 1});
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), c.next());
  int counts[5] = {};
  double sum = 0;
  for (int i = 0; i < 50000; ++i) {
    ++counts[a.below(5)];
    sum += a.uniform();
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_NEAR(sum / 50000, 0.5, 0.01);
}

}  // namespace
}  // namespace examples::imagenet
