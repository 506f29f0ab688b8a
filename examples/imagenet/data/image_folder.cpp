#include "imagenet/data/image_folder.h"

#include <mezzo/error.h>

#include <algorithm>
#include <cctype>

namespace examples::imagenet {
namespace {

namespace fs = std::filesystem;

bool is_jpeg(const fs::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".jpg" || ending == ".jpeg";
}

std::vector<fs::path> folders_in(const fs::path& root) {
  std::error_code failure;
  if (!fs::is_directory(root, failure)) {
    throw mezzo::Error("no data: '" + root.string() +
                       "' is no folder; expected DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg, or "
                       "--synthetic to train without data");
  }
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  if (folders.empty()) {
    throw mezzo::Error("no data: '" + root.string() +
                       "' holds no folder; expected one for each class, with its images");
  }
  return folders;
}

constexpr std::uint64_t kOffset = 0xcbf29ce484222325, kPrime = 0x100000001b3;  // FNV-1a

void add(std::uint64_t& hash, const std::string& text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  hash = (hash ^ 0xff) * kPrime;  // no name holds it: "ab", "c" is not "a", "bc"
}

}  // namespace

ImageFolder list_image_folder(const fs::path& root) {
  ImageFolder found;
  for (const fs::path& folder : folders_in(root)) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(
             folder, fs::directory_options::follow_directory_symlink)) {
      if (is_jpeg(entry.path()) && !entry.is_directory()) files.push_back(entry.path());
    }
    if (files.empty()) {
      throw mezzo::Error("class '" + folder.filename().string() + "' is empty: '" +
                         folder.string() + "' holds no .jpg or .jpeg file");
    }
    std::ranges::sort(files);
    const auto kind = static_cast<std::int64_t>(found.kinds.size());
    for (fs::path& file : files) found.images.push_back({std::move(file), kind});
    found.kinds.push_back(folder.filename().string());
  }
  return found;
}

std::uint64_t ImageFolder::fingerprint() const {
  std::uint64_t hash = kOffset;
  for (const std::string& kind : kinds) add(hash, kind);
  for (const Image& image : images) {
    add(hash, kinds[static_cast<std::size_t>(image.kind)]);
    add(hash, image.file.filename().string());
  }
  return hash;
}

void require_same_kinds(const ImageFolder& training, const ImageFolder& test) {
  const auto [a, b] = std::ranges::mismatch(training.kinds, test.kinds);
  if (a == training.kinds.end() && b == test.kinds.end()) return;
  const bool only_training = b == test.kinds.end() || (a != training.kinds.end() && *a < *b);
  throw mezzo::Error("class '" + (only_training ? *a : *b) + "' is in " +
                     (only_training ? "'train' but not in 'val'" : "'val' but not in 'train'") +
                     "; both need a folder for each class");
}

}  // namespace examples::imagenet
