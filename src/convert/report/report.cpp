// The report of a conversion as text and JSON.
#include <algorithm>
#include <map>
#include <sstream>

#include "convert/onnx/concat.h"
#include "convert/report/plan.h"
#include "convert/report/report.h"
#include "mezzo/convert.h"

namespace mezzo::convert {
namespace {

std::string size_text(std::int64_t bytes) {
  std::ostringstream text;
  text.precision(3);
  if (bytes < 10'000) {
    text << bytes << " bytes";
  } else if (bytes < 10'000'000) {
    text << static_cast<double>(bytes) / 1e3 << " kB";
  } else {
    text << static_cast<double>(bytes) / 1e6 << " MB";
  }
  return text.str();
}

// A reason without the names and numbers that make each one different.
std::string kind_of(const std::string& why) {
  std::string kind;
  std::istringstream words(why);
  for (std::string word; words >> word;) {
    if (std::string_view("'-0123456789").find(word[0]) == std::string_view::npos)
      kind += word + ' ';
  }
  return kind;
}

// The commonest reasons for float32, with an example each.
void write_reasons(std::ostringstream& text, const Report& report) {
  struct Group {
    std::size_t count = 0;
    std::string example;
    bool has_others = false;
  };
  std::map<std::string, Group> groups;
  for (const Decision& decision : report.decisions) {
    if (decision.low || decision.rule == "cut") continue;
    const std::string why =
        decision.rule == "range"
            ? decision.why
            : concat({decision.pin.empty() ? decision.rule : decision.pin, ": ", decision.why});
    Group& group = groups[kind_of(why)];
    if (group.count++ == 0) group.example = why;
    group.has_others = group.has_others || group.example != why;
  }
  std::vector<std::pair<std::string, Group>> sorted(groups.begin(), groups.end());
  std::ranges::stable_sort(
      sorted, [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  constexpr std::size_t kShown = 8;
  if (!sorted.empty()) text << "stays float32:\n";
  for (std::size_t i = 0; i < std::min(kShown, sorted.size()); ++i) {
    const Group& group = sorted[i].second;
    text << "  " << group.count << " x " << group.example
         << (group.has_others ? ", and the like" : "") << '\n';
  }
  if (sorted.size() > kShown)
    text << "  and " << sorted.size() - kShown << " more reasons, in the report as JSON\n";
}

void write_adjusted(std::ostringstream& text, const std::vector<AdjustedConstant>& adjusted) {
  constexpr std::size_t kShown = 4;
  const auto digits = text.precision(6);
  for (std::size_t i = 0; i < std::min(kShown, adjusted.size()); ++i) {
    const AdjustedConstant& each = adjusted[i];
    text << each.change << ": " << each.values << (each.values == 1 ? " value" : " values")
         << " of '" << each.constant << "', " << each.from << " to " << each.to << '\n';
  }
  if (adjusted.size() > kShown)
    text << "  and " << adjusted.size() - kShown << " more constants, in the report as JSON\n";
  text.precision(digits);
}

void write_batch_norms(std::ostringstream& text, const std::vector<BatchNormFold>& norms) {
  const auto folded =
      std::ranges::count_if(norms, [](const BatchNormFold& norm) { return !norm.into.empty(); });
  if (norms.empty()) return;
  text << folded << " of " << norms.size() << " batch normalizations were folded";
  const auto kept =
      std::ranges::find_if(norms, [](const BatchNormFold& norm) { return norm.into.empty(); });
  if (kept != norms.end()) text << "; " << kept->node << " was not: " << kept->why;
  text << '\n';
}

void write_errors(std::ostringstream& text, const Report& report) {
  for (std::size_t i = 0; i < report.errors.size(); ++i) {
    const OutputError& error = report.errors[i];
    if (!error.same_shape) {
      text << "output '" << error.name << "': another shape\n";
      continue;
    }
    text << "output '" << error.name << "': error " << error.relative_to_range
         << " of its range, cosine " << error.cosine << ", SQNR " << error.sqnr_db << " dB";
    if (i < report.weight_floor.size()) {
      text << " (rounding the weights alone: " << report.weight_floor[i].relative_to_range << ")";
    }
    text << (error.finite ? "" : ", NOT FINITE") << '\n';
  }
}

// The nodes that low costs most.
void write_local_errors(std::ostringstream& text, const Report& report) {
  constexpr std::size_t kShown = 3;
  const std::size_t count = std::min(kShown, report.local_errors.size());
  for (std::size_t i = 0; i < count; ++i) {
    const LocalError& error = report.local_errors[i];
    text << (i == 0 ? "largest errors of single nodes: " : "; ") << error.node << ": "
         << text_of(error) << (i + 1 == count ? "\n" : "");
  }
}

Json to_json_list(const std::vector<OutputError>& all) {
  return json_list(all, [](const OutputError& error) {
    return Json{{"output", error.name},
                {"max_absolute", error.max_absolute},
                {"relative_to_range", error.relative_to_range},
                {"sqnr_db", error.sqnr_db},
                {"cosine", error.cosine},
                {"top1_agreement", error.top1_agreement},
                {"kl_divergence", error.kl_divergence},
                {"finite", error.finite},
                {"same_shape", error.same_shape}};
  });
}

Json to_json_list(const std::vector<AdjustedConstant>& all) {
  return json_list(all, [](const AdjustedConstant& each) {
    return Json{{"constant", each.constant}, {"scope", each.scope}, {"change", each.change},
                {"values", each.values},     {"from", each.from},   {"to", each.to}};
  });
}

Json to_json_list(const std::vector<CastReport>& all) {
  return json_list(all, [](const CastReport& cast) {
    return Json{{"value", cast.value},
                {"scope", cast.scope},
                {"from", cast.from},
                {"to", cast.to},
                {"reason", cast.reason}};
  });
}

Json to_json_list(const std::vector<BatchNormFold>& all) {
  return json_list(all, [](const BatchNormFold& norm) {
    return Json{{"node", norm.node}, {"into", norm.into}, {"why", norm.why}};
  });
}

Json to_json_list(const std::vector<LocalError>& all) {
  return json_list(all, [](const LocalError& error) {
    return Json{{"key", error.key},
                {"node", error.node},
                {"sqnr_db", error.sqnr_db},
                {"relative_to_range", error.relative_to_range},
                {"finite", error.finite}};
  });
}

}  // namespace

std::string Report::to_text() const {
  std::ostringstream text;
  text.precision(4);
  text << input << " -> " << output << " (" << target_dtype << ", profile " << profile << ")\n";
  if (unchanged) text << "nothing to convert: the output is the input\n";
  text << low_nodes << " of " << float_nodes << " float nodes are " << target_dtype << ", "
       << heavy_low_nodes << " of " << heavy_nodes << " heavy ones; " << casts.size() << " casts\n";
  text << low_weights << " of " << weights << " weights are stored in " << target_dtype << "; "
       << size_text(bytes_before) << " -> " << size_text(bytes_after) << '\n';
  if (duplicated_weights != 0) text << duplicated_weights << " weights are stored in both types\n";
  if (flushed_values != 0) text << flushed_values << " tiny values of weights became zero\n";
  write_batch_norms(text, batch_norms);
  write_adjusted(text, adjusted);
  if (opset_after != opset_before)
    text << "opset " << opset_before << " -> " << opset_after << '\n';
  if (better_opset != 0) {
    text << "opset " << better_opset << " (Options::opset 'auto') would convert "
         << low_in_better_opset << " more type variables\n";
  }
  write_reasons(text, *this);
  write_errors(text, *this);
  write_local_errors(text, *this);
  // One question that was answered with yes is no search.
  if (search_attempts > 1 || kept_by_search != 0 || !search_ended_by.empty()) {
    text << "search: " << kept_by_search << " nodes kept float32 after " << search_attempts
         << " attempts\n";
  }
  if (!search_ended_by.empty()) {
    text << "the search ended by its budget (" << search_ended_by
         << "): fewer nodes may do; the same command goes on where it stopped\n";
  }
  if (!verified.empty()) text << "verified: " << verified << '\n';
  for (const std::string& warning : warnings) text << "warning: " << warning << '\n';
  return text.str();
}

std::string Report::to_json() const {
  return json_text(Json{{"input", input},
                        {"output", output},
                        {"target_dtype", target_dtype},
                        {"profile", profile},
                        {"unchanged", unchanged},
                        {"nodes", nodes},
                        {"float_nodes", float_nodes},
                        {"low_nodes", low_nodes},
                        {"heavy_nodes", heavy_nodes},
                        {"heavy_low_nodes", heavy_low_nodes},
                        {"bytes_before", bytes_before},
                        {"bytes_after", bytes_after},
                        {"weights", weights},
                        {"low_weights", low_weights},
                        {"duplicated_weights", duplicated_weights},
                        {"flushed_values", flushed_values},
                        {"infinite_values", infinite_values},
                        {"adjusted", to_json_list(adjusted)},
                        {"batch_norms", to_json_list(batch_norms)},
                        {"opset_before", opset_before},
                        {"opset_after", opset_after},
                        {"better_opset", better_opset},
                        {"low_in_better_opset", low_in_better_opset},
                        {"search_attempts", search_attempts},
                        {"kept_by_search", kept_by_search},
                        {"search_ended_by", search_ended_by},
                        {"verified", verified},
                        {"warnings", warnings},
                        {"errors", to_json_list(errors)},
                        {"weight_floor", to_json_list(weight_floor)},
                        {"median_errors", to_json_list(median_errors)},
                        {"q90_errors", to_json_list(q90_errors)},
                        {"local_errors", to_json_list(local_errors)},
                        {"casts", to_json_list(casts)},
                        {"decisions", to_json_list(decisions)}});
}

std::string text_of(const LocalError& error) {
  if (!error.finite) return "not finite";
  std::ostringstream text;
  text.precision(3);
  text << "SQNR " << error.sqnr_db << " dB, " << error.relative_to_range << " of its range";
  return text.str();
}

}  // namespace mezzo::convert
