// What targets run in 16 bits, where that is less than the standard allows.
#include <algorithm>
#include <array>
#include <span>

#include "convert/decide/policy.h"
#include "convert/graph/graph.h"
#include "convert/onnx/concat.h"

namespace mezzo::convert {
namespace {

struct Gap {
  std::string_view op;
  int before;                  // the operator's versions before this opset; 0: all
  std::string_view attribute;  // only where it is set to anything but `unless`
  std::string_view unless;
  std::string_view why;
};

struct Profile {
  std::string_view name;
  bool computes_half, computes_bfloat;
  bool in_onnxruntime;  // may be run there
  std::span<const Gap> gaps;
};

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

const std::array<Profile, 6> kProfiles{{
    {"spec", true, true, true, {}},
    {"ort", true, false, true, kOrtGaps},
    {"ort-cpu", false, false, true, {}},
    {"ort-cuda", true, true, true, kOrtGaps},
    {"trt", true, true, false, kTensorRtGaps},
    {"openvino", true, true, false, kOpenVinoGaps},
}};

const Profile* find_profile(const std::string& name) {
  const auto found = std::ranges::find(kProfiles, std::string_view(name), &Profile::name);
  return found == kProfiles.end() ? nullptr : &*found;
}

}  // namespace

bool is_profile(const std::string& name) {
  return find_profile(name) != nullptr;
}

bool runs_in_onnxruntime(const std::string& profile) {
  return find_profile(profile)->in_onnxruntime;
}

bool profile_allows(const std::string& name, const Graph& graph, const Node& node, Element low,
                    std::string* why) {
  const Profile& profile = *find_profile(name);
  const bool computes = low == Element::kFloat16 ? profile.computes_half : profile.computes_bfloat;
  if (!computes) {
    *why = concat({"profile ", name, ": no arithmetic in ", name_of(low)});
    return false;
  }
  for (const Gap& gap : profile.gaps) {
    if (gap.op != node.qualified_name() || (gap.before != 0 && node.schema->since >= gap.before))
      continue;
    if (gap.attribute.empty() || graph.attribute_text(node, gap.attribute) != gap.unless) {
      *why = concat({"profile ", name, ": ", gap.why});
      return false;
    }
  }
  return true;
}

}  // namespace mezzo::convert
