#include "convert/judge/verify.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "convert/decide/profile.h"
#include "convert/engine/evaluate.h"
#include "convert/judge/check_command.h"
#include "convert/judge/keep_search.h"
#include "convert/judge/metrics.h"
#include "convert/judge/search.h"
#include "convert/judge/small_values.h"
#include "convert/onnx/concat.h"
#include "convert/rewrite/candidate.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

/// The error that a comparison accepts without a tolerance, relative to an output's range.
constexpr double kAcceptedHalf = 0.02;
constexpr double kAcceptedBFloat = 0.15;
/// Or so many times what rounding the weights alone costs, unless that is too much by itself.
constexpr double kFloorFactor = 4.0;
constexpr double kMostOfWeights = 0.05;

// The remedy for a result that is not accurate.
std::string_view remedy(const Evidence& evidence) {
  return evidence.plan == nullptr ? "give Options::tolerance to search what must stay float32"
                                  : "make a plan for this model, with Options::tolerance";
}

bool costs_too_much(const std::vector<OutputError>& floor) {
  return largest_error(floor) > kMostOfWeights;
}

// The cost of the weights, where it is too much: "; rounding the weights alone ...", or nothing.
std::string blame_of(const std::vector<OutputError>& floor) {
  if (!costs_too_much(floor)) return {};
  std::ostringstream text;
  text << "; rounding the weights alone costs " << largest_error(floor)
       << " of an output's range, and more than " << kMostOfWeights << " excuses no error";
  return text.str();
}

}  // namespace

Verifier::Verifier(std::shared_ptr<ModelFile> original, const OpsetChoice& opset,
                   const Graph& graph, const ConvertPolicy& policy,
                   const std::filesystem::path& target)
    : original_(std::move(original)),
      opset_(opset),
      graph_(graph),
      policy_(policy),
      target_(target),
      workshop_(target) {
  const Options& options = policy.options();
  const bool compares = options.verify == "compare" || options.tolerance.has_value();
  const bool needs = options.verify == "run" || compares || !options.calibration.empty();
  if (options.verify == "none" && !needs) return;
  runtime_ = OrtRuntime::open(options.onnxruntime, &why_not_);
  if (!runtime_ && !options.onnxruntime.empty()) {
    notes_.push_back(concat({"ONNX Runtime is not at '", options.onnxruntime.string(),
                             "', where it was named: ", why_not_}));
  }
  if (needs) open_judge();
}

const ValueRanges* Verifier::ranges(Report& report) {
  if (policy_.options().calibration.empty()) return nullptr;
  tell("measuring ranges", 0);
  ranges_ = judge_->ranges(graph_);
  let_small_go_low(report);
  return &*ranges_;
}

// Networks that were never trained, or branches that training switched off, have values that fade
// from layer to layer. Digits lost there are seen nowhere, unless something makes them large again.
void Verifier::let_small_go_low(Report& report) {
  const Options& options = policy_.options();
  ValueRanges rest = without_small(*ranges_, policy_.low());
  if (rest.size() == ranges_->size()) return;
  Constants constants(graph_, policy_.low());
  const auto products = [&](const ValueRanges& ranges) {
    return low_products(graph_, policy_, decide(graph_, policy_, constants, {.ranges = &ranges}));
  };
  const std::size_t kept = products(*ranges_);
  const std::size_t wanted = products(rest);
  if (wanted <= kept) return;
  tell("comparing", 0);
  const std::vector<OutputError> errors =
      worst_of(judge_->errors(policy_, {.ranges = &rest}, judged()));
  const double accepted = std::min(accepted_of_type(), options.tolerance.value_or(HUGE_VAL));
  if (!hardly_differ(errors, accepted)) {
    report.warnings.push_back(concat(
        {std::to_string(wanted - kept),
         " products stay float32 for values below 4 times the smallest normal value of ",
         options.target_dtype,
         " on the calibration data. Activations of weights that were not trained vanish like this; "
         "if these are such, calibrate again once they are trained: products whose values are "
         "larger then go low"}));
    return;
  }
  std::ostringstream text;
  text.precision(2);
  text << ranges_->size() - rest.size()
       << " values are on the calibration data below 4 times the smallest normal value of "
       << options.target_dtype << ", and go low all the same: the outputs differ by "
       << largest_error(errors) << " of their range";
  report.warnings.push_back(text.str());
  ranges_ = std::move(rest);
}

void Verifier::open_judge() {
  const Options& options = policy_.options();
  const std::vector<Sample> samples = samples_for(graph_, options.calibration);
  const Preparation preparation{opset_.opset, options.fold_batch_norm};
  std::string why;
  if (const OperatorLibrary* operators = open_operators(options.evaluator, &why)) {
    try {
      judge_ = std::make_unique<Judge>(std::make_shared<Evaluator>(*operators), original_,
                                       preparation, samples, workshop_);
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
                            "Options::verify 'run' and 'compare', Options::calibration and "
                            "Options::tolerance need a judge. The built-in evaluator: ",
                            why,
                            "; name its library with Options::evaluator. ONNX Runtime: ", why_not_,
                            "; name its library or folder with Options::onnxruntime");
  }
  const std::string refusal = refusal_of(runtime_, original_->path());
  if (!refusal.empty())
    raise("convert", "ONNX Runtime, the only judge here, does not load the original: ", refusal);
  judge_ = std::make_unique<Judge>(std::make_shared<OrtEngine>(runtime_), original_, preparation,
                                   samples, workshop_);
}

const std::set<std::string>* Verifier::kept(const Evidence& evidence, Report& report) {
  const Options& options = policy_.options();
  const bool shows = judge_ != nullptr && !options.calibration.empty();
  limit_ = options.tolerance;
  if (shows && evidence.plan == nullptr && !limit_ && options.verify == "compare")
    limit_ = limit_if_missed(evidence);
  const bool searches = evidence.plan == nullptr && (limit_ || !options.check.empty());
  if (!searches && !shows) return nullptr;
  Constants constants(graph_, policy_.low());
  const Decisions decisions = decide(graph_, policy_, constants, evidence);
  std::vector<LocalError> errors;
  if (judge_) {
    tell("measuring single nodes", 0);
    errors = judge_->local_errors(graph_, decisions, policy_);
  }
  // Made-up inputs give an order to search in, and no numbers to rely on.
  if (shows) report.local_errors = errors;
  return searches ? search(evidence, decisions, errors, report) : nullptr;
}

std::optional<double> Verifier::limit_if_missed(const Evidence& evidence) {
  tell("comparing", 0);
  const std::vector<OutputError> floor = floor_of(evidence);
  const double limit = accepted(floor);
  const double error = largest_error(worst_of(judge_->errors(policy_, evidence, judged())));
  if (error <= limit) return std::nullopt;
  blame_ = blame_of(floor);
  return limit;
}

const std::set<std::string>* Verifier::search(const Evidence& evidence, const Decisions& decisions,
                                              const std::vector<LocalError>& errors,
                                              Report& report) {
  const Options& options = policy_.options();
  const std::vector<std::string> candidates = candidates_of(graph_, policy_, decisions);
  std::string judge = judge_ ? judge_->engine().name() : "";
  // A command is asked only about what is within the tolerance.
  if (!options.check.empty())
    judge += concat({"; ", std::to_string(limit_.value_or(0)), "; ", options.check});
  SearchJournal journal(target_.string() + ".search",
                        purpose_of_search(judge, original_->path(), policy_, decisions));
  SearchQuestions questions(journal, {options.attempts, options.time_limit}, limit_.value_or(0),
                            [&](const NodeSet& set) {
                              tell("searching", questions.share());
                              return error_of(evidence, set);
                            });
  const auto is_hopeless = [&] {
    return questions.may_go_on() && !questions.fits({}) && questions.may_go_on() &&
           !questions.fits({candidates.begin(), candidates.end()});
  };
  if (!options.check.empty() && is_hopeless()) {
    // The user may fix the command, so drop cached answers.
    journal.close();
    if (refusal_.empty()) raise_unfound({});  // it was not even asked
    raise("convert", "nothing was written: the command '", options.check,
          "' refuses even the model in which every node stays float32 that may: ", refusal_);
  }
  if (errors.empty()) {
    search_by_borders(candidates, questions);
  } else {
    const RankedNodes ranked = ranked_by(errors, candidates);
    search_by_rank(ranked.nodes, ranked.suspects, questions);
  }
  if (questions.ended_by().empty()) journal.close();
  if (!questions.smallest()) raise_unfound(questions.ended_by());
  kept_ = questions.smallest();
  report.search_attempts = questions.attempts();
  report.search_ended_by = questions.ended_by();
  report.kept_by_search = static_cast<std::int64_t>(kept_->size());
  if (!blame_.empty()) {
    report.warnings.push_back(
        concat({"nodes that the search keeps float32: ", std::to_string(kept_->size()), blame_}));
  }
  if (questions.is_uneven()) {
    report.warnings.emplace_back(
        "in the search keeping more nodes float32 made a result worse: errors cancel out, and "
        "another set of nodes may be smaller");
  }
  return &*kept_;
}

double Verifier::error_of(const Evidence& evidence, const NodeSet& kept) {
  const Options& options = policy_.options();
  Evidence with = evidence;
  with.kept = &kept;
  double error = 0;
  if (limit_) error = largest_error(worst_of(judge_->errors(policy_, with, judged())));
  if (options.check.empty() || error > limit_.value_or(0)) return error;
  // A folder of its own: no data file of one candidate is left for another one.
  const std::filesystem::path folder = workshop_.file("candidate");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::filesystem::path model = folder / target_.filename();
  write_candidate(original_, opset_, policy_, with, storage_of(options), model);
  CommandVerdict verdict = ask_command(options.check, model);
  if (verdict.accepts) {
    accepted_ = kept;
    return error;
  }
  refusal_ = std::move(verdict.why);
  return HUGE_VAL;
}

void Verifier::raise_unfound(std::string_view ended_by) const {
  const std::string refusal = refusal_.empty() ? "" : concat({"; the command, last: ", refusal_});
  if (ended_by.empty()) {
    raise("convert",
          "nothing was written: the search found no nodes that, kept float32, bring the "
          "error down to ",
          limit_.value_or(0), blame_, refusal);
  }
  raise("convert", "nothing was written: the search found no way within its budget (", ended_by,
        "); give more (Options::attempts, Options::time_limit), or convert to the same target "
        "again to go on",
        blame_, refusal);
}

// Weights that are stored low and cast back are what every engine computes with.
Storage Verifier::judged() const {
  return policy_.options().weights_only ? Storage::kWeightsOnly : Storage::kEmulated;
}

void Verifier::tell(std::string_view what, double share) const {
  if (policy_.options().progress) policy_.options().progress(what, std::min(share, 1.0));
}

void Verifier::confirm_load(const std::filesystem::path& result, Report& report) const {
  std::string why = refusal_of(runtime_, original_->path());
  if (!why.empty()) {
    report.warnings.push_back(
        concat({"ONNX Runtime does not load the original, so the result was not tried: ", why}));
    return;
  }
  why = refusal_of(runtime_, result);
  if (why.empty()) {
    report.verified = concat({"loads in ONNX Runtime ", runtime_->version()});
    return;
  }
  // Other targets run what ONNX Runtime on this machine has no kernel for.
  if (policy_.profile().must_load)
    raise("convert", "nothing was written: ONNX Runtime does not load the result: ", why);
  report.warnings.push_back(concat(
      {"ONNX Runtime ", runtime_->version(), " on this machine does not load the result: ", why}));
}

std::vector<OutputError> Verifier::floor_of(const Evidence& evidence) const {
  if (policy_.options().weights_only) return {};
  return worst_of(judge_->errors(policy_, evidence, Storage::kEmulatedWeights));
}

double Verifier::accepted_of_type() const {
  return policy_.low() == Element::kFloat16 ? kAcceptedHalf : kAcceptedBFloat;
}

double Verifier::accepted(const std::vector<OutputError>& floor) const {
  const double of_weights = costs_too_much(floor) ? 0 : kFloorFactor * largest_error(floor);
  return std::max(accepted_of_type(), of_weights);
}

void Verifier::confirm(const std::filesystem::path& result, const Evidence& evidence,
                       Report& report) {
  confirm_by_engines(result, evidence, report);
  confirm_by_command(result, report);
}

void Verifier::confirm_original(const std::filesystem::path& copy, Report& report) {
  confirm_by_command(copy, report);
}

void Verifier::confirm_by_command(const std::filesystem::path& result, Report& report) const {
  const std::string& command = policy_.options().check;
  if (command.empty()) return;
  CommandVerdict verdict;
  verdict.accepts = accepted_ && accepted_ == kept_;
  if (!verdict.accepts) verdict = ask_command(command, result);
  if (!verdict.accepts) {
    raise("convert", "nothing was written: the command '", command,
          "' refuses the result: ", verdict.why);
  }
  report.verified += concat({report.verified.empty() ? "" : ", ", "accepted by the command"});
}

void Verifier::confirm_by_engines(const std::filesystem::path& result, const Evidence& evidence,
                                  Report& report) const {
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
  const SampleErrors errors = judge_->engine().rounds_every_value() || options.weights_only
                                  ? judge_->errors_of(result)
                                  : judge_->errors(policy_, evidence, Storage::kEmulated);
  report.errors = worst_of(errors);
  if (errors.size() > 1) {
    report.median_errors = quantile_of(errors, 0.5);
    report.q90_errors = quantile_of(errors, 0.9);
  }
  for (const OutputError& error : report.errors) {
    if (!error.finite) {
      raise("convert", "nothing was written: output '", error.name,
            "' is not finite where the original's is; ", remedy(evidence));
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
  report.weight_floor = floor_of(evidence);
  const double limit = limit_.value_or(accepted(report.weight_floor));
  for (const OutputError& error : report.errors) {
    if (error.relative_to_range <= limit) continue;
    if (!error.same_shape) {
      raise("convert", "nothing was written: output '", error.name,
            "' has another shape than the original's on a sample: how much it holds is decided by "
            "values that rounding moves; exclude what decides it (Options::excluded_names), or "
            "verify with 'run'");
    }
    raise("convert", "nothing was written: output '", error.name, "' differs by ",
          error.relative_to_range, " of its range, more than ", limit,
          limit_ ? "" : blame_of(report.weight_floor),
          limit_ && evidence.plan == nullptr ? " (the search judged a model that stands in for it)"
                                             : concat({"; ", remedy(evidence)}));
  }
  report.verified += concat({", agrees within ", std::to_string(limit), " of the outputs' range"});
}

}  // namespace mezzo::convert
