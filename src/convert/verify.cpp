#include "convert/verify.h"

#include <algorithm>
#include <cmath>

#include "convert/concat.h"
#include "convert/evaluate.h"
#include "convert/hash.h"
#include "convert/search.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

constexpr int kSearchBudget = 80;
/// What a comparison accepts without --tolerance, relative to an output's range.
constexpr double kAcceptedHalf = 0.02;
constexpr double kAcceptedBFloat = 0.15;
/// Or so many times what rounding the weights alone costs.
constexpr double kFloorFactor = 4.0;

bool loads(const std::shared_ptr<OrtRuntime>& runtime, const std::filesystem::path& model,
           std::string* why) {
  try {
    const OrtSession session(runtime, model, true);
    return true;
  } catch (const Error& error) {
    *why = error.what();
    return false;
  }
}

}  // namespace

Verifier::Verifier(const std::filesystem::path& original, int opset, const Graph& graph,
                   const ConvertPolicy& policy, const std::filesystem::path& target)
    : original_(original), graph_(graph), policy_(policy), target_(target), workshop_(target) {
  const Options& options = policy.options();
  const bool compares = options.verify == "compare" || options.tolerance.has_value();
  const bool needs = options.verify == "run" || compares || !options.calibration.empty();
  if (options.verify == "none" && !needs) return;
  runtime_ = OrtRuntime::open(options.onnxruntime, &why_not_);
  if (!runtime_ && !options.onnxruntime.empty()) {
    notes_.push_back(concat({"ONNX Runtime is not at '", options.onnxruntime.string(),
                             "', where it was named: ", why_not_}));
  }
  if (!needs) return;
  open_judge(opset);
  if (options.calibration.empty()) return;
  tell("measuring ranges", 0);
  ranges_ = judge_->ranges(graph);
}

void Verifier::open_judge(int opset) {
  const Options& options = policy_.options();
  const std::vector<Sample> samples = samples_for(graph_, options.calibration);
  std::string why;
  if (const OperatorLibrary* operators = open_operators(options.evaluator, &why)) {
    try {
      judge_ = std::make_unique<Judge>(std::make_shared<Evaluator>(*operators), original_, opset,
                                       samples, workshop_);
      return;
    } catch (const UnsupportedError& error) {
      why = error.what();
    }
  } else if (!options.evaluator.empty()) {
    notes_.push_back(concat({"the built-in evaluator is not at '", options.evaluator.string(),
                             "', where it was named: ", why}));
  }
  if (!runtime_) {
    raise<UnsupportedError>("convert",
                            "--verify run and compare, --calibration and --tolerance "
                            "need a judge. The built-in evaluator: ",
                            why, "; name its library with --evaluator. ONNX Runtime: ", why_not_,
                            "; name its library or folder with --onnxruntime");
  }
  judge_ = std::make_unique<Judge>(std::make_shared<OrtEngine>(runtime_), original_, opset, samples,
                                   workshop_);
}

const std::set<std::string>* Verifier::kept(const Evidence& evidence, Report& report) {
  const Options& options = policy_.options();
  if (!options.tolerance || !judge_) return nullptr;
  Constants constants(graph_, policy_.low());
  const Decisions decisions = decide(graph_, policy_, constants, evidence);
  const std::vector<std::string> candidates = candidates_of(decisions);
  int attempts = 0;
  SearchJournal journal(target_.string() + ".search", purpose_of_search(decisions));
  const auto error_of = [&](const NodeSet& set) {
    if (const auto known = journal.find(set)) return *known;
    tell("searching", static_cast<double>(++attempts) / kSearchBudget);
    Evidence with = evidence;
    with.kept = &set;
    const double error = largest_error(judge_->errors(policy_, with, judged()));
    journal.add(set, error);
    return error;
  };
  kept_ = search_kept(candidates, *options.tolerance, error_of,
                      [&] { return attempts < kSearchBudget; });
  if (error_of(*kept_) <= *options.tolerance) journal.close();
  report.search_attempts = attempts;
  report.kept_by_search = static_cast<std::int64_t>(kept_->size());
  return &*kept_;
}

// The nodes that may have to stay float32: low ones or, where only weights are low, their readers.
std::vector<std::string> Verifier::candidates_of(const Decisions& decisions) const {
  std::vector<std::string> candidates;
  if (!policy_.options().weights_only) {
    for (const Decision& decision : decisions.list) {
      if (decision.low && (candidates.empty() || candidates.back() != decision.key))
        candidates.push_back(decision.key);
    }
    return candidates;
  }
  const auto is_weight = [&](ValueId in) {
    return in != kNone && decisions.map.is_constant[static_cast<std::size_t>(in)];
  };
  for (const Node& node : graph_.nodes) {
    const std::string key = graph_.key_of(node);
    if (std::ranges::any_of(node.inputs, is_weight) &&
        !std::ranges::binary_search(decisions.float_weights, key))
      candidates.push_back(key);
  }
  return candidates;
}

// Weights that are stored low and cast back are what every engine computes with.
Storage Verifier::judged() const {
  return policy_.options().weights_only ? Storage::kWeightsOnly : Storage::kEmulated;
}

// What was judged counts again for the same model, samples, options and decisions.
std::uint64_t Verifier::purpose_of_search(const Decisions& decisions) const {
  const Options& options = policy_.options();
  Hash hash;
  hash.add(judge_->engine().name());
  std::vector<std::filesystem::path> files = options.calibration;
  files.push_back(original_);
  for (const std::filesystem::path& file : files) {
    hash.add(file.string());
    hash.add(static_cast<std::int64_t>(std::filesystem::file_size(file)));
    hash.add(std::filesystem::last_write_time(file).time_since_epoch().count());
  }
  for (const std::string& text : {options.target_dtype, options.profile, options.opset, options.io})
    hash.add(text);
  for (const auto& [name, dtype] : options.io_of) {
    hash.add(name);
    hash.add(dtype);
  }
  for (const std::string& text : policy_.custom_texts()) hash.add(text);
  hash.add(std::int64_t{options.weights_only});
  hash.add(std::int64_t{options.cast_optional_params});
  // Lists, names, ranges and what the caller chooses have come to these.
  for (const std::string& key : decisions.float_weights) hash.add(key);
  for (const Decision& decision : decisions.list) {
    for (const std::string& text :
         {decision.key, decision.variable, decision.rule, decision.why, decision.otherwise})
      hash.add(text);
    hash.add(std::int64_t{decision.low});
  }
  return hash.value();
}

void Verifier::tell(std::string_view what, double share) const {
  if (policy_.options().progress) policy_.options().progress(what, std::min(share, 1.0));
}

void Verifier::confirm_load(const std::filesystem::path& result, Report& report) const {
  const Options& options = policy_.options();
  std::string why;
  if (!loads(runtime_, original_, &why)) {
    report.warnings.push_back(
        concat({"ONNX Runtime does not load the original, so the result was not tried: ", why}));
    return;
  }
  if (loads(runtime_, result, &why)) {
    report.verified = concat({"loads in ONNX Runtime ", runtime_->version()});
    return;
  }
  // Other targets run what ONNX Runtime on this machine has no kernel for.
  const bool is_promise = options.profile.substr(0, 3) == "ort" && options.profile != "ort-cuda";
  if (is_promise)
    raise("convert", "nothing was written: ONNX Runtime does not load the result: ", why);
  report.warnings.push_back(concat(
      {"ONNX Runtime ", runtime_->version(), " on this machine does not load the result: ", why}));
}

double Verifier::accepted(const Report& report) const {
  const Options& options = policy_.options();
  if (options.tolerance) return *options.tolerance;
  const double by_type = policy_.low() == Element::kFloat16 ? kAcceptedHalf : kAcceptedBFloat;
  return std::max(by_type, kFloorFactor * largest_error(report.weight_floor));
}

void Verifier::confirm(const std::filesystem::path& result, const Evidence& evidence,
                       Report& report) {
  const Options& options = policy_.options();
  const bool compares = options.verify == "compare" || options.tolerance.has_value();
  if (options.verify == "none" && !compares) return;
  if (runtime_) {
    confirm_load(result, report);
  } else {
    report.verified = "types of all scopes; ONNX Runtime was not found";
  }
  // The judge may be here for calibration alone.
  if (!judge_ || (options.verify != "run" && !compares)) return;
  confirm_run(result, evidence, report);
  if (compares) confirm_agreement(evidence, report);
}

void Verifier::confirm_run(const std::filesystem::path& result, const Evidence& evidence,
                           Report& report) const {
  const Options& options = policy_.options();
  report.errors = judge_->engine().rounds_every_value() || options.weights_only
                      ? judge_->errors_of(result)
                      : judge_->errors(policy_, evidence, Storage::kEmulated);
  for (const OutputError& error : report.errors) {
    if (!error.finite) {
      raise("convert", "nothing was written: output '", error.name,
            "' is not finite where the original's is; give --tolerance to search what must stay "
            "float32");
    }
  }
  for (const ValueId id : graph_.scope(0).outputs) {
    const Value& value = graph_.value(id);
    if (value.type.is_plain_tensor() && size_of(value.type.element) != 0) continue;
    report.warnings.push_back(concat({"output '", value.name, "' (", name_of(value.type),
                                      ") is compared with nothing: only tensors of numbers are"}));
  }
  report.verified += concat({report.verified.empty() ? "" : ", ", "runs in ",
                             judge_->engine().name(), " with every low value rounded on ",
                             options.calibration.empty() ? "made-up inputs" : "the given samples"});
}

void Verifier::confirm_agreement(const Evidence& evidence, Report& report) const {
  const Options& options = policy_.options();
  if (!options.weights_only)
    report.weight_floor = judge_->errors(policy_, evidence, Storage::kEmulatedWeights);
  const double limit = accepted(report);
  for (const OutputError& error : report.errors) {
    if (error.relative_to_range <= limit) continue;
    if (!error.same_shape) {
      raise(
          "convert", "nothing was written: output '", error.name,
          "' has another shape than the original's on a sample: how much it holds is decided by "
          "values that rounding moves; exclude what decides it (--exclude), or verify with 'run'");
    }
    raise("convert", "nothing was written: output '", error.name, "' differs by ",
          error.relative_to_range, " of its range, more than ", limit,
          options.tolerance ? "; the search found no way within its budget (run it again to go on)"
                            : "; give --tolerance to search what must stay float32");
  }
  report.verified += concat({", agrees within ", std::to_string(limit), " of the outputs' range"});
}

}  // namespace mezzo::convert
