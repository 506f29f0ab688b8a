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

/// A model file that was opened, with the files that its tensors point to: what all documents made
/// of it read. The files are mapped, not read; they must not change while this object lives. One
/// thread at a time.
class ModelFile {
 public:
  /// Throws Error if the file cannot be read.
  explicit ModelFile(const std::filesystem::path&);
  /// A model in memory; external data is looked for in `folder` (empty: nowhere).
  ModelFile(std::string bytes, std::filesystem::path folder);

  /// Empty for a model in memory.
  const std::filesystem::path& path() const { return path_; }
  std::string_view bytes() const { return bytes_; }

  /// The bytes that a tensor's external data names. `location` is relative to the model's folder;
  /// an absolute path, "..", or a link that leads out of the folder is refused. `length` 0 with
  /// `to_end` means: up to the end of the file.
  std::string_view external(std::string_view location, std::uint64_t offset, std::uint64_t length,
                            bool to_end);

  /// Where in these files those bytes stand; nothing for bytes that are in no file.
  using Place = std::pair<std::string, std::uint64_t>;  // of the model itself: an empty name
  std::optional<Place> place_of(std::string_view bytes) const;

  /// Gives pages back to the system after a large part was read.
  void release(std::string_view part) const;

 private:
  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::unique_ptr<platform::MappedFile> file_;
  std::string owned_;
  std::string_view bytes_;
  std::map<std::string, std::unique_ptr<platform::MappedFile>, std::less<>> externals_;
};

/// A model as messages, which may be edited: owns what their views look at, together with the file,
/// which other documents may share. One thread at a time.
class Document {
 public:
  /// The model as it is in its file. Throws Error if that is no ONNX model.
  explicit Document(std::shared_ptr<ModelFile>);
  /// Opens the file first. Throws Error if it cannot be read.
  explicit Document(const std::filesystem::path&);
  /// A model in memory; external data is looked for in `folder` (empty: nowhere).
  explicit Document(std::string bytes, std::filesystem::path folder = {});

  Message& model() { return model_; }
  std::string_view bytes() const { return file_->bytes(); }
  const std::filesystem::path& path() const { return file_->path(); }

  /// Keeps a text alive as long as the document.
  std::string_view keep(std::string text);

  /// As ModelFile has them.
  using Place = ModelFile::Place;
  std::string_view external(std::string_view location, std::uint64_t offset, std::uint64_t length,
                            bool to_end) {
    return file_->external(location, offset, length, to_end);
  }
  std::optional<Place> place_of(std::string_view bytes) const { return file_->place_of(bytes); }
  void release(std::string_view part) const { file_->release(part); }

 private:
  void check_model() const;

  std::shared_ptr<ModelFile> file_;
  std::deque<std::string> texts_;
  Message model_;
};

}  // namespace mezzo::convert
