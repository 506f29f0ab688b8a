#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "insight/dry_findings.h"
#include "insight/explanation_json.h"
#include "operators/operators.h"

namespace mezzo::insight {

using detail::kTargets;
using detail::TargetType;

namespace {

using DryJson = nlohmann::ordered_json;

struct CostSum {
  double float_seconds = 0, low_seconds = 0;
  std::int64_t float_bytes = 0, low_bytes = 0;
};

CostSum sum_of(const std::vector<ClassCost>& costs) {
  CostSum sum;
  for (const ClassCost& each : costs) {
    sum.float_seconds += each.float_seconds;
    sum.low_seconds += each.low_seconds;
    sum.float_bytes += each.float_bytes;
    sum.low_bytes += each.low_bytes;
  }
  return sum;
}

std::string milliseconds(double seconds) {
  std::ostringstream text;
  text << std::setprecision(3) << seconds * 1e3 << " ms";
  return text.str();
}

std::string megabytes(std::int64_t bytes) {
  std::ostringstream text;
  text << std::setprecision(3) << static_cast<double>(bytes) / 1e6 << " MB";
  return text.str();
}

std::string sizes_of(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

std::string sentence_of(const OddSize& odd) {
  return odd.name + (odd.module.empty() ? "" : " (" + odd.module + ')') + " takes " +
         sizes_of(odd.sizes) + ", which matrix units like as " + sizes_of(odd.padded);
}

void print_costs(std::ostream& out, const std::vector<ClassCost>& costs) {
  const CostSum sum = sum_of(costs);
  out << "  measured here, default lists: " << milliseconds(sum.low_seconds)
      << " of operators a step"
      << " against " << milliseconds(sum.float_seconds) << " in float, " << megabytes(sum.low_bytes)
      << " of results against " << megabytes(sum.float_bytes) << '\n';
  for (const ClassCost& each : costs) {
    out << "    " << std::left << std::setw(9) << name_of(each.cast_class) << std::right
        << std::setw(4) << each.calls << " calls, " << milliseconds(each.low_seconds) << " against "
        << milliseconds(each.float_seconds) << '\n';
  }
}

DryJson costs_json(const std::vector<ClassCost>& costs) {
  DryJson all = DryJson::array();
  for (const ClassCost& each : costs) {
    all.push_back({{"class", name_of(each.cast_class)},
                   {"calls", each.calls},
                   {"float_seconds", each.float_seconds},
                   {"low_seconds", each.low_seconds},
                   {"float_bytes", each.float_bytes},
                   {"low_bytes", each.low_bytes}});
  }
  return all;
}

}  // namespace

std::string DryRun::to_text() const {
  std::ostringstream out;
  out << "Dry run of " << steps() << (steps() == 1 ? " step: " : " steps: ") << found_->calls.size()
      << " operator calls in float\n";
  for (const TargetType& target : kTargets) {
    const AdvisedPolicy advised = policy(target.type);
    out << target.name;
    if (!target.is_float8) {
      out << ": " << (advised.reasons().empty() ? "the default lists suit it" : "keep in float");
      if (target.type == at::kHalf)
        out << "; loss scales up to " << advised.loss_scale() << " suit these steps";
    } else {
      out << ": an estimate" << (advised.reasons().empty() ? ", there are no products" : "");
    }
    out << '\n';
    for (const PolicyReason& reason : advised.reasons())
      out << "  " << reason.name << ": " << reason.text << '\n';
    if (!target.is_float8) print_costs(out, costs(target.type));
  }
  for (const OddSize& odd : odd_sizes()) out << "sizes: " << sentence_of(odd) << '\n';
  return out.str();
}

std::string DryRun::to_json() const {
  DryJson json{{"steps", steps()}};
  json["policies"] = DryJson::object();
  for (const TargetType& target : kTargets) {
    const AdvisedPolicy advised = policy(target.type);
    DryJson entry{{"estimate", target.is_float8},
                  {"loss_scale", advised.loss_scale()},
                  {"toml", advised.toml()}};
    entry["reasons"] = DryJson::array();
    for (const PolicyReason& reason : advised.reasons()) {
      entry["reasons"].push_back(
          {{"name", reason.name}, {"class", name_of(reason.cast_class)}, {"text", reason.text}});
    }
    if (!target.is_float8) entry["costs"] = costs_json(costs(target.type));
    json["policies"][std::string(target.name)] = std::move(entry);
  }
  json["odd_sizes"] = DryJson::array();
  for (const OddSize& odd : odd_sizes()) {
    json["odd_sizes"].push_back(
        {{"name", odd.name}, {"module", odd.module}, {"sizes", odd.sizes}, {"padded", odd.padded}});
  }
  json["ranges"] = DryJson::array();
  for (const Operator& op : ranges()) json["ranges"].push_back(operator_json(op));
  return json.dump(2);
}

void DryRun::write(report::Sink& log) const {
  report::PrecisionAdvised event{.steps = steps(), .text = to_text()};
  for (const TargetType& target : kTargets) {
    const std::string type(target.name);
    const AdvisedPolicy advised = policy(target.type);
    event.policies.emplace(type, advised.toml());
    for (const PolicyReason& reason : advised.reasons()) {
      event.operators.push_back(
          {type, reason.name, std::string(name_of(reason.cast_class)), reason.text});
    }
    if (target.is_float8) continue;
    for (const ClassCost& cost : costs(target.type)) {
      event.costs.push_back({type, std::string(name_of(cost.cast_class)), cost.calls,
                             cost.float_seconds, cost.low_seconds, cost.float_bytes,
                             cost.low_bytes});
    }
  }
  for (const OddSize& odd : odd_sizes()) event.odd_sizes.push_back(sentence_of(odd));
  log.write(event);
}

}  // namespace mezzo::insight
