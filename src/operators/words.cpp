// The words in which classes and systems are written and explained.
#include <algorithm>

#include "operators/operators.h"

namespace mezzo {
namespace {

constexpr std::array<std::string_view, 6> kClassNames{"low",         "float",  "promote",
                                                      "conditional", "banned", "neutral"};
constexpr std::array<std::string_view, kSystemCount> kSystemNames{"apex", "mxnet", "cuda", "cpu"};
constexpr std::array<std::string_view, kSystemCount> kSystemTitles{
    "Apex", "MXNet", "LibTorch for CUDA", "LibTorch for CPU"};

void append(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

}  // namespace

std::string_view name_of(CastClass cast_class) noexcept {
  return kClassNames[static_cast<std::size_t>(cast_class)];
}

std::optional<CastClass> parse_cast_class(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kClassNames, name);
  if (found == kClassNames.end()) return std::nullopt;
  return static_cast<CastClass>(found - kClassNames.begin());
}

std::string_view name_of(System system) noexcept {
  return kSystemNames[static_cast<std::size_t>(system)];
}

std::optional<System> parse_system(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kSystemNames, name);
  if (found == kSystemNames.end()) return std::nullopt;
  return static_cast<System>(found - kSystemNames.begin());
}

std::string opinions(const Operator& op, DType low) {
  std::string same;
  std::string others;
  for (const System system : kSystems) {
    const std::optional<CastClass>& says = op.listed_by(system);
    if (!says) continue;
    const std::string_view title = kSystemTitles[static_cast<std::size_t>(system)];
    if (*says == op.class_for(low)) {
      append(same, title);
    } else {
      append(others, title);
      (others += ": ") += name_of(*says);
    }
  }
  std::string text;
  if (!same.empty()) text = "as in " + same;
  if (!others.empty()) text += (text.empty() ? "unlike " : "; unlike ") + others;
  return text;
}

}  // namespace mezzo
