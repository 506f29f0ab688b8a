// A model file in memory: its bytes, its messages, and the files that its tensors point to.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "convert/onnx/wire.h"
#include "platform/files.h"

namespace mezzo::convert {

/// Owns what the views of a Message look at. The file is mapped, not read; it must not change while
/// this object lives. One thread at a time.
class Document {
 public:
  /// Throws Error where the file cannot be read or is no ONNX model.
  explicit Document(const std::filesystem::path&);
  /// A model in memory; external data is looked for in `folder` (empty: nowhere).
  explicit Document(std::string bytes, std::filesystem::path folder = {});

  Message& model() { return model_; }
  std::string_view bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

  /// Keeps a text alive as long as the document.
  std::string_view keep(std::string text);

  /// The bytes that a tensor's external data names. `location` is relative to the model's folder;
  /// an absolute path, "..", or a link that leads out of the folder is refused. `length` 0 with
  /// `to_end` means: up to the end of the file.
  std::string_view external(std::string_view location, std::uint64_t offset, std::uint64_t length,
                            bool to_end);

  /// Where in its files those bytes stand; nothing for bytes that are in no file.
  using Place = std::pair<std::string, std::uint64_t>;  // of the model itself: an empty name
  std::optional<Place> place_of(std::string_view bytes) const;

  /// Gives pages back to the system after a large part was read.
  void release(std::string_view part) const;

 private:
  void check_model() const;

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::unique_ptr<platform::MappedFile> file_;
  std::string owned_;
  std::string_view bytes_;
  std::deque<std::string> texts_;
  std::map<std::string, std::unique_ptr<platform::MappedFile>, std::less<>> externals_;
  Message model_;
};

}  // namespace mezzo::convert
