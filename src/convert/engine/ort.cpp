#include "convert/engine/ort.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/store.h"
#include "convert/onnx/texts.h"
#include "core/raise.h"
#include "platform/libraries.h"
#include "platform/process.h"

namespace mezzo::convert {
namespace {

// Places in ONNX Runtime's function table, which is append-only (its C API documentation).
enum Slot : std::size_t {
  kGetErrorCode = 1,
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetGraphOptimizationLevel = 23,
  kSetIntraOpNumThreads = 24,
  kSessionGetInputCount = 30,
  kSessionGetOutputCount = 31,
  kSessionGetInputTypeInfo = 33,
  kSessionGetInputName = 36,
  kSessionGetOutputName = 37,
  kCreateTensor = 48,
  kCreateTensorWithData = 49,
  kIsTensor = 50,
  kGetTensorMutableData = 51,
  kFillStringTensor = 52,
  kGetStringTensorDataLength = 53,
  kGetStringTensorContent = 54,
  kCastTypeInfoToTensorInfo = 55,
  kGetTensorElementType = 60,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorTypeAndShape = 65,
  kCreateCpuMemoryInfo = 69,
  kAllocatorFree = 76,
  kGetAllocator = 78,
  kReleaseEnv = 92,
  kReleaseStatus = 93,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseTypeInfo = 98,
  kReleaseTensorInfo = 99,
  kReleaseSessionOptions = 100,
};

constexpr std::uint32_t kApiVersion = 11;
constexpr int kNotImplemented = 9;  // a status: no kernel for an operator or type
constexpr int kQuiet = 4;           // only fatal errors are logged

struct ApiBase {
  const void* (*get_api)(std::uint32_t version);
  const char* (*version)();
};

}  // namespace

struct OrtRuntime::Impl {
  void* const* table = nullptr;
  std::string version;
  void* environment = nullptr;
  void* memory = nullptr;

  // The function in that slot, called with these arguments.
  template <typename Result, typename... Arguments>
  Result call(Slot slot, Arguments... arguments) const {
    Result (*function)(Arguments...);
    std::memcpy(&function, &table[slot], sizeof(function));
    return function(arguments...);
  }

  // Calls a function that returns a status, and throws what it says: UnsupportedError if a kernel
  // is missing.
  template <typename... Arguments>
  void check(Slot slot, Arguments... arguments) const {
    void* status = call<void*>(slot, arguments...);
    if (status == nullptr) return;
    const int code = call<int>(kGetErrorCode, static_cast<const void*>(status));
    const std::string message =
        call<const char*>(kGetErrorMessage, static_cast<const void*>(status));
    call<void>(kReleaseStatus, status);
    if (code == kNotImplemented) raise<UnsupportedError>("onnxruntime", message);
    raise("onnxruntime", message);
  }
};

OrtRuntime::OrtRuntime(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OrtRuntime::~OrtRuntime() {
  if (impl_->memory != nullptr) impl_->call<void>(kReleaseMemoryInfo, impl_->memory);
  if (impl_->environment != nullptr) impl_->call<void>(kReleaseEnv, impl_->environment);
}

const std::string& OrtRuntime::version() const {
  return impl_->version;
}

namespace {

std::vector<std::string> candidates(const std::filesystem::path& path) {
  if (path.empty()) return platform::library_candidates("libonnxruntime.so", "onnxruntime/capi");
  if (!std::filesystem::is_directory(path)) return {path.string()};
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("libonnxruntime.so", 0) == 0) found.push_back(entry.path().string());
  }
  return found;
}

}  // namespace

std::shared_ptr<OrtRuntime> OrtRuntime::open(const std::filesystem::path& path, std::string* why) {
  void* library = nullptr;
  for (const std::string& name : candidates(path)) {
    library = platform::open_library(name, why);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    if (path.empty() || why->empty()) *why = "ONNX Runtime's libonnxruntime.so was not found";
    return nullptr;
  }
  void* symbol = platform::find_symbol(library, "OrtGetApiBase");
  if (symbol == nullptr) {
    *why = "the library has no OrtGetApiBase";
    return nullptr;
  }
  const ApiBase* (*base)();
  std::memcpy(&base, &symbol, sizeof(base));
  auto impl = std::make_unique<Impl>();
  impl->version = base()->version();
  impl->table = static_cast<void* const*>(base()->get_api(kApiVersion));
  if (impl->table == nullptr) {
    *why = "ONNX Runtime " + impl->version + " is too old";
    return nullptr;
  }
  auto runtime = std::make_shared<OrtRuntime>(std::move(impl));
  runtime->impl_->check(kCreateEnv, kQuiet, "mezzo", &runtime->impl_->environment);
  runtime->impl_->check(kCreateCpuMemoryInfo, 1, 0, &runtime->impl_->memory);
  return runtime;
}

OrtSession::OrtSession(std::shared_ptr<OrtRuntime> runtime, const std::filesystem::path& model,
                       bool optimise)
    : runtime_(std::move(runtime)) {
  const OrtRuntime::Impl& api = runtime_->impl();
  void* options = nullptr;
  api.check(kCreateSessionOptions, &options);
  try {
    api.check(kSetGraphOptimizationLevel, options, optimise ? 99 : 0);
    api.check(kSetIntraOpNumThreads, options, 1);
    api.check(kCreateSession, static_cast<const void*>(api.environment), model.c_str(),
              static_cast<const void*>(options), &session_);
  } catch (...) {
    api.call<void>(kReleaseSessionOptions, options);
    throw;
  }
  api.call<void>(kReleaseSessionOptions, options);
  void* allocator = nullptr;
  api.check(kGetAllocator, &allocator);
  const auto names = [&](Slot count_slot, Slot name_slot, std::vector<std::string>& into) {
    std::size_t count = 0;
    api.check(count_slot, static_cast<const void*>(session_), &count);
    for (std::size_t i = 0; i < count; ++i) {
      char* name = nullptr;
      api.check(name_slot, static_cast<const void*>(session_), i, allocator, &name);
      into.emplace_back(name);
      api.check(kAllocatorFree, allocator, static_cast<void*>(name));
    }
  };
  names(kSessionGetInputCount, kSessionGetInputName, input_names_);
  names(kSessionGetOutputCount, kSessionGetOutputName, output_names_);
  for (std::size_t i = 0; i < input_names_.size(); ++i) {
    void* info = nullptr;
    const void* tensor = nullptr;
    int element = 0;
    api.check(kSessionGetInputTypeInfo, static_cast<const void*>(session_), i, &info);
    api.check(kCastTypeInfoToTensorInfo, static_cast<const void*>(info), &tensor);
    if (tensor != nullptr) api.check(kGetTensorElementType, tensor, &element);
    api.call<void>(kReleaseTypeInfo, info);
    input_elements_.push_back(static_cast<Element>(element));
  }
}

namespace {

std::string refusal_here(const std::shared_ptr<OrtRuntime>& runtime,
                         const std::filesystem::path& model) {
  try {
    const OrtSession session(runtime, model, true);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::string refusal_of(const std::shared_ptr<OrtRuntime>& runtime,
                       const std::filesystem::path& model) {
  const auto load = [&] { return refusal_here(runtime, model); };
  const std::optional<platform::ApartEnd> apart = platform::do_apart(load);
  if (!apart) return load();
  if (apart->end.signal != 0)
    return concat({"it crashes: ", platform::signal_name(apart->end.signal)});
  return apart->end.failed() ? "it ends the process that loads it" : apart->result;
}

OrtSession::~OrtSession() {
  if (session_ != nullptr) runtime_->impl().call<void>(kReleaseSession, session_);
}

namespace {

// Values of ONNX Runtime, released together.
class Values {
 public:
  Values(const OrtRuntime::Impl& api, std::size_t count) : all(count, nullptr), api_(api) {}
  ~Values() {
    for (void* value : all) {
      if (value != nullptr) api_.call<void>(kReleaseValue, value);
    }
  }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  std::vector<void*> all;

 private:
  const OrtRuntime::Impl& api_;
};

void* tensor_of_strings(const OrtRuntime::Impl& api, const Array& array) {
  void *allocator = nullptr, *value = nullptr;
  api.check(kGetAllocator, &allocator);
  api.check(kCreateTensor, allocator, array.dims.data(), array.dims.size(),
            static_cast<int>(Element::kString), &value);
  const std::vector<std::string> texts = texts_of(array);
  std::vector<const char*> each;
  each.reserve(texts.size());
  for (const std::string& text : texts) each.push_back(text.c_str());
  api.check(kFillStringTensor, value, static_cast<const char* const*>(each.data()), each.size());
  return value;
}

std::vector<std::string> strings_from(const OrtRuntime::Impl& api, void* value, std::size_t count) {
  const auto* const tensor = static_cast<const void*>(value);
  std::size_t size = 0;
  api.check(kGetStringTensorDataLength, tensor, &size);
  std::string all(size, '\0');
  std::vector<std::size_t> begins(count);
  api.check(kGetStringTensorContent, tensor, static_cast<void*>(all.data()), size, begins.data(),
            count);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i)
    texts.push_back(all.substr(begins[i], (i + 1 < count ? begins[i + 1] : size) - begins[i]));
  return texts;
}

Array array_from(const OrtRuntime::Impl& api, void* value) {
  Array array;
  int is_tensor = 0;
  if (value == nullptr) return array;
  api.check(kIsTensor, static_cast<const void*>(value), &is_tensor);
  if (is_tensor == 0) return array;
  void* info = nullptr;
  int element = 0;
  std::size_t rank = 0;
  api.check(kGetTensorTypeAndShape, static_cast<const void*>(value), &info);
  api.check(kGetTensorElementType, static_cast<const void*>(info), &element);
  api.check(kGetDimensionsCount, static_cast<const void*>(info), &rank);
  array.dims.resize(rank);
  api.check(kGetDimensions, static_cast<const void*>(info), array.dims.data(), rank);
  api.call<void>(kReleaseTensorInfo, info);
  array.element = static_cast<Element>(element);
  if (array.element == Element::kString)
    return array_of(strings_from(api, value, array.count()), array.dims);
  if (size_of(array.element) == 0) return {};
  void* data = nullptr;
  api.check(kGetTensorMutableData, value, &data);
  array.bytes.assign(static_cast<const char*>(data), array.count() * size_of(array.element));
  return array;
}

}  // namespace

std::vector<Array> OrtSession::run(const Sample& sample) const {
  const OrtRuntime::Impl& api = runtime_->impl();
  std::vector<Array> held;
  held.reserve(input_names_.size());
  Values inputs(api, input_names_.size());
  std::vector<const char*> input_names;
  std::vector<const char*> output_names;
  for (std::size_t i = 0; i < input_names_.size(); ++i) {
    const auto found = sample.find(input_names_[i]);
    if (found == sample.end())
      raise<ConfigError>("onnxruntime", "no sample for the input '", input_names_[i], "'");
    const Element wanted = input_elements_[i];
    const bool is_float =
        wanted == Element::kFloat || wanted == Element::kFloat16 || wanted == Element::kBFloat16;
    held.push_back(is_float ? converted(found->second, wanted) : found->second);
    Array& array = held.back();
    input_names.push_back(input_names_[i].c_str());
    if ((array.element == Element::kString) != (wanted == Element::kString))
      raise<ConfigError>("onnxruntime", "the sample for the input '", input_names_[i],
                         "' is of the type ", name_of(array.element));
    if (wanted == Element::kString) {
      inputs.all[i] = tensor_of_strings(api, array);
      continue;
    }
    api.check(kCreateTensorWithData, static_cast<const void*>(api.memory),
              static_cast<void*>(array.bytes.data()), array.bytes.size(),
              static_cast<const std::int64_t*>(array.dims.data()), array.dims.size(),
              static_cast<int>(array.element), &inputs.all[i]);
  }
  for (const std::string& name : output_names_) output_names.push_back(name.c_str());
  Values outputs(api, output_names_.size());
  api.check(kRun, session_, static_cast<const void*>(nullptr), input_names.data(),
            static_cast<void* const*>(inputs.all.data()), inputs.all.size(), output_names.data(),
            output_names.size(), outputs.all.data());
  std::vector<Array> results;
  for (void* value : outputs.all) results.push_back(array_from(api, value));
  return results;
}

namespace {

// Ranges: the values of the main graph become outputs of a model of ours.
void add_output(Message& graph, Document& document, std::string_view name) {
  auto tensor = std::make_unique<Message>();
  tensor->add(field::tensor_type::kElement, static_cast<std::uint64_t>(Element::kFloat));
  auto type = std::make_unique<Message>();
  type->add(field::type::kTensor, std::move(tensor));
  auto info = std::make_unique<Message>();
  info->add(field::value_info::kName, document.keep(std::string(name)));
  info->add(field::value_info::kType, std::move(type));
  graph.add(field::graph::kOutput, std::move(info));
}

}  // namespace

ValueRanges OrtEngine::ranges(Document& document, const Graph& graph,
                              const std::vector<Sample>& samples,
                              const std::filesystem::path& scratch) const {
  Message& main = document.model().find(field::model::kGraph)->open();
  std::vector<ValueId> watched;
  for (const auto& [name, id] : graph.scope(0).names) {
    const Value& value = graph.value(id);
    const bool is_output = std::ranges::any_of(
        value.uses, [](const Use& use) { return use.node == kNone && use.scope == 0; });
    if (value.type == tensor_of(Element::kFloat) && value.producer != kNone && !is_output)
      watched.push_back(id);
  }
  std::ranges::sort(watched);
  for (const ValueId id : watched) add_output(main, document, graph.value(id).name);
  store_model(document, scratch);
  const OrtSession session(runtime_, scratch, false);
  ValueRanges ranges;
  const auto add = [&](ValueId id, const Array& array) {
    if (array.element != Element::kFloat) return;
    double& largest = ranges[id];
    largest = std::max(largest, largest_magnitude(array));
  };
  const auto& outputs = graph.scope(0).outputs;
  for (const Sample& sample : samples) {
    const std::vector<Array> results = session.run(sample);
    for (std::size_t i = 0; i < results.size(); ++i)
      add(i < outputs.size() ? outputs[i] : watched.at(i - outputs.size()), results[i]);
    for (const ValueId id : graph.scope(0).inputs) {
      const auto found = sample.find(std::string(graph.value(id).name));
      if (found != sample.end()) add(id, found->second);
    }
  }
  return ranges;
}

}  // namespace mezzo::convert
