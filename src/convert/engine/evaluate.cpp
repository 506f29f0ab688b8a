#include "convert/engine/evaluate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "convert/engine/local_errors.h"
#include "convert/engine/strings.h"
#include "convert/graph/constants.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/texts.h"
#include "core/raise.h"
#include "platform/libraries.h"
#include "platform/libtorch.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTraining = "ai.onnx.preview.training";  // names of its own
constexpr const char* kLibrary = "libmezzo_convert_torch.so";

bool is_low(Element element) {
  return element == Element::kFloat16 || element == Element::kBFloat16;
}

// One model file with its own document.
class EvaluatorModel final : public LoadedModel {
 public:
  EvaluatorModel(const OperatorLibrary& library, const fs::path& model)
      : document_(model), graph_(document_), evaluation_(library, document_, graph_) {
    for (const ValueId id : graph_.scope(0).inputs) {
      if (graph_.value(id).initializer == nullptr) inputs_.emplace_back(graph_.value(id).name);
    }
    for (const ValueId id : graph_.scope(0).outputs) outputs_.emplace_back(graph_.value(id).name);
  }

  std::vector<Array> run(const Sample& sample) const override {
    std::vector<Array> results;
    for (const DatumPtr& datum : evaluation_.run(sample)) results.push_back(datum->tensor);
    return results;
  }
  const std::vector<std::string>& inputs() const override { return inputs_; }
  const std::vector<std::string>& outputs() const override { return outputs_; }

 private:
  Document document_;
  Graph graph_;
  mutable Evaluation evaluation_;
  std::vector<std::string> inputs_, outputs_;
};

}  // namespace

LoadedModel::~LoadedModel() = default;
Engine::~Engine() = default;

std::vector<LocalError> Engine::local_errors(Document&, const Graph&, const Rounding&,
                                             const std::vector<Sample>&) const {
  return {};
}

double largest_magnitude(const Array& array) {
  if (array.element == Element::kFloat) {
    std::uint32_t largest = 0;  // magnitudes are in the order of their bits
    for (const float value : floats_of(array)) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
      largest = std::max(largest, bits < 0x7F800000U ? bits : 0U);
    }
    return std::bit_cast<float>(largest);
  }
  double largest = 0;
  for (const double value : array.values()) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

const OperatorLibrary* open_operators(const fs::path& path, std::string* why) {
  std::vector<std::string> places;
  if (path.empty()) {
    const fs::path folder = platform::program_path().parent_path();
    places = platform::library_candidates(kLibrary, "mezzo");
    for (const fs::path& place :
         {folder / ".." / kLibrary, folder / MEZZO_LIBRARY_FOLDER / kLibrary})
      places.push_back(place.string());
  } else {
    places = {fs::is_directory(path) ? (path / kLibrary).string() : path.string()};
  }
  void* library = nullptr;
  *why = std::string(kLibrary) + " was not found";
  for (const std::string& place : places) {
    if (place.find('/') != std::string::npos && !fs::exists(place)) continue;
    library = platform::open_with_libtorch(place, why);
    if (library != nullptr) break;
  }
  if (library == nullptr) return nullptr;
  void* symbol = platform::find_symbol(library, "mezzo_convert_operators");
  const OperatorLibrary* (*entry)() = nullptr;
  std::memcpy(&entry, &symbol, sizeof(entry));
  const OperatorLibrary* operators = entry == nullptr ? nullptr : entry();
  if (operators != nullptr && operators->layout == kOperatorLayout) return operators;
  *why = std::string(kLibrary) + " belongs to another version of Mezzo";
  return nullptr;
}

std::unique_ptr<LoadedModel> Evaluator::open(const fs::path& model, bool) const {
  return std::make_unique<EvaluatorModel>(library_, model);
}

ValueRanges Evaluator::ranges(Document& document, const Graph& graph,
                              const std::vector<Sample>& samples, const fs::path&) const {
  ValueRanges ranges;
  const Evaluation::Watch watch = [&](ValueId id, const Array& array) {
    if (array.element != Element::kFloat) return;
    double& largest = ranges[id];
    largest = std::max(largest, largest_magnitude(array));
  };
  Evaluation evaluation(library_, document, graph);
  for (const Sample& sample : samples) evaluation.run(sample, &watch);
  return ranges;
}

std::vector<LocalError> Evaluator::local_errors(Document& document, const Graph& graph,
                                                const Rounding& rounding,
                                                const std::vector<Sample>& samples) const {
  LocalErrors errors(library_, graph, rounding);
  const Evaluation::Observe observe = [&](const Node& node, const OperatorCall& call,
                                          const std::vector<Array>& results) {
    errors.add(node, call, results);
  };
  Evaluation evaluation(library_, document, graph);
  for (const Sample& sample : samples) evaluation.run(sample, nullptr, &observe);
  return errors.sorted();
}

DatumPtr datum_of(Array array) {
  return std::make_shared<Datum>(Datum{Datum::Kind::kTensor, std::move(array), {}});
}

DatumPtr sequence_of(std::vector<DatumPtr> items) {
  return std::make_shared<Datum>(Datum{Datum::Kind::kSequence, {}, std::move(items)});
}

const DatumPtr& Evaluation::value(ValueId id) const {
  const DatumPtr& datum = values_[static_cast<std::size_t>(id)];
  if (!datum) raise("evaluate", graph_.describe(graph_.value(id)), " has no value");
  return datum;
}

bool Evaluation::has(const Node& node, std::size_t i) const {
  return i < node.inputs.size() && node.inputs[i] != kNone &&
         value(node.inputs[i])->kind != Datum::Kind::kNothing;
}

const DatumPtr& Evaluation::input(const Node& node, std::size_t i) const {
  if (i >= node.inputs.size() || node.inputs[i] == kNone)
    raise("evaluate", graph_.describe(node), " lacks its input ", i);
  return value(node.inputs[i]);
}

std::int64_t Evaluation::whole(const Node& node, std::size_t i) const {
  const std::vector<double> values = input(node, i)->tensor.values();
  if (values.empty()) raise("evaluate", graph_.describe(node), ": input ", i, " is empty");
  return static_cast<std::int64_t>(values.front());
}

void Evaluation::set(ValueId id, DatumPtr datum) {
  if (id == kNone) return;
  if (watch_ != nullptr && datum->kind == Datum::Kind::kTensor) (*watch_)(id, datum->tensor);
  values_[static_cast<std::size_t>(id)] = std::move(datum);
}

void Evaluation::bind(ScopeId scope, std::size_t i, DatumPtr datum) {
  const auto& inputs = graph_.scope(scope).inputs;
  if (i < inputs.size()) set(inputs[i], std::move(datum));
}

std::vector<DatumPtr> Evaluation::outputs_of(ScopeId scope) const {
  std::vector<DatumPtr> results;
  for (const ValueId id : graph_.scope(scope).outputs) results.push_back(value(id));
  return results;
}

void Evaluation::give(const Node& node, const std::vector<DatumPtr>& results) {
  for (std::size_t i = 0; i < node.outputs.size() && i < results.size(); ++i)
    set(node.outputs[i], results[i]);
}

std::vector<DatumPtr> Evaluation::run(const Sample& sample, const Watch* watch,
                                      const Observe* observe) {
  watch_ = watch;
  observe_ = observe;
  const Scope& main = graph_.scope(0);
  for (const ValueId id : main.inputs) {
    const Value& value = graph_.value(id);
    const auto found = sample.find(std::string(value.name));
    if (found == sample.end()) {
      if (value.initializer != nullptr) continue;
      raise<ConfigError>("evaluate", "no sample for the input '", value.name, "'");
    }
    if ((value.type.element == Element::kString) != (found->second.element == Element::kString))
      raise<ConfigError>("evaluate", "the sample for the input '", value.name, "' is of the type ",
                         name_of(found->second.element));
    const bool converts = is_low(value.type.element) || value.type.element == Element::kFloat;
    set(id, datum_of(converts ? converted(found->second, value.type.element) : found->second));
  }
  scope(0);
  watch_ = nullptr;
  observe_ = nullptr;
  return outputs_of(0);
}

void Evaluation::constants_of(ScopeId id) {
  for (const auto& [name, value_id] : graph_.scope(id).names) {
    const Value& value = graph_.value(value_id);
    const bool is_given =
        value.origin == Origin::kInput && values_[static_cast<std::size_t>(value_id)];
    if (value.initializer == nullptr || is_given) continue;
    DatumPtr& datum = constants_[value_id];
    if (!datum) {
      if (value.origin == Origin::kSparseInitializer)
        raise<UnsupportedError>("evaluate", "'", name, "' is a sparse initializer");
      datum = datum_of(array_of(document_, *value.initializer));
    }
    values_[static_cast<std::size_t>(value_id)] = datum;
  }
}

void Evaluation::scope(ScopeId id) {
  constants_of(id);
  for (const NodeId each : graph_.scope(id).ordered) node(graph_.node(each));
}

void Evaluation::node(const Node& node) {
  if (node.instance != kNone) return call(node);
  if (!node.bodies.empty() && body(node)) return;
  if (node.domain.empty() && node.op == "Constant") return constant(node);
  if (node.domain.empty() && container(node)) return;
  compute(node);
}

void Evaluation::call(const Node& node) {
  const Scope& function = graph_.scope(node.instance);
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    const bool is_given = i < node.inputs.size() && node.inputs[i] != kNone;
    bind(node.instance, i,
         is_given ? value(node.inputs[i])
                  : std::make_shared<Datum>(Datum{Datum::Kind::kNothing, {}, {}}));
  }
  scope(node.instance);
  give(node, outputs_of(node.instance));
}

void Evaluation::constant(const Node& node) {
  const ValueId out = node.outputs.empty() ? kNone : node.outputs[0];
  if (out == kNone) return;
  if (const Message* tensor = graph_.constant(out))
    return set(out, datum_of(array_of(document_, *tensor)));
  Array array;
  if (const auto floats = listed_floats(graph_, node)) {
    array.element = Element::kFloat;
    array.bytes.assign(reinterpret_cast<const char*>(floats->data()), floats->size() * 4);
    if (graph_.attribute(node, "value_floats") != nullptr)
      array.dims = {static_cast<std::int64_t>(floats->size())};
    return set(out, datum_of(std::move(array)));
  }
  for (const char* name : {"value_int", "value_ints"}) {
    const Message* attribute = graph_.attribute(node, name);
    if (attribute == nullptr) continue;
    const AttributeValue given = attribute_of(*attribute);
    const bool is_list = std::string_view(name) == "value_ints";
    const std::vector<std::int64_t> values = is_list ? given.integers : std::vector{given.integer};
    array.element = Element::kInt64;
    if (is_list) array.dims = {static_cast<std::int64_t>(values.size())};
    array.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * 8);
    return set(out, datum_of(std::move(array)));
  }
  if (const Message* text = graph_.attribute(node, "value_string"))
    return set(out, datum_of(array_of({attribute_of(*text).text}, {})));
  if (const Message* list = graph_.attribute(node, "value_strings")) {
    const std::vector<std::string> texts = attribute_of(*list).texts;
    return set(out, datum_of(array_of(texts, {static_cast<std::int64_t>(texts.size())})));
  }
  raise<UnsupportedError>("evaluate", graph_.describe(node), " is of another kind");
}

AttributeValue Evaluation::attribute_of(const Message& attribute) const {
  namespace f = field::attribute;
  AttributeValue value;
  value.integer = static_cast<std::int64_t>(attribute.number(f::kInt));
  value.number = static_cast<double>(
      std::bit_cast<float>(static_cast<std::uint32_t>(attribute.number(f::kFloat))));
  value.text = attribute.text(f::kString);
  value.integers = repeated_integers(attribute, f::kInts);
  const std::vector<float> floats = repeated_floats(attribute, f::kFloats);
  value.numbers.assign(floats.begin(), floats.end());
  for_each_field(attribute, f::kStrings,
                 [&](const Field& field) { value.texts.emplace_back(field.bytes); });
  if (const Field* tensor = attribute.find(f::kTensor)) {
    const Message parsed = Message::parse(tensor->bytes);
    value.tensor = array_of(document_, parsed);
    if (is_low(value.tensor.element)) value.tensor = converted(value.tensor, Element::kFloat);
  }
  return value;
}

OperatorCall Evaluation::call_of(const Node& node, std::vector<Array>* widened) const {
  OperatorCall call;
  call.op = node.op;
  call.opset = node.opset;
  for (Field& field : node.message->fields()) {
    if (field.number != field::node::kAttribute) continue;
    const std::string_view name = field.open().text(field::attribute::kName);
    if (const Message* given = graph_.attribute(node, name))
      call.attributes.emplace(name, attribute_of(*given));
  }
  widened->reserve(node.inputs.size());
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!has(node, i)) {
      call.inputs.push_back(nullptr);
      continue;
    }
    const Datum& datum = *value(node.inputs[i]);
    if (datum.kind != Datum::Kind::kTensor)
      raise<UnsupportedError>("evaluate", graph_.describe(node), " reads a sequence");
    if (is_low(datum.tensor.element)) {
      call.inputs.push_back(&widened->emplace_back(converted(datum.tensor, Element::kFloat)));
    } else {
      call.inputs.push_back(&datum.tensor);
    }
  }
  for (const ValueId out : node.outputs) {
    const bool is_known = out != kNone && graph_.value(out).type.is_plain_tensor();
    call.outputs.push_back(is_known ? graph_.value(out).type.element : Element::kUndefined);
  }
  return call;
}

void Evaluation::compute(const Node& node) {
  std::vector<Array> widened;
  const OperatorCall call = call_of(node, &widened);
  const bool has_strings = concerns_strings(node.domain, call);
  if (!has_strings && !node.domain.empty() && node.domain != kTraining)
    raise<UnsupportedError>("evaluate", graph_.describe(node), " is of the domain ", node.domain);
  std::vector<Array> results;
  const std::string why =
      has_strings ? run_on_strings(library_, call, &results) : library_.run(call, &results);
  if (!why.empty()) raise<UnsupportedError>("evaluate", graph_.describe(node), ": ", why);
  if (observe_ != nullptr && !has_strings) (*observe_)(node, call, results);
  for (std::size_t i = 0; i < node.outputs.size() && i < results.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    const bool rounds = is_low(call.outputs[i]) && results[i].element == Element::kFloat;
    set(node.outputs[i],
        datum_of(rounds ? converted(results[i], call.outputs[i]) : std::move(results[i])));
  }
}

}  // namespace mezzo::convert
