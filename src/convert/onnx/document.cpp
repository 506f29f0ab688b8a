#include "convert/onnx/document.h"

#include <algorithm>
#include <utility>

#include "convert/onnx/fields.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace fs = std::filesystem;

ModelFile::ModelFile(const fs::path& path)
    : path_(path),
      folder_(path.parent_path().empty() ? fs::path(".") : path.parent_path()),
      file_(std::make_unique<platform::MappedFile>(path)),
      bytes_(file_->bytes()) {}

ModelFile::ModelFile(std::string bytes, fs::path folder)
    : folder_(std::move(folder)), owned_(std::move(bytes)), bytes_(owned_) {}

Document::Document(std::shared_ptr<ModelFile> file)
    : file_(std::move(file)), model_(Message::parse(file_->bytes())) {
  check_model();
}

Document::Document(const fs::path& path) : Document(std::make_shared<ModelFile>(path)) {}

Document::Document(std::string bytes, fs::path folder)
    : Document(std::make_shared<ModelFile>(std::move(bytes), std::move(folder))) {}

void Document::check_model() const {
  const Field* graph = model_.find(field::model::kGraph);
  if (graph == nullptr || graph->wire != Wire::kBytes) {
    raise("onnx", "not an ONNX model: it has no graph");
  }
  const auto graphs = std::ranges::count_if(
      model_.fields(), [](const Field& field) { return field.number == field::model::kGraph; });
  if (graphs > 1) raise("onnx", "the file holds ", graphs, " graphs; a model has one");
}

std::string_view Document::keep(std::string text) {
  return texts_.emplace_back(std::move(text));
}

std::string_view ModelFile::external(std::string_view location, std::uint64_t offset,
                                     std::uint64_t length, bool to_end) {
  const std::string name(location);
  const fs::path relative(name);
  if (folder_.empty()) raise("onnx", "external data '", name, "' of a model without a folder");
  if (name.empty() || name.find('\0') != std::string::npos || relative.is_absolute() ||
      std::ranges::find(relative, fs::path("..")) != relative.end()) {
    raise("onnx", "external data '", name,
          "' is refused: only a relative path inside the model's folder may be named");
  }
  auto found = externals_.find(name);
  if (found == externals_.end()) {
    std::error_code failure;
    const fs::path root = fs::canonical(folder_, failure);
    const fs::path real = failure ? fs::path() : fs::canonical(folder_ / relative, failure);
    if (failure) raise("onnx", "external data '", name, "' cannot be read: ", failure.message());
    if (std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first != root.end()) {
      raise("onnx", "external data '", name, "' is refused: it leads out of the model's folder");
    }
    found = externals_.emplace(name, std::make_unique<platform::MappedFile>(real)).first;
  }
  const std::string_view all = found->second->bytes();
  if (offset > all.size() || (!to_end && length > all.size() - offset)) {
    raise("onnx", "external data '", name, "' has ", all.size(), " bytes; a tensor asks for ",
          length, " from ", offset);
  }
  return all.substr(offset, to_end ? std::string_view::npos : length);
}

std::optional<ModelFile::Place> ModelFile::place_of(std::string_view bytes) const {
  const auto within = [&](const platform::MappedFile& file) {
    const std::string_view all = file.bytes();
    return !bytes.empty() && bytes.data() >= all.data() &&
           bytes.data() + bytes.size() <= all.data() + all.size();
  };
  const auto offset = [&](const platform::MappedFile& file) {
    return static_cast<std::uint64_t>(bytes.data() - file.bytes().data());
  };
  if (file_ && within(*file_)) return Place{"", offset(*file_)};
  for (const auto& [name, file] : externals_) {
    if (within(*file)) return Place{name, offset(*file)};
  }
  return std::nullopt;
}

void ModelFile::release(std::string_view part) const {
  constexpr std::size_t kWorthwhile = 1 << 20;
  if (part.size() < kWorthwhile) return;
  if (file_) file_->release(part);
  for (const auto& [name, file] : externals_) file->release(part);
}

}  // namespace mezzo::convert
