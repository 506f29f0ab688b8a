#include "convert/onnx/store.h"

#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/functions.h"
#include "convert/onnx/tensor.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kAlignment = 4096;
constexpr std::uint64_t kProtobufLimit = (std::uint64_t{1} << 31) - (1 << 20);
constexpr std::uint64_t kLarge = 1024;  // bytes; smaller tensors stay inside

class StreamSink final : public Sink {
 public:
  StreamSink(std::ostream& out, const Document& document, std::function<void(double)> progress = {},
             std::uint64_t expected = 0)
      : out_(out), document_(document), progress_(std::move(progress)), expected_(expected) {}

  void write(std::string_view bytes) override {
    constexpr std::size_t kPart = std::size_t{16} << 20;
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, kPart);
      out_.write(part.data(), static_cast<std::streamsize>(part.size()));
      document_.release(part);
      bytes.remove_prefix(part.size());
      count_ += part.size();
      if (progress_ && count_ - told_ >= kPart) {
        told_ = count_;
        progress_(static_cast<double>(count_) / static_cast<double>(expected_ + 1));
      }
    }
  }

  void pad(std::uint64_t alignment) {
    const std::string zeros((alignment - count_ % alignment) % alignment, '\0');
    write(zeros);
  }

  std::uint64_t count() const { return count_; }

 private:
  std::ostream& out_;
  const Document& document_;
  std::function<void(double)> progress_;
  std::uint64_t expected_ = 0, count_ = 0, told_ = 0;
};

class TextContent final : public Content {
 public:
  explicit TextContent(std::string_view text) : text_(text) {}
  std::uint64_t size() const override { return text_.size(); }
  void write(Sink& sink) const override { sink.write(text_); }

 private:
  std::string_view text_;
};

// Every TensorProto of the model: initializers, attributes, bodies, functions.
class Tensors {
 public:
  // May the tensor go to a data file? Readers follow initializers and attributes there; parts of
  // sparse tensors and of training graphs only some of them, and only where they stand there.
  using Visit = std::function<void(Message& tensor, bool may_move)>;

  static void for_each(Message& model, const Visit& visit) {
    for (Field& field : model.fields()) {
      if (field.number == field::model::kGraph) Tensors(visit, true).scope(field.open(), false, 1);
      if (field.number == field::model::kFunctions)
        Tensors(visit, true).scope(field.open(), true, 1);
      if (field.number != field::model::kTrainingInfo) continue;
      for (Field& graph : field.open().fields()) {
        if (graph.number == field::training::kInitialization ||
            graph.number == field::training::kAlgorithm)
          Tensors(visit, false).scope(graph.open(), false, 1);
      }
    }
  }

 private:
  Tensors(const Visit& visit, bool may_move) : visit_(visit), may_move_(may_move) {}

  void sparse(Message& tensor) const {
    namespace f = field::sparse_tensor;
    for (Field& field : tensor.fields()) {
      if (field.number == f::kValues || field.number == f::kIndices) visit_(field.open(), false);
    }
  }

  void attribute(Message& attribute, int depth) const {
    namespace f = field::attribute;
    for (Field& field : attribute.fields()) {
      if (field.number == f::kTensor || field.number == f::kTensors)
        visit_(field.open(), may_move_);
      if (field.number == f::kSparseTensor || field.number == f::kSparseTensors)
        sparse(field.open());
      if (field.number == f::kGraph || field.number == f::kGraphs)
        scope(field.open(), false, depth + 1);
    }
  }

  // Training graphs and functions that nothing calls were not read before.
  void scope(Message& message, bool is_function, int depth) const {
    if (depth > kDeepestNesting) raise("onnx", "graphs are nested deeper than ", kDeepestNesting);
    const std::uint32_t node_number = is_function ? field::function::kNode : field::graph::kNode;
    for (Field& field : message.fields()) {
      if (!is_function && field.number == field::graph::kInitializer)
        visit_(field.open(), may_move_);
      if (!is_function && field.number == field::graph::kSparseInitializer) sparse(field.open());
      if (is_function && field.number == field::function::kAttributeProto)
        attribute(field.open(), depth);
      if (field.number != node_number) continue;
      for (Field& each : field.open().fields()) {
        if (each.number == field::node::kAttribute) attribute(each.open(), depth);
      }
    }
  }

  const Visit& visit_;
  bool may_move_;
};

bool is_external(const Message& tensor) {
  return tensor.number(field::tensor::kLocation) == 1;
}

std::string_view location_of(const Message& tensor) {
  for (const Field& field : tensor.fields()) {
    if (field.number != field::tensor::kExternalData) continue;
    const Message entry = Message::parse(field.bytes);
    if (entry.text(field::pair::kKey) == "location") return entry.text(field::pair::kValue);
  }
  return {};
}

// The tensors that go to the data file, with what they hold.
struct Outside {
  std::shared_ptr<const Content> content;
  std::uint64_t offset = 0;

  std::uint64_t end() const { return offset + content->size(); }
};

class Splitter {
 public:
  Splitter(Document& document, const fs::path& out)
      : document_(document), location_(document.keep(concat({out.filename().string(), ".data"}))) {}

  std::vector<Outside> split(bool external) {
    external = external || has_external(document_);
    const bool is_large = document_.model().size() > kProtobufLimit;
    if (!external && !is_large) return {};
    std::vector<Outside> outside;
    // Tensors that share their bytes go on sharing them.
    std::map<std::pair<const char*, std::size_t>, std::uint64_t> offsets;
    Tensors::for_each(document_.model(), [&](Message& tensor, bool may_move) {
      const std::string_view shared =
          is_external(tensor) ? read_tensor(document_, tensor).raw : std::string_view();
      const auto known = offsets.find({shared.data(), shared.size()});
      if (known != offsets.end()) return point(tensor, known->second, shared.size());
      std::shared_ptr<const Content> content = content_of(tensor, may_move);
      if (!content) return;
      const std::uint64_t end = outside.empty() ? 0 : outside.back().end();
      const std::uint64_t offset = (end + kAlignment - 1) / kAlignment * kAlignment;
      if (!shared.empty()) offsets.emplace(std::pair(shared.data(), shared.size()), offset);
      point(tensor, offset, content->size());
      outside.push_back({std::move(content), offset});
    });
    return outside;
  }

 private:
  std::shared_ptr<const Content> content_of(Message& tensor, bool may_move) {
    if (is_external(tensor)) {
      return std::make_shared<TextContent>(read_tensor(document_, tensor).raw);
    }
    const Field* raw = tensor.find(field::tensor::kRawData);
    if (raw == nullptr || !may_move) return nullptr;
    if (raw->content) return raw->content->size() < kLarge ? nullptr : raw->content;
    if (raw->bytes.size() < kLarge) return nullptr;
    return std::make_shared<TextContent>(raw->bytes);
  }

  void point(Message& tensor, std::uint64_t offset, std::uint64_t size) {
    tensor.remove(field::tensor::kRawData);
    tensor.remove(field::tensor::kExternalData);
    const auto entry = [&](std::string_view key, std::string_view value) {
      auto pair = std::make_unique<Message>();
      pair->add(field::pair::kKey, key);
      pair->add(field::pair::kValue, value);
      tensor.add(field::tensor::kExternalData, std::move(pair));
    };
    entry("location", location_);
    entry("offset", document_.keep(std::to_string(offset)));
    entry("length", document_.keep(std::to_string(size)));
    tensor.set(field::tensor::kLocation, std::uint64_t{1});
  }

  Document& document_;
  std::string_view location_;
};

fs::path data_path(const fs::path& out) {
  fs::path path = out;
  path += ".data";
  return path;
}

void refuse_if_same(const fs::path& target, const fs::path& source) {
  std::error_code ignored;
  if (fs::equivalent(target, source, ignored)) {
    raise<ConfigError>("convert", "'", target.string(), "' would overwrite '", source.string(),
                       "', which is read; name another target");
  }
}

std::set<std::string> locations(Document& document) {
  std::set<std::string> names;
  Tensors::for_each(document.model(), [&](Message& tensor, bool) {
    if (is_external(tensor)) names.emplace(location_of(tensor));
  });
  return names;
}

}  // namespace

bool has_external(Document& document) {
  return !locations(document).empty();
}

void check_target(Document& document, const fs::path& out) {
  if (out.filename().empty() || fs::is_directory(out)) {
    raise<ConfigError>("convert", "'", out.string(), "' is a folder; name a file to write");
  }
  for (const fs::path& file : {out, data_path(out)}) {
    if (fs::exists(file) && !fs::is_regular_file(file)) {
      raise<ConfigError>("convert", "'", file.string(),
                         "' is there and no regular file, so it is not replaced; name another");
    }
  }
  if (document.path().empty()) return;
  refuse_if_same(out, document.path());
  for (const std::string& name : locations(document)) {
    const fs::path source = document.path().parent_path() / name;
    refuse_if_same(out, source);
    refuse_if_same(data_path(out), source);
  }
}

Stored store_model(Document& document, const fs::path& out, bool external,
                   const std::function<void(double)>& progress) {
  Stored stored;
  const std::vector<Outside> outside = Splitter(document, out).split(external);
  if (!outside.empty()) {
    platform::write_atomically(data_path(out), [&](std::ostream& stream) {
      StreamSink sink(stream, document, progress, outside.back().end());
      for (const Outside& part : outside) {
        sink.pad(kAlignment);
        part.content->write(sink);
      }
      stored.bytes += static_cast<std::int64_t>(sink.count());
    });
  }
  try {
    platform::write_atomically(out, [&](std::ostream& stream) {
      StreamSink sink(stream, document, progress, document.model().size());
      document.model().write(sink);
      stored.bytes += static_cast<std::int64_t>(sink.count());
    });
  } catch (...) {
    std::error_code ignored;
    if (!outside.empty()) fs::remove(data_path(out), ignored);
    throw;
  }
  return stored;
}

Stored copy_model(Document& document, const fs::path& out) {
  Stored stored;
  const fs::path from = document.path().parent_path();
  const fs::path to = out.parent_path();
  std::error_code ignored;
  const bool is_same_folder =
      fs::equivalent(from.empty() ? "." : from, to.empty() ? "." : to, ignored);
  for (const std::string& name : locations(document)) {
    const std::string_view bytes = document.external(name, 0, 0, true);
    stored.bytes += static_cast<std::int64_t>(bytes.size());
    if (is_same_folder) continue;
    fs::create_directories((to / name).parent_path());
    platform::write_atomically(
        to / name, [&](std::ostream& stream) { StreamSink(stream, document).write(bytes); });
  }
  platform::write_atomically(
      out, [&](std::ostream& stream) { StreamSink(stream, document).write(document.bytes()); });
  stored.bytes += static_cast<std::int64_t>(document.bytes().size());
  return stored;
}

}  // namespace mezzo::convert
