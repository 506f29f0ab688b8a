#include "convert/prepare/old_opsets.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "convert/onnx/concat.h"
#include "convert/onnx/element.h"
#include "convert/onnx/fields.h"

namespace mezzo::convert {
namespace {

constexpr int kDropoutTrains = 12;  // from here on, where an input says so

// Lets the dimensions of an input begin at that axis of the first one; today they end at its last.
std::string align(NodeEdit& node, std::size_t input, std::int64_t axis) {
  const auto whole = node.shape(0);
  const auto part = node.shape(input);
  if (!whole || !part) {
    return concat({", and the rank of '", node.input(whole ? input : 0), "' is not known"});
  }
  const bool is_single = std::ranges::all_of(*part, [](std::int64_t dim) { return dim == 1; });
  if (is_single && part->size() <= whole->size()) return "";
  if (axis < 0) axis += static_cast<std::int64_t>(whole->size());
  const auto ones =
      static_cast<std::int64_t>(whole->size()) - axis - static_cast<std::int64_t>(part->size());
  if (axis < 0 || ones < 0) return concat({", and '", node.input(input), "' does not fit there"});
  if (ones != 0) node.append_ones(input, part->size(), static_cast<std::size_t>(ones));
  return "";
}

bool are_whole(const std::vector<double>& numbers) {
  return std::ranges::all_of(numbers, [](double number) {
    return number == std::floor(number) && std::fabs(number) < 1e15;
  });
}

}  // namespace

std::string drop_legacy(NodeEdit& node) {
  node.remove("consumed_inputs");
  return "";
}

// Until opset 6 operands were aligned by an attribute; without it shapes were equal.
std::string drop_broadcast(NodeEdit& node) {
  const bool aligned = node.integer("broadcast", 0) != 0 && node.find("axis") != nullptr;
  if (std::string why = aligned ? align(node, 1, node.integer("axis", 0)) : ""; !why.empty())
    return concat({"aligns its operands by an axis", why});
  node.remove("consumed_inputs");
  node.remove("broadcast");
  node.remove("axis");
  return "";
}

std::string batch_norm_7(NodeEdit& node) {
  if (node.integer("is_test", 0) == 0) return "trains";
  node.remove("is_test");
  node.remove("consumed_inputs");
  return "";
}

std::string cast_6(NodeEdit& node) {
  std::string name(node.text("to"));
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto element = parse_element(name);
  if (!element) return concat({"casts to '", name, "'"});
  node.set_integer("to", static_cast<std::int64_t>(*element));
  return "";
}

std::string dropout_7(NodeEdit& node) {
  const bool trains = node.integer("is_test", 0) == 0;
  if (trains && node.target() < kDropoutTrains) return "trains";
  node.remove("consumed_inputs");
  node.remove("is_test");
  if (trains) node.set_integer("is_test", 0);  // kept until the input can say it
  return "";
}

// One slope per channel, which is the axis 1, or one for all.
std::string prelu_7(NodeEdit& node) {
  const auto slope = node.shape(1);
  if (!slope) return "has a slope whose rank is not known";
  if (slope->size() != 1) return "";
  if (std::string why = align(node, 1, 1); !why.empty())
    return concat({"has one slope per channel", why});
  return "";
}

// Copies along one axis; since then a number of copies per axis.
std::string tile_6(NodeEdit& node) {
  const auto shape = node.shape(0);
  const auto numbers = node.constant_numbers(2);
  if (!shape || !numbers || numbers->size() != 1 || !are_whole(*numbers) ||
      std::fabs(numbers->front()) > 64)
    return "repeats an axis that is not known";
  const auto rank = static_cast<std::int64_t>(shape->size());
  auto axis = static_cast<std::int64_t>(numbers->front());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return "repeats an axis that is not there";
  node.place_in_ones(1, shape->size(), static_cast<std::size_t>(axis));
  node.keep_inputs(2);
  return "";
}

// Images alone had scales, in two attributes.
std::string upsample_7(NodeEdit& node) {
  const auto scale = [&](std::string_view attribute) {
    const Message* found = node.find(attribute);
    const auto values =
        found == nullptr ? std::vector<float>() : repeated_floats(*found, field::attribute::kFloat);
    return values.empty() ? 1.0F : values[0];
  };
  node.set_floats("scales", {1, 1, scale("height_scale"), scale("width_scale")});
  node.remove("height_scale");
  node.remove("width_scale");
  if (node.text("mode") == "bilinear") node.set_text("mode", "linear");
  return "";
}

// The defaults changed.
std::string selu_6(NodeEdit& node) {
  if (node.find("alpha") == nullptr) node.set_float("alpha", 1.6732F);
  if (node.find("gamma") == nullptr) node.set_float("gamma", 1.0507F);
  return drop_legacy(node);
}

// The power was a float.
std::string lp_pool_2(NodeEdit& node) {
  const Message* power = node.find("p");
  if (power == nullptr) return "";
  const std::vector<float> values = repeated_floats(*power, field::attribute::kFloat);
  const float p = values.empty() ? 0 : values[0];
  if (!(p >= 1 && p < 1000) || p != std::floor(p)) return "has no whole power";
  node.set_integer("p", static_cast<std::int64_t>(p));
  return "";
}

std::string pad_2(NodeEdit& node) {
  Message* paddings = node.find("paddings");
  if (paddings != nullptr) paddings->set(field::attribute::kName, std::string_view("pads"));
  return "";
}

// Sizes, which may be an input of the data's type, were an attribute up to opset 12.
std::string split_2(NodeEdit& node) {
  constexpr int kSizesAreInput = 13;
  node.set_integer("axis", node.integer("axis", 0));
  if (node.input(1).empty()) return "";
  const auto sizes = node.constant_numbers(1);
  if (sizes && are_whole(*sizes)) {
    node.set_integers("split", {sizes->begin(), sizes->end()});
    node.keep_inputs(1);
    return "";
  }
  if (node.target() < kSizesAreInput) return "takes its sizes from an input that is no constant";
  node.remove("split");
  node.cast_input(1);
  return "";
}

std::string concat_4(NodeEdit& node) {
  node.set_integer("axis", node.integer("axis", 1));
  return "";
}

std::string reshape_5(NodeEdit& node) {
  node.remove("consumed_inputs");
  if (node.find("shape") != nullptr) node.attribute_to_input("shape", 1);
  return "";
}

std::string recurrent_7(NodeEdit& node) {
  node.remove("output_sequence");
  return "";
}

}  // namespace mezzo::convert
