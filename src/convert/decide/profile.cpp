#include "convert/decide/profile.h"

#include <algorithm>
#include <array>

#include "convert/graph/graph.h"
#include "convert/onnx/concat.h"
#include "convert/standard/onnxruntime_kernels.h"

namespace mezzo::convert {
namespace {

constexpr std::array kTensorRtGaps{
    Gap{"NonZero", 0, "", "", "TensorRT computes it in float32"},
    Gap{"Det", 0, "", "", "TensorRT has no such layer"},
};

constexpr std::array kOpenVinoGaps{
    Gap{"Range", 0, "", "", "OpenVINO keeps shape computations in float32"},
};

// One row a profile: nothing else asks for one by its name.
constexpr std::array<Profile, 7> kProfiles{{
    {.name = "portable", .avoids_joins = true, .avoids_gaps = true},
    {.name = "spec"},
    {.name = "ort",
     .computes_bfloat16 = false,
     .must_load = true,
     .avoids_joins = true,
     .avoids_gaps = true},
    {.name = "ort-cpu",
     .computes_half = false,
     .computes_bfloat16 = false,
     .weights_only = true,
     .must_load = true,
     .avoids_joins = true},
    {.name = "ort-cuda", .avoids_joins = true, .avoids_gaps = true},
    {.name = "trt", .avoids_joins = true, .gaps = kTensorRtGaps},
    {.name = "openvino", .avoids_joins = true, .gaps = kOpenVinoGaps},
}};

std::size_t variable_of(const Schema& schema, std::string_view name) {
  const auto found = std::ranges::find(schema.variables, name, &Variable::name);
  return static_cast<std::size_t>(found - schema.variables.begin());
}

Slot slot_of(const Schema& schema, const std::vector<Slot>& variables, std::string_view name) {
  const std::size_t variable = variable_of(schema, name);
  return variable < variables.size() ? variables[variable] : kNoSlot;
}

bool has_row(std::span<const KernelGap> gaps, std::string_view variable, std::string_view with) {
  return std::ranges::any_of(
      gaps, [&](const KernelGap& gap) { return gap.variable == variable && gap.with == with; });
}

std::string without_kernel(const Node& node, const KernelGap& gap) {
  if (!gap.is_valid)
    return concat({node.op, ": checkers accept no 16-bit ", gap.variable, " there"});
  const std::string when =
      gap.attribute.empty() ? "" : concat({" with ", gap.attribute, "=", gap.value});
  return concat({"ONNX Runtime has no 16-bit ", node.op, when});
}

}  // namespace

const Profile* find_profile(std::string_view name) {
  const auto* found = std::ranges::find(kProfiles, name, &Profile::name);
  return found == kProfiles.end() ? nullptr : found;
}

std::string profile_names() {
  std::string names;
  for (const Profile& profile : kProfiles)
    names += concat({names.empty() ? "" : ", ", profile.name});
  return names;
}

bool profile_allows(const Profile& profile, const Graph& graph, const Node& node, Element low,
                    std::string* why) {
  const bool computes =
      low == Element::kFloat16 ? profile.computes_half : profile.computes_bfloat16;
  if (!computes) {
    *why = concat({"profile ", profile.name, ": no arithmetic in ", name_of(low)});
    return false;
  }
  for (const Gap& gap : profile.gaps) {
    if (gap.op != node.qualified_name() || (gap.before != 0 && node.schema->since >= gap.before))
      continue;
    if (gap.attribute.empty() || graph.attribute_text(node, gap.attribute) != gap.unless) {
      *why = concat({"profile ", profile.name, ": ", gap.why});
      return false;
    }
  }
  return true;
}

void keep_to_kernels(const Profile& profile, const Graph& graph, const Node& node,
                     const std::vector<Slot>& variables, Slots& slots) {
  const std::span gaps = kernel_gaps(node.qualified_name(), node.schema->since);
  for (const KernelGap& gap : gaps) {
    const Slot slot = slot_of(*node.schema, variables, gap.variable);
    if (slot == kNoSlot) continue;
    if (!gap.with.empty()) {
      const Slot other = slot_of(*node.schema, variables, gap.with);
      if (other != kNoSlot && has_row(gaps, gap.with, gap.variable)) slots.unite(slot, other);
      continue;
    }
    if (!gap.attribute.empty() && graph.attribute_text(node, gap.attribute) != gap.value) continue;
    if (profile.avoids_gaps || !gap.is_valid)
      slots.pin(slot, Label::kHigh, Level::kValidity, without_kernel(node, gap));
  }
}

void follow_kernels(const Node& node, const std::vector<Slot>& variables, Slots& slots) {
  for (const KernelGap& gap : kernel_gaps(node.qualified_name(), node.schema->since)) {
    const Slot slot = slot_of(*node.schema, variables, gap.variable);
    if (gap.with.empty() || slot == kNoSlot) continue;
    const Pin* other = slots.pin_of(slot_of(*node.schema, variables, gap.with));
    if (other != nullptr && other->label == Label::kLow) continue;
    slots.pin(slot, Label::kHigh, Level::kValidity,
              concat({node.op, ": ", gap.variable, " is 16 bits wide with ", gap.with, " alone"}));
  }
}

}  // namespace mezzo::convert
