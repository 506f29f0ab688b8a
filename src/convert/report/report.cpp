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

void write_outputs(JsonWriter& json, const std::vector<OutputError>& errors) {
  json.objects(errors, [&](const OutputError& error) {
    json.key("output").value(error.name);
    json.key("max_absolute").value(error.max_absolute);
    json.key("relative_to_range").value(error.relative_to_range);
    json.key("sqnr_db").value(error.sqnr_db);
    json.key("cosine").value(error.cosine);
    json.key("top1_agreement").value(error.top1_agreement);
    json.key("kl_divergence").value(error.kl_divergence);
    json.key("finite").value(error.finite);
    json.key("same_shape").value(error.same_shape);
  });
}

void write_adjusted(JsonWriter& json, const std::vector<AdjustedConstant>& adjusted) {
  json.objects(adjusted, [&](const AdjustedConstant& each) {
    json.key("constant").value(each.constant);
    json.key("scope").value(each.scope);
    json.key("change").value(each.change);
    json.key("values").value(each.values);
    json.key("from").value(each.from);
    json.key("to").value(each.to);
  });
}

void write_casts(JsonWriter& json, const std::vector<CastReport>& casts) {
  json.objects(casts, [&](const CastReport& cast) {
    json.key("value").value(cast.value);
    json.key("scope").value(cast.scope);
    json.key("from").value(cast.from);
    json.key("to").value(cast.to);
    json.key("reason").value(cast.reason);
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
  JsonWriter json;
  json.open_object();
  json.key("input").value(input);
  json.key("output").value(output);
  json.key("target_dtype").value(target_dtype);
  json.key("profile").value(profile);
  json.key("unchanged").value(unchanged);
  json.key("nodes").value(nodes);
  json.key("float_nodes").value(float_nodes);
  json.key("low_nodes").value(low_nodes);
  json.key("heavy_nodes").value(heavy_nodes);
  json.key("heavy_low_nodes").value(heavy_low_nodes);
  json.key("bytes_before").value(bytes_before);
  json.key("bytes_after").value(bytes_after);
  json.key("weights").value(weights);
  json.key("low_weights").value(low_weights);
  json.key("duplicated_weights").value(duplicated_weights);
  json.key("flushed_values").value(flushed_values);
  json.key("infinite_values").value(infinite_values);
  json.key("adjusted");
  write_adjusted(json, adjusted);
  json.key("batch_norms").objects(batch_norms, [&](const BatchNormFold& norm) {
    json.key("node").value(norm.node);
    json.key("into").value(norm.into);
    json.key("why").value(norm.why);
  });
  json.key("opset_before").value(opset_before);
  json.key("opset_after").value(opset_after);
  json.key("better_opset").value(better_opset);
  json.key("low_in_better_opset").value(low_in_better_opset);
  json.key("search_attempts").value(search_attempts);
  json.key("kept_by_search").value(kept_by_search);
  json.key("search_ended_by").value(search_ended_by);
  json.key("verified").value(verified);
  json.key("warnings").texts(warnings);
  json.key("errors");
  write_outputs(json, errors);
  json.key("weight_floor");
  write_outputs(json, weight_floor);
  json.key("median_errors");
  write_outputs(json, median_errors);
  json.key("q90_errors");
  write_outputs(json, q90_errors);
  json.key("local_errors").objects(local_errors, [&](const LocalError& error) {
    json.key("key").value(error.key);
    json.key("node").value(error.node);
    json.key("sqnr_db").value(error.sqnr_db);
    json.key("relative_to_range").value(error.relative_to_range);
    json.key("finite").value(error.finite);
  });
  json.key("casts");
  write_casts(json, casts);
  json.key("decisions");
  write_decisions(json, decisions);
  json.close();
  return json.text();
}

std::string text_of(const LocalError& error) {
  if (!error.finite) return "not finite";
  std::ostringstream text;
  text.precision(3);
  text << "SQNR " << error.sqnr_db << " dB, " << error.relative_to_range << " of its range";
  return text.str();
}

}  // namespace mezzo::convert
