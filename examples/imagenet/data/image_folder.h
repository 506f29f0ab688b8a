// A data set of photographs as folders: ROOT/CLASS/*.jpg, one folder a class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace examples::imagenet {

struct ImageFolder {
  struct Image {
    std::filesystem::path file;
    std::int64_t kind;  ///< the place of its folder in `kinds`
  };

  std::vector<std::string> kinds;  ///< the classes' folders, in order of their names
  std::vector<Image> images;       ///< class by class, in order of their names

  std::int64_t size() const { return static_cast<std::int64_t>(images.size()); }

  /// A number that changes with the names and order of classes and files: a training is not
  /// continued on other data unnoticed.
  std::uint64_t fingerprint() const;
};

/// Lists the .jpg and .jpeg files (in any case) of each folder in `root`, below it too. Throws
/// mezzo::Error where `root` is not there or holds no folder, and where a class has no image.
ImageFolder list_image_folder(const std::filesystem::path& root);

/// Throws mezzo::Error, which names the first difference, unless both have the same classes.
void require_same_kinds(const ImageFolder& training, const ImageFolder& test);

}  // namespace examples::imagenet
