#include "convert/decide/profile.h"

#include <algorithm>
#include <array>

#include "convert/graph/graph.h"
#include "convert/onnx/concat.h"

namespace mezzo::convert {
namespace {

// Found with ONNX Runtime 1.31.1 on the models of libonnx-testdata; docs/convert.md has the
// command.
constexpr std::array kOrtGaps{
    Gap{"EyeLike", 0, "", "", "ONNX Runtime has no kernel for it and casts nothing there"},
    Gap{"ScatterElements", 0, "reduction", "none", "ONNX Runtime reduces no 16-bit values there"},
    Gap{"ScatterND", 0, "reduction", "none", "ONNX Runtime reduces no 16-bit values there"},
};

constexpr std::array kTensorRtGaps{
    Gap{"NonZero", 0, "", "", "TensorRT computes it in float32"},
    Gap{"Det", 0, "", "", "TensorRT has no such layer"},
};

constexpr std::array kOpenVinoGaps{
    Gap{"Range", 0, "", "", "OpenVINO keeps shape computations in float32"},
};

// One row a profile: nothing else asks for one by its name.
constexpr std::array<Profile, 7> kProfiles{{
    {.name = "portable", .avoids_joins = true},
    {.name = "spec"},
    {.name = "ort",
     .computes_bfloat16 = false,
     .must_load = true,
     .avoids_joins = true,
     .gaps = kOrtGaps},
    {.name = "ort-cpu",
     .computes_half = false,
     .computes_bfloat16 = false,
     .weights_only = true,
     .must_load = true,
     .avoids_joins = true},
    {.name = "ort-cuda", .avoids_joins = true, .gaps = kOrtGaps},
    {.name = "trt", .avoids_joins = true, .gaps = kTensorRtGaps},
    {.name = "openvino", .avoids_joins = true, .gaps = kOpenVinoGaps},
}};

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

}  // namespace mezzo::convert
