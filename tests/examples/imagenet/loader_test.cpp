#include "imagenet/data/loader.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <numeric>

#include "examples/imagenet/pictures.h"
#include "imagenet/data/image_folder.h"
#include "imagenet/data/jpeg.h"
#include "imagenet/data/read_image.h"

namespace examples::imagenet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::int64_t> items_to(std::int64_t count) {
  std::vector<std::int64_t> items(static_cast<std::size_t>(count));
  std::iota(items.begin(), items.end(), 0);
  return items;
}

LoaderOptions of_bytes(int batch_size, int workers) {
  return {.batch_size = batch_size, .image_bytes = 1, .workers = workers};
}

/// A byte that says which item it is, made in a time that varies.
std::int64_t number(std::int64_t item, std::uint8_t* into) {
  std::this_thread::sleep_for(std::chrono::microseconds(item * 37 % 5 * 100));
  *into = static_cast<std::uint8_t>(item);
  return item * 10;
}

std::vector<std::int64_t> all_of(Loader& loader) {
  std::vector<std::int64_t> seen;
  while (const auto batch = loader.next()) {
    for (std::size_t i = 0; i < batch->labels.size(); ++i) {
      EXPECT_EQ(batch->labels[i], batch->pixels.get()[i] * 10);
      seen.push_back(batch->pixels.get()[i]);
    }
  }
  return seen;
}

class Workers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Loader, Workers, testing::Values(0, 1, 2, 7));

TEST_P(Workers, GiveTheItemsInOrderInBatches) {
  Loader loader(of_bytes(4, GetParam()));
  loader.begin(items_to(23), number);
  const auto first = loader.next();
  ASSERT_TRUE(first);
  EXPECT_THAT(first->labels, ElementsAre(0, 10, 20, 30));
  std::vector<std::int64_t> rest = items_to(23);
  rest.erase(rest.begin(), rest.begin() + 4);
  EXPECT_EQ(all_of(loader), rest);
  EXPECT_FALSE(loader.next());
}

TEST_P(Workers, BeginAgainAndInTheMiddle) {
  Loader loader(of_bytes(4, GetParam()));
  loader.begin(items_to(23), number);
  loader.next();
  loader.begin({5, 3, 1, 2, 8, 9}, number, 1);
  EXPECT_THAT(all_of(loader), ElementsAre(8, 9));
  loader.begin({}, number);
  EXPECT_FALSE(loader.next());
  loader.begin(items_to(8), number, 2);
  EXPECT_FALSE(loader.next());
}

TEST_P(Workers, SkipBadImagesAndNameThem) {
  Loader loader(of_bytes(4, GetParam()));
  loader.begin(items_to(8), [](std::int64_t item, std::uint8_t* into) {
    if (item == 1 || item == 2) throw BadImage("image " + std::to_string(item) + " is bad");
    return number(item, into);
  });
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_THAT(batch->labels, ElementsAre(0, 30));
  EXPECT_EQ(batch->pixels.get()[1], 3);
  EXPECT_THAT(batch->skipped, ElementsAre("image 1 is bad", "image 2 is bad"));
  EXPECT_THAT(loader.next()->skipped, SizeIs(0));
}

TEST_P(Workers, ThrowWhatTheFirstBadItemThrewInItsPlace) {
  LoaderOptions options = of_bytes(4, GetParam());
  options.skip_bad = false;
  Loader loader(options);
  loader.begin(items_to(40), [](std::int64_t item, std::uint8_t* into) -> std::int64_t {
    if (item == 6 || item == 7 || item > 20) throw BadImage(std::to_string(item));
    return number(item, into);
  });
  EXPECT_TRUE(loader.next());
  try {
    loader.next();
    FAIL() << "no failure";
  } catch (const BadImage& error) {
    EXPECT_STREQ(error.what(), "6");
  }
}

TEST_P(Workers, ThrowEverythingElseEvenWhereBadImagesAreSkipped) {
  Loader loader(of_bytes(4, GetParam()));
  const auto throws = [](std::int64_t item, std::uint8_t* into) -> std::int64_t {
    if (item == 5) throw 42;
    return number(item, into);
  };
  loader.begin(items_to(8), throws);
  EXPECT_TRUE(loader.next());
  EXPECT_THROW(loader.next(), int);
  loader.begin(items_to(4), throws);  // it can be used again
  EXPECT_TRUE(loader.next());
}

TEST_P(Workers, RefuseABatchOfBadImagesAlone) {
  Loader loader(of_bytes(2, GetParam()));
  loader.begin(items_to(2),
               [](std::int64_t, std::uint8_t*) -> std::int64_t { throw BadImage("'a.jpg': bad"); });
  try {
    loader.next();
    FAIL() << "no failure";
  } catch (const BadImage& error) {
    EXPECT_THAT(error.what(), HasSubstr("no image of a batch can be read; the first is 'a.jpg'"));
  }
}

TEST_P(Workers, EndWhenTheMemoryForABatchIsMissing) {
  LoaderOptions options = of_bytes(4, GetParam());
  options.allocate = [](std::size_t) -> std::shared_ptr<std::uint8_t> { throw std::bad_alloc(); };
  Loader loader(options);
  loader.begin(items_to(8), number);
  EXPECT_THROW(loader.next(), std::bad_alloc);
}

TEST(Loader, KeepsNoMoreBatchesThanItWasAskedTo) {
  std::atomic<int> made{0};
  LoaderOptions options = of_bytes(10, 3);
  options.ahead = 2;
  Loader loader(options);
  loader.begin(items_to(100), [&](std::int64_t item, std::uint8_t* into) {
    ++made;
    *into = static_cast<std::uint8_t>(item);
    return item * 10;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(made, 20);
  loader.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GT(made, 20);
  EXPECT_LE(made, 30);
}

TEST(Loader, WorksOnABatchWithAllWorkersAtOnce) {
  std::atomic<int> inside{0}, most{0};
  Loader loader(of_bytes(8, 4));
  loader.begin(items_to(8), [&](std::int64_t item, std::uint8_t* into) {
    int seen = most;
    const int now = ++inside;
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    --inside;
    *into = static_cast<std::uint8_t>(item);
    return item * 10;
  });
  loader.next();
  EXPECT_GE(most, 2);
}

TEST(Loader, LetsAnotherThreadStopTheOneThatWaits) {
  Loader loader(of_bytes(2, 1));
  std::atomic<bool> may_end{false};
  loader.begin(items_to(2), [&](std::int64_t, std::uint8_t*) {
    while (!may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::int64_t{0};
  });
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    loader.stop();
    may_end = true;
  });
  EXPECT_FALSE(loader.next());
  stopper.join();
}

TEST(ReadingImages, GivesTheSameBytesForAnyNumberOfWorkers) {
  const TemporaryFolder folder;
  write_data_set(folder.path(), 3, 5, 1);
  const ImageFolder images = list_image_folder(folder.path() / "train");
  constexpr int kSide = 16;
  const auto bytes_with = [&](int workers) {
    Loader loader({.batch_size = 4, .image_bytes = 3 * kSide * kSide, .workers = workers});
    loader.begin(items_to(images.size()), [&](std::int64_t item, std::uint8_t* into) {
      const auto& image = images.images[static_cast<std::size_t>(item)];
      read_for_training(image.file, {.side = kSide}, Random({1, static_cast<std::uint64_t>(item)}),
                        into);
      return image.kind;
    });
    std::string all;
    while (const auto batch = loader.next()) {
      all.append(reinterpret_cast<const char*>(batch->pixels.get()),
                 batch->labels.size() * 3 * kSide * kSide);
    }
    return all;
  };
  const std::string expected = bytes_with(0);
  EXPECT_EQ(expected.size(), 15U * 3 * kSide * kSide);
  for (const int workers : {1, 3, 8}) EXPECT_EQ(bytes_with(workers), expected) << workers;
}

TEST(ReadingImages, TakesTheMiddleForEvaluationAndOtherPartsForTraining) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "a.jpg";
  write_picture(file, picture(64, 64));
  std::vector<std::uint8_t> middle(3 * 32 * 32), first(middle), second(middle);
  read_for_evaluation(file, {.side = 32, .centre_share = 0.5}, middle.data());
  EXPECT_NEAR(middle[3 * (32 * 16 + 16)], 255 / 2, 6);  // red grows from left to right
  EXPECT_NEAR(middle[0], 255 / 4, 8);
  read_for_training(file, {.side = 32}, Random({1}), first.data());
  read_for_training(file, {.side = 32}, Random({2}), second.data());
  EXPECT_NE(first, second);
}

TEST(ReadingImages, NamesTheFileThatIsBad) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "broken.jpg";
  write_bytes(file, "no image");
  std::vector<std::uint8_t> into(3 * 8 * 8);
  try {
    read_for_evaluation(file, {.side = 8}, into.data());
    FAIL() << "no failure";
  } catch (const BadImage& error) {
    EXPECT_THAT(error.what(), HasSubstr("broken.jpg': Not a JPEG file"));
  }
}

}  // namespace
}  // namespace examples::imagenet
