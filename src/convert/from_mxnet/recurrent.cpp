// MXNet's RNN: several layers and both directions in one operator, all parameters in one vector.
// ONNX has an operator for each layer, and other orders of the gates.
#include <algorithm>
#include <array>
#include <cstring>

#include "convert/from_mxnet/rows.h"
#include "convert/onnx/array.h"

namespace mezzo::convert::mxnet {
namespace {

// A mode: ONNX's operator, and where each of its gates stands among MXNet's.
struct Mode {
  std::string_view name;
  const char* op;
  const char* activation;
  std::size_t gates;
  std::array<std::size_t, 4> order;
};

constexpr std::array<Mode, 4> kModes{{{"lstm", "LSTM", "", 4, {0, 3, 1, 2}},
                                      {"gru", "GRU", "", 3, {1, 0, 2, 0}},
                                      {"rnn_relu", "RNN", "Relu", 1, {0, 0, 0, 0}},
                                      {"rnn_tanh", "RNN", "Tanh", 1, {0, 0, 0, 0}}}};

const Mode& mode_of(Call& call) {
  const std::string name = call.text("mode", "");
  const auto* mode = std::ranges::find(kModes, name, &Mode::name);
  if (mode == kModes.end())
    call.refuse("mode is '" + name + "'; expected lstm, gru, rnn_relu or rnn_tanh");
  return *mode;
}

// The numbers of a parameter, or of parameters that are reshaped and joined.
void append_parameters(Call& call, const Entry& entry, int depth, std::vector<float>& values) {
  constexpr int kDeepest = 64;
  const Node& node = call.source().symbol.nodes()[entry.node];
  if (node.is_variable()) {
    const NDArrays* holder = call.source().holder(node.name);
    if (holder == nullptr)
      call.refuse("its parameters '" + node.name + "' are not in the file; expected them there");
    Array array;
    array.element = parse_element(holder->dtype(node.name)).value_or(Element::kUndefined);
    array.dims = holder->shape(node.name);
    array.bytes = holder->bytes(node.name);
    for (const double value : array.values()) values.push_back(static_cast<float>(value));
    return;
  }
  static constexpr std::array<std::string_view, 8> kSameOrder{
      "Reshape", "reshape", "Flatten",  "_rnn_param_concat",
      "Concat",  "concat",  "amp_cast", "_copy"};
  if (depth > kDeepest || std::ranges::find(kSameOrder, node.op) == kSameOrder.end())
    call.refuse("its parameters are computed (by " + node.op + "); expected those of the file");
  for (const Entry& input : node.inputs) append_parameters(call, input, depth + 1, values);
}

// Is the state zeros, of a batch that the graph does not know?
bool is_zeros(Call& call, std::size_t i) {
  if (i >= call.node().inputs.size()) return true;
  const std::string& op = call.source().symbol.nodes()[call.node().inputs[i].node].op;
  return op == "_zeros" || op == "_zeros_without_dtype";
}

struct Sizes {
  std::size_t layers, directions, hidden, gates;
  std::size_t input_of(std::size_t layer, std::size_t first) const {
    return layer == 0 ? first : hidden * directions;
  }
  std::size_t biases() const { return layers * directions * gates * hidden * 2; }
};

// How many features the first layer reads, by the length of the vector.
std::size_t first_input(Call& call, const Sizes& sizes, std::size_t count) {
  const std::size_t rows = sizes.directions * sizes.gates * sizes.hidden;
  std::size_t others = sizes.biases() + sizes.layers * rows * sizes.hidden;
  others += (sizes.layers - 1) * rows * sizes.hidden * sizes.directions;
  if (count <= others || (count - others) % rows != 0)
    call.refuse("its parameters are " + std::to_string(count) +
                " numbers, which fit no input; expected those of this operator's layers");
  return (count - others) / rows;
}

class Layers {
 public:
  Layers(Call& call, const Mode& mode, const Sizes& sizes, std::vector<float> values)
      : call_(call), mode_(mode), sizes_(sizes), values_(std::move(values)) {
    first_ = first_input(call, sizes, values_.size());
  }

  // W, R and B of ONNX for a layer: (directions, gates * hidden, inputs).
  Operands of(std::size_t layer) const {
    std::vector<float> weights, recurrent, biases;
    for (std::size_t direction = 0; direction < sizes_.directions; ++direction) {
      const std::size_t width = sizes_.input_of(layer, first_);
      const std::size_t place = weights_at(layer, direction);
      take(place, width, weights);
      take(place + sizes_.gates * sizes_.hidden * width, sizes_.hidden, recurrent);
      const std::size_t per_cell = sizes_.gates * sizes_.hidden * 2;
      const std::size_t bias =
          values_.size() - sizes_.biases() + (layer * sizes_.directions + direction) * per_cell;
      take(bias, 1, biases);
      take(bias + per_cell / 2, 1, biases);
    }
    const auto directions = static_cast<std::int64_t>(sizes_.directions);
    const auto rows = static_cast<std::int64_t>(sizes_.gates * sizes_.hidden);
    const auto width = static_cast<std::int64_t>(sizes_.input_of(layer, first_));
    return {call_.writer.floats({directions, rows, width}, weights),
            call_.writer.floats({directions, rows, static_cast<std::int64_t>(sizes_.hidden)},
                                recurrent),
            call_.writer.floats({directions, 2 * rows}, biases)};
  }

 private:
  std::size_t weights_at(std::size_t layer, std::size_t direction) const {
    std::size_t place = 0;
    const std::size_t rows = sizes_.gates * sizes_.hidden;
    for (std::size_t i = 0; i < layer; ++i)
      place += sizes_.directions * rows * (sizes_.input_of(i, first_) + sizes_.hidden);
    return place + direction * rows * (sizes_.input_of(layer, first_) + sizes_.hidden);
  }

  // Gates in ONNX's order, each `hidden` rows of `width` numbers.
  void take(std::size_t place, std::size_t width, std::vector<float>& to) const {
    const std::size_t size = sizes_.hidden * width;
    for (std::size_t gate = 0; gate < sizes_.gates; ++gate) {
      const auto from =
          values_.begin() + static_cast<std::ptrdiff_t>(place + mode_.order[gate] * size);
      to.insert(to.end(), from, from + static_cast<std::ptrdiff_t>(size));
    }
  }

  Call& call_;
  const Mode& mode_;
  Sizes sizes_;
  std::vector<float> values_;
  std::size_t first_ = 0;
};

Attributes cell_attributes(const Mode& mode, const Sizes& sizes) {
  Attributes attributes{
      {"hidden_size", static_cast<std::int64_t>(sizes.hidden)},
      {"direction", std::string(sizes.directions == 2 ? "bidirectional" : "forward")}};
  if (std::string_view(mode.op) == "GRU")
    attributes.push_back({"linear_before_reset", std::int64_t{1}});
  if (*mode.activation != '\0') {
    const std::vector<std::string> activations(sizes.directions, mode.activation);
    attributes.push_back({"activations", activations});
  }
  return attributes;
}

void check_recurrent(Call& call, const Sizes& sizes) {
  constexpr std::size_t kMost = 1 << 16;
  if (sizes.layers < 1 || sizes.layers > kMost || sizes.hidden < 1 || sizes.hidden > kMost)
    call.refuse("state_size or num_layers cannot be; expected 1 to 65536");
  if (call.has("projection_size"))
    call.refuse("a state that is projected (projection_size " + call.text("projection_size", "") +
                "), which ONNX's LSTM does not have; expected a network without projection, or a "
                "pair of files for MXNet (-o without .onnx)");
  if (call.has("lstm_state_clip_min") || call.has("lstm_state_clip_max"))
    call.refuse("a clipped state; expected no lstm_state_clip_min and no lstm_state_clip_max");
}

Operands recurrent(Call& call) {
  const Mode& mode = mode_of(call);
  const Sizes sizes{
      static_cast<std::size_t>(std::max<std::int64_t>(0, call.integer("num_layers", 0))),
      call.flag("bidirectional") ? 2U : 1U,
      static_cast<std::size_t>(std::max<std::int64_t>(0, call.integer("state_size", 0))),
      mode.gates};
  check_recurrent(call, sizes);
  std::vector<float> values;
  append_parameters(call, call.node().inputs.at(1), 0, values);
  const Layers layers(call, mode, sizes, std::move(values));
  const bool is_lstm = mode.gates == 4;
  const auto directions = static_cast<std::int64_t>(sizes.directions);
  const auto hidden = static_cast<std::int64_t>(sizes.hidden);
  Operand x = call.input(0);
  if (x.dims && x.dims->size() != 3)
    call.refuse("its data has other than three dimensions; expected (time, batch, features)");
  const Dims data = x.dims ? *x.dims : Dims(3, kUnknownSize);
  Operand lengths;
  if (call.flag("use_sequence_length"))
    lengths = call.cast(call.input(call.input_count() - 1), Element::kInt32);
  Operands last_states, last_cells;
  for (std::size_t layer = 0; layer < sizes.layers; ++layer) {
    const Operands weights = layers.of(layer);
    const auto state_of = [&](std::size_t input) {
      if (is_zeros(call, input)) return Operand{};
      const auto first = static_cast<std::int64_t>(layer) * directions;
      return call.slice(call.input(input), 0, first, first + directions);
    };
    Operands inputs{x, weights[0], weights[1], weights[2], lengths, state_of(2)};
    if (is_lstm) inputs.push_back(state_of(3));
    const Dims state{directions, data[1], hidden};
    std::vector<Form> forms{{x.element, Dims{data[0], directions, data[1], hidden}},
                            {x.element, state}};
    if (is_lstm) forms.push_back({x.element, state});
    const Attributes attributes = cell_attributes(mode, sizes);
    const Operands results = call.writer.add(mode.op, inputs, attributes, forms);
    const Operand sides =
        directions == 1 ? call.squeeze(results[0], {1}) : call.transpose(results[0], {0, 2, 1, 3});
    x = directions == 1 ? sides
                        : call.reshape(sides, {0, 0, -1}, Dims{data[0], data[1], 2 * hidden});
    last_states.push_back(results[1]);
    if (is_lstm) last_cells.push_back(results[2]);
  }
  if (!call.flag("state_outputs")) return {x};
  Operands outputs{x, call.concat(last_states, 0)};
  if (is_lstm) outputs.push_back(call.concat(last_cells, 0));
  return outputs;
}

constexpr TranslationRow kRecurrentRows[] = {{"RNN", recurrent, Reads::kAllButSecond}};

}  // namespace

std::span<const TranslationRow> recurrent_rows() {
  return kRecurrentRows;
}

}  // namespace mezzo::convert::mxnet
