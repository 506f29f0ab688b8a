#include "imagenet/data/image_folder.h"

#include <gmock/gmock.h>
#include <mezzo/error.h>

#include "examples/imagenet/pictures.h"

namespace examples::imagenet {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string why_not(const fs::path& folder) {
  try {
    list_image_folder(folder);
  } catch (const mezzo::Error& error) {
    return error.what();
  }
  return "no error";
}

void touch(const fs::path& file) {
  fs::create_directories(file.parent_path());
  write_bytes(file, "x");
}

TEST(ImageFolder, HasAClassForEachFolderInOrder) {
  const TemporaryFolder folder;
  touch(folder.path() / "zebra" / "b.JPEG");
  touch(folder.path() / "zebra" / "a.jpg");
  touch(folder.path() / "ant" / "deep" / "c.Jpg");
  touch(folder.path() / "ant" / "notes.txt");
  touch(folder.path() / "readme.jpg");  // in no class
  const ImageFolder found = list_image_folder(folder.path());
  EXPECT_THAT(found.kinds, ElementsAre("ant", "zebra"));
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found.images[0].file.filename(), "c.Jpg");
  EXPECT_EQ(found.images[0].kind, 0);
  EXPECT_EQ(found.images[1].file.filename(), "a.jpg");
  EXPECT_EQ(found.images[2].kind, 1);
}

TEST(ImageFolder, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_THAT(why_not(folder.path() / "none"), HasSubstr("is no folder; expected DIR/train/CLASS"));
  EXPECT_THAT(why_not(folder.path()), HasSubstr("holds no folder"));
  touch(folder.path() / "ant" / "a.jpg");
  fs::create_directories(folder.path() / "bee");
  EXPECT_THAT(why_not(folder.path()), HasSubstr("class 'bee' is empty"));
}

TEST(ImageFolder, HasAFingerprintOfItsNames) {
  const TemporaryFolder folder;
  touch(folder.path() / "ant" / "a.jpg");
  const auto before = list_image_folder(folder.path()).fingerprint();
  EXPECT_EQ(list_image_folder(folder.path()).fingerprint(), before);
  touch(folder.path() / "ant" / "b.jpg");
  EXPECT_NE(list_image_folder(folder.path()).fingerprint(), before);
}

TEST(ImageFolder, MustHaveTheSameClassesForTraining) {
  const auto with = [](std::vector<std::string> kinds) {
    return ImageFolder{std::move(kinds), {}};
  };
  EXPECT_NO_THROW(require_same_kinds(with({"a", "b"}), with({"a", "b"})));
  const auto why = [](const ImageFolder& training, const ImageFolder& test) -> std::string {
    try {
      require_same_kinds(training, test);
    } catch (const mezzo::Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(why(with({"a", "b"}), with({"b"})), HasSubstr("'a' is in 'train' but not in 'val'"));
  EXPECT_THAT(why(with({"b"}), with({"b", "c"})), HasSubstr("'c' is in 'val' but not in 'train'"));
  EXPECT_THAT(why(with({"b"}), with({"a", "b"})), HasSubstr("'a' is in 'val' but not in 'train'"));
}

}  // namespace
}  // namespace examples::imagenet
