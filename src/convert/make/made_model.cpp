#include "convert/make/made_model.h"

#include <bit>
#include <utility>

#include "convert/engine/evaluate.h"
#include "convert/engine/ort.h"
#include "convert/graph/check.h"
#include "convert/make/admit_types.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/store.h"
#include "convert/prepare/fold_batch_norm.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

std::uint64_t bits_of_float(double value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

Field fixed32(std::uint32_t number, double value) {
  Field field;
  field.number = number;
  field.wire = Wire::kFixed32;
  field.value = bits_of_float(value);
  return field;
}

/// Makes the messages of a model. Texts and tensors are views into the model, which outlives the
/// document.
class Maker {
 public:
  static std::unique_ptr<Message> graph(const MadeGraph& made) {
    auto message = std::make_unique<Message>();
    for (const MadeNode& node : made.nodes) message->add(field::graph::kNode, Maker::node(node));
    message->add(field::graph::kName, std::string_view(made.name));
    for (const MadeTensor& tensor : made.initializers)
      message->add(field::graph::kInitializer, Maker::tensor(tensor));
    for (const MadeValue& value : made.inputs)
      message->add(field::graph::kInput, Maker::value(value));
    for (const MadeValue& value : made.outputs)
      message->add(field::graph::kOutput, Maker::value(value));
    return message;
  }

 private:
  static std::unique_ptr<Message> tensor(const MadeTensor& made) {
    namespace f = field::tensor;
    auto message = std::make_unique<Message>();
    for (const std::int64_t dim : made.dims)
      message->add(f::kDims, static_cast<std::uint64_t>(dim));
    message->add(f::kType, static_cast<std::uint64_t>(made.element));
    if (!made.name.empty()) message->add(f::kName, std::string_view(made.name));
    message->add(f::kRawData, made.bytes);
    return message;
  }

  static std::unique_ptr<Message> value(const MadeValue& made) {
    if (made.element == Element::kUndefined) {
      auto message = std::make_unique<Message>();
      message->add(field::value_info::kName, std::string_view(made.name));
      return message;
    }
    auto shape = std::make_unique<Message>();
    for (const auto& dim : made.dims) {
      auto dimension = std::make_unique<Message>();
      if (const auto* size = std::get_if<std::int64_t>(&dim)) {
        dimension->add(field::shape::kDimensionValue, static_cast<std::uint64_t>(*size));
      } else {
        dimension->add(field::shape::kDimensionName, std::string_view(std::get<std::string>(dim)));
      }
      shape->add(field::shape::kDimension, std::move(dimension));
    }
    auto tensor = std::make_unique<Message>();
    tensor->add(field::tensor_type::kElement, static_cast<std::uint64_t>(made.element));
    if (made.has_dims) tensor->add(field::tensor_type::kShape, std::move(shape));
    auto type = std::make_unique<Message>();
    type->add(field::type::kTensor, std::move(tensor));
    auto message = std::make_unique<Message>();
    message->add(field::value_info::kName, std::string_view(made.name));
    message->add(field::value_info::kType, std::move(type));
    return message;
  }

  static std::unique_ptr<Message> node(const MadeNode& made) {
    namespace f = field::node;
    auto message = std::make_unique<Message>();
    for (const std::string& input : made.inputs) message->add(f::kInput, std::string_view(input));
    for (const std::string& output : made.outputs)
      message->add(f::kOutput, std::string_view(output));
    if (!made.name.empty()) message->add(f::kName, std::string_view(made.name));
    message->add(f::kOpType, std::string_view(made.op));
    for (const auto& [name, value] : made.attributes)
      message->add(f::kAttribute, attribute(name, value));
    if (!made.domain.empty()) message->add(f::kDomain, std::string_view(made.domain));
    return message;
  }

  static std::unique_ptr<Message> attribute(const std::string& name, const MadeAttribute& value) {
    namespace f = field::attribute;
    namespace type = field::attribute_type;
    auto message = std::make_unique<Message>();
    message->add(f::kName, std::string_view(name));
    const auto finish = [&](std::uint64_t kind) { message->add(f::kType, kind); };
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      message->add(f::kInt, static_cast<std::uint64_t>(*integer));
      finish(type::kInt);
    } else if (const auto* number = std::get_if<double>(&value)) {
      message->fields().push_back(fixed32(f::kFloat, *number));
      finish(type::kFloat);
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      message->add(f::kString, std::string_view(*text));
      finish(type::kString);
    } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) {
      for (const std::int64_t each : *integers)
        message->add(f::kInts, static_cast<std::uint64_t>(each));
      finish(type::kInts);
    } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
      for (const double each : *numbers) message->fields().push_back(fixed32(f::kFloats, each));
      finish(type::kFloats);
    } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
      for (const std::string& each : *texts) message->add(f::kStrings, std::string_view(each));
      finish(type::kStrings);
    } else if (const auto* made = std::get_if<MadeTensor>(&value)) {
      message->add(f::kTensor, tensor(*made));
      finish(type::kTensor);
    } else {
      message->add(f::kGraph, graph(*std::get<std::shared_ptr<MadeGraph>>(value)));
      finish(type::kGraph);
    }
    return message;
  }
};

/// The version of the format that came with an opset.
std::uint64_t format_of(std::int64_t opset) {
  if (opset < 15) return 7;
  if (opset < 19) return 8;
  if (opset < 21) return 9;
  return 10;
}

std::string empty_model() {
  return {"\x3a\x00", 2};
}

/// Texts and tensors of the document are views into the model.
void fill(Document& document, const MadeModel& model) {
  static constexpr std::string_view kMezzo = "Mezzo";
  constexpr std::uint32_t kProducer = 2, kProducerVersion = 3;
  Message made;
  made.add(field::model::kIrVersion, format_of(model.opsets.at("")));
  made.add(kProducer, kMezzo);
  made.add(kProducerVersion, std::string_view(model.producer_version));
  made.add(field::model::kGraph, Maker::graph(model.graph));
  for (const auto& [domain, version] : model.opsets) {
    auto opset = std::make_unique<Message>();
    opset->add(field::opset::kDomain, std::string_view(domain));
    opset->add(field::opset::kVersion, static_cast<std::uint64_t>(version));
    made.add(field::model::kOpsetImport, std::move(opset));
  }
  document.model().replace(std::move(made.fields()));
}

TypesOfValues types_of(const MadeModel& model) {
  Document document(empty_model());
  fill(document, model);
  const Graph graph(document);
  TypesOfValues types;
  for (const Value& value : graph.values) {
    if (value.type.is_plain_tensor()) types.emplace(value.name, value.type.element);
  }
  return types;
}

}  // namespace

int store_made(MadeModel& model, const std::filesystem::path& out, bool external) {
  admit_types(model, types_of(model));
  {
    Document document(empty_model());
    fill(document, model);
    fold_batch_norms(document);
    store_model(document, out, external);
  }
  Document written(out);
  const Graph read(written);
  const std::vector<Finding> findings = check_graph(read);
  if (findings.empty()) return static_cast<int>(read.nodes.size());
  raise("export", "the model that was made is not valid: ", findings.front().what,
        findings.size() > 1 ? " (and " + std::to_string(findings.size() - 1) + " more)" : "");
}

namespace {

MadeRun run_by(Engine& engine, const std::filesystem::path& model,
               const std::vector<Sample>& samples) {
  MadeRun run{engine.name(), {}};
  const auto loaded = engine.open(model, /*optimise=*/true);
  for (const Sample& sample : samples) run.outputs.push_back(loaded->run(sample));
  return run;
}

}  // namespace

MadeRun run_made(const std::filesystem::path& model, const std::vector<Sample>& samples,
                 const std::filesystem::path& evaluator, const std::filesystem::path& onnxruntime) {
  std::string no_runtime, no_evaluator;
  if (auto runtime = OrtRuntime::open(onnxruntime, &no_runtime)) {
    try {
      OrtEngine engine(std::move(runtime));
      return run_by(engine, model, samples);
    } catch (const UnsupportedError& error) {
      // Not every operator has a kernel for every type that the standard gives it.
      no_runtime = error.what();
    }
  }
  if (const OperatorLibrary* operators = open_operators(evaluator, &no_evaluator)) {
    Evaluator engine(*operators);
    return run_by(engine, model, samples);
  }
  raise<UnsupportedError>("export", "verification needs a judge. ONNX Runtime: ", no_runtime,
                          "; the built-in evaluator: ", no_evaluator,
                          ". Name one of them in the options, or switch `verify` off");
}

}  // namespace mezzo::convert
