#include "convert/judge/judge.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "convert/judge/metrics.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/rewrite/candidate.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

bool fits(const Value& value, const Array& array) {
  return !value.has_dims ||
         std::ranges::equal(value.dims, array.dims, [](std::int64_t declared, std::int64_t got) {
           return declared <= 0 || declared == got;  // some exporters write 0 for "any"
         });
}

Array made_up(const Value& value, std::minstd_rand& random) {
  if (!value.type.is_plain_tensor() || size_of(value.type.element) == 0 || !value.has_dims) {
    raise<UnsupportedError>("convert", "no samples can be made up for the input '", value.name,
                            "' (", name_of(value.type), "); give Options::calibration");
  }
  Array array;
  array.element = Element::kFloat;
  for (const std::int64_t dim : value.dims)
    array.dims.push_back(std::max<std::int64_t>(dim, dim == 0 ? 0 : 1));
  std::vector<float> floats(array.count());
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& each : floats) each = uniform(random);
  array.bytes.assign(reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float));
  switch (value.type.element) {
    case Element::kFloat:
      return array;
    case Element::kFloat16:
    case Element::kBFloat16:
      return converted(array, value.type.element);
    default:
      break;
  }
  // Ones: valid as indices, masks and lengths wherever anything is.
  const std::size_t size = size_of(value.type.element);
  array.element = value.type.element;
  array.bytes.assign(array.count() * size, '\0');
  if (array.element == Element::kDouble) return array;
  for (std::size_t i = 0; i < array.bytes.size(); i += size) array.bytes[i] = 1;
  return array;
}

}  // namespace

fs::path Workshop::file(const std::string& name) const {
  if (!folder_) folder_ = platform::folder_beside(target_, "convert");
  return folder_->path() / name;
}

std::vector<Sample> samples_for(const Graph& graph, const std::vector<fs::path>& files) {
  std::vector<ValueId> inputs;
  for (const ValueId id : graph.scope(0).inputs) {
    if (graph.value(id).initializer == nullptr) inputs.push_back(id);
  }
  if (!files.empty()) {
    std::vector<std::string> names;
    names.reserve(inputs.size());
    for (const ValueId id : inputs) names.emplace_back(graph.value(id).name);
    std::vector<Sample> samples = read_samples(files, names);
    for (const Sample& sample : samples) {
      for (const ValueId id : inputs) {
        const Array& array = sample.at(std::string(graph.value(id).name));
        if (array.element != graph.value(id).type.element) {
          raise<ConfigError>("samples", "input '", graph.value(id).name, "' is ",
                             name_of(graph.value(id).type), " and the sample ",
                             name_of(array.element));
        }
        if (!fits(graph.value(id), array)) {
          raise<ConfigError>("samples", "input '", graph.value(id).name, "' has the shape ",
                             shape_text(graph.value(id).dims), " and the sample ",
                             shape_text(array.dims));
        }
      }
    }
    return samples;
  }
  std::minstd_rand random(1);
  Sample sample;
  for (const ValueId id : inputs)
    sample[std::string(graph.value(id).name)] = made_up(graph.value(id), random);
  return {sample};
}

Judge::Judge(std::shared_ptr<const Engine> engine, std::shared_ptr<ModelFile> original,
             Preparation preparation, std::vector<Sample> samples, const Workshop& workshop)
    : engine_(std::move(engine)),
      original_(std::move(original)),
      preparation_(preparation),
      samples_(std::move(samples)),
      workshop_(workshop) {
  const std::unique_ptr<LoadedModel> session = engine_->open(original_->path(), true);
  outputs_ = session->outputs();
  for (const Sample& sample : samples_) reference_.push_back(session->run(sample));
}

ValueRanges Judge::ranges(const Graph& graph) const {
  const std::unique_ptr<Document> document = prepared(original_, preparation_);
  return engine_->ranges(*document, graph, samples_, workshop_.file("ranges.onnx"));
}

std::vector<LocalError> Judge::local_errors(const Graph& graph, const Decisions& decisions,
                                            const ConvertPolicy& policy) const {
  const std::unique_ptr<Document> document = prepared(original_, preparation_);
  return engine_->local_errors(*document, graph, rounding_of(graph, decisions, policy), samples_);
}

SampleErrors Judge::compare(const LoadedModel& session) const {
  SampleErrors errors;
  for (std::size_t s = 0; s < samples_.size(); ++s) {
    const std::vector<Array> results = session.run(samples_[s]);
    std::vector<OutputError>& of_sample = errors.emplace_back();
    for (std::size_t i = 0; i < results.size(); ++i)
      of_sample.push_back(compare_outputs(outputs_.at(i), reference_[s].at(i), results[i]));
  }
  return errors;
}

SampleErrors Judge::errors(const ConvertPolicy& policy, const Evidence& evidence,
                           Storage emulation) const {
  const fs::path path = workshop_.file("rounded.onnx");
  write_candidate(original_, {preparation_.opset}, policy, evidence, emulation, path);
  return compare(*engine_->open(path, false));
}

SampleErrors Judge::errors_of(const fs::path& model) const {
  return compare(*engine_->open(model, true));
}

double largest_error(const std::vector<OutputError>& errors) {
  double largest = 0;
  for (const OutputError& error : errors) {
    largest = std::max(largest, error.finite ? error.relative_to_range : HUGE_VAL);
  }
  return largest;
}

}  // namespace mezzo::convert
