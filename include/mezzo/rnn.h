// Recurrent layers: LSTM, GRU, ReLU and Tanh networks, multiplicative LSTMs, and cells of one's
// own.
//
//   mezzo::rnn::LSTM lstm(mezzo::rnn::Options{.input_size = 64, .hidden_size = 128});
//   auto [output, hidden] = lstm(x);                      // x: [length, batch, 64]
//   auto [next, last] = lstm(y, hidden);                  // hidden[0] is h, hidden[1] is c
//
// Layers that torch::nn has too give its results, have its parameters, names and start values, and
// run its kernels. Parameters are weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 and, with a
// projection, weight_hr_l0, then those of the next layer and, with the ending _reverse, of the
// other direction. All levels work; a scope casts each weight once a call, and no step of time
// casts.
//
// A layer can keep its state from call to call, as those of Apex do:
//
//   lstm->init_hidden(batch);                             // zeros, and from now on kept
//   for (const at::Tensor& part : parts) {
//     lstm->detach_hidden();                              // the graph ends here
//     loss_of(std::get<0>(lstm(part))).backward();
//   }
//
// Without init_hidden(), init_inference(), reset_hidden() or detach_hidden() each call starts at
// zeros, as in torch::nn. A layer that keeps a state serves one thread at a time, and recompute()
// would move its state twice.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/pimpl.h>
#include <torch/nn/utils/rnn.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mezzo/export.h"

namespace mezzo::rnn {

/// Options of all recurrent layers.
struct Options {
  int64_t input_size = 0;    ///< features of the input
  int64_t hidden_size = 0;   ///< of the state
  int num_layers = 1;        ///< each but the first takes the output of the one below
  bool bias = true;          ///< weight_ih and weight_hh come with biases
  bool batch_first = false;  ///< input and output are [batch, length, features]; states stay as
                             ///< they are
  double dropout = 0;  ///< probability, on the output of each layer but the last, while training
  bool bidirectional = false;  ///< a second set of weights runs from the end; the output holds both
  /// The first state is projected to this many features by weight_hr, as by torch::nn::LSTM's
  /// proj_size (Sak et al. 2014); unset or equal to hidden_size: no projection. A GRU with a
  /// projection has a second state, the first one before it is projected.
  std::optional<int64_t> output_size = {};
};

/// Options of one call.
struct ForwardOptions {
  /// Return the states of all steps: [length, layers * directions, batch, size] each, zeros behind
  /// the end of a packed sequence. Not on the kernels of torch::nn.
  bool collect_hidden = false;
  /// Run from the last step to the first. Outputs and collected states stay at their steps.
  bool reverse = false;
};

/// States by their order in the cell: h, or h and c. Each is [layers * directions, batch, size].
using Hidden = std::vector<at::Tensor>;

/// The output, [length, batch, directions * output_size], and the states after the last step.
using Output = std::tuple<at::Tensor, Hidden>;

/// LibTorch's.
using PackedSequence = torch::nn::utils::rnn::PackedSequence;

/// The states that a call starts with: a list, a tensor, or a pair as torch::nn::LSTM takes it.
/// None, or undefined tensors: the kept ones, or zeros.
class MEZZO_API InitialHidden {
 public:
  InitialHidden() = default;
  // NOLINTBEGIN(google-explicit-constructor): handed over as they are
  InitialHidden(Hidden states);
  InitialHidden(std::initializer_list<at::Tensor> states);
  InitialHidden(const at::Tensor& state);
  InitialHidden(const std::tuple<at::Tensor, at::Tensor>& states);
  // NOLINTEND(google-explicit-constructor)

  /// The list.
  const Hidden& states() const noexcept { return states_; }

 private:
  Hidden states_;
};

/// Sizes of one layer.
struct LayerSizes {
  int64_t input = 0;   ///< of what it is given
  int64_t hidden = 0;  ///< Options::hidden_size
  int64_t output = 0;  ///< of the first state
};

/// A weight that a cell has beside weight_ih and weight_hh; a parameter NAME_l0.
struct ExtraWeight {
  std::string name;               ///< such as "weight_mih"
  std::vector<int64_t> shape;     ///< rows first
  bool multiplies_input = false;  ///< the cell wants its products with the inputs, not the weight
};

/// The inputs of a cell in one step of one layer and direction.
struct Step {
  at::Tensor gates;  ///< weight_ih times the input, plus bias_ih: [batch, gates * hidden_size]
  std::vector<at::Tensor> products;  ///< of the input with each extra weight that multiplies it
  Hidden hidden;                     ///< the states before, [batch, size] each
  at::Tensor weight_hh;              ///< [gates * hidden_size, output_size]
  at::Tensor bias_hh;                ///< [gates * hidden_size]; undefined without bias
  std::vector<at::Tensor> weights;   ///< the other extra weights
};

/// A cell of one's own. Its steps run with casts off: all that they are given has the type in which
/// the level runs recurrent layers.
struct Cell {
  int64_t gates = 1;   ///< rows of weight_ih and weight_hh for each unit of hidden_size
  int64_t states = 1;  ///< how many there are
  /// The states after a step, [batch, hidden_size] each; the first is projected where there is a
  /// projection.
  std::function<Hidden(const Step&)> step = {};
  /// The weights that a layer of these sizes has in addition; may be empty.
  std::function<std::vector<ExtraWeight>(const LayerSizes&)> extra_weights = {};
};

namespace detail {

struct Definition;  // which cell, and which kernel of LibTorch computes it
struct LayerWeights;

MEZZO_API std::shared_ptr<const Definition> lstm_definition();
MEZZO_API std::shared_ptr<const Definition> gru_definition(const Options& options);
MEZZO_API std::shared_ptr<const Definition> relu_definition();
MEZZO_API std::shared_ptr<const Definition> tanh_definition();
MEZZO_API std::shared_ptr<const Definition> mlstm_definition();
MEZZO_API std::shared_ptr<const Definition> own_definition(Cell cell);

/// Weights and state of a recurrent module, whichever its cell.
class MEZZO_API Recurrence {
 public:
  Recurrence(std::shared_ptr<const Definition> definition, Options given);
  Recurrence(const Recurrence&);
  Recurrence& operator=(const Recurrence&);
  virtual ~Recurrence();

  /// Keeps the state from call to call from now on: the one there is, if it is of this batch size,
  /// else zeros. A call with another batch size starts at zeros.
  void init_hidden(int64_t batch);
  /// The state is zeros again, and kept from now on.
  void reset_hidden();
  /// As above, of this batch size.
  void reset_hidden(int64_t batch);
  /// Cuts the state from the graph that made it, so that a backward pass ends here; kept from now
  /// on. The state is the kept one, or that of the last call. Error if there is none.
  void detach_hidden();
  /// Zeros, and from now on kept without their graphs: sequences of any length take no memory.
  void init_inference(int64_t batch);
  /// The state that the next call starts with; empty: zeros.
  const Hidden& kept_hidden() const noexcept { return kept_; }

  /// Starts the weights anew, uniformly within 1 / sqrt(hidden_size).
  void reset_parameters();
  /// Puts the weights into one piece of memory on devices whose kernels want that. `to` and
  /// `initialize` do it.
  void flatten_parameters();

  Options options;  ///< as given

 protected:
  void make_weights(torch::nn::Module& module);
  void print(std::ostream& stream) const;
  Output run(const at::Tensor& x, const Hidden& initial, ForwardOptions how, bool training);
  std::tuple<PackedSequence, Hidden> run(const PackedSequence& x, const Hidden& initial,
                                         ForwardOptions how, bool training);

 private:
  enum class Keeping : std::uint8_t { kNothing, kWithGraph, kWithoutGraph };
  struct Call;
  Output run(const Call& call);
  Hidden start_of(const Call& call, const Hidden& given) const;
  void keep(const Hidden& last);
  Hidden zeros(int64_t batch, const at::TensorOptions& type) const;
  int64_t size_of_state(int64_t state) const;
  int64_t rows_of_states() const;
  int64_t output_size() const;
  bool projects() const;
  std::vector<at::Tensor> flat_weights() const;

  std::shared_ptr<const Definition> definition_;
  std::vector<LayerWeights> weights_;  // by layer, then direction
  Keeping keeping_ = Keeping::kNothing;
  Hidden kept_;
  Hidden last_;  // without its graph
};

}  // namespace detail

/// The common base of the recurrent modules; see Recurrence for the kept state.
template <class Derived>
class RecurrentModule : public torch::nn::Cloneable<Derived>, public detail::Recurrence {
 public:
  /// New weights, and no kept state.
  void reset() override { make_weights(*this); }
  void pretty_print(std::ostream& stream) const override { print(stream); }

  /// @param x  [length, batch, input_size], or [batch, length, input_size] with batch_first
  /// @param hidden  the states to start with
  /// @param how  which states are returned, and the direction
  /// @return the output, laid out as x, and the states after the last step, or those of all steps
  /// Sizes that do not fit: ConfigError.
  Output forward(const at::Tensor& x, const InitialHidden& hidden = {}, ForwardOptions how = {}) {
    return run(x, hidden.states(), how, this->is_training());
  }
  /// As above, for sequences of different lengths. States are in the order of the caller's batch.
  std::tuple<PackedSequence, Hidden> forward_with_packed_input(const PackedSequence& x,
                                                               const InitialHidden& hidden = {},
                                                               ForwardOptions how = {}) {
    return run(x, hidden.states(), how, this->is_training());
  }

  /// As of torch::nn::Module; the weights stay in one piece of memory where kernels want that.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override {
    torch::nn::Module::to(device, dtype, non_blocking);
    flatten_parameters();
  }
  /// As above.
  void to(torch::Dtype dtype, bool non_blocking = false) override {
    torch::nn::Module::to(dtype, non_blocking);
    flatten_parameters();
  }
  /// As above.
  void to(torch::Device device, bool non_blocking = false) override {
    torch::nn::Module::to(device, non_blocking);
    flatten_parameters();
  }

 protected:
  /// Builds the layers of a cell, with new weights.
  RecurrentModule(std::shared_ptr<const detail::Definition> definition, const Options& given)
      : detail::Recurrence(std::move(definition), given) {
    make_weights(*this);
  }
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(InitialHidden())},
                           {2, torch::nn::AnyValue(ForwardOptions())})
};

/// torch::nn::LSTM (Hochreiter and Schmidhuber 1997). States h and c.
class MEZZO_API LSTMImpl : public RecurrentModule<LSTMImpl> {
 public:
  /// Options that cannot be: ConfigError.
  explicit LSTMImpl(const Options& given)
      : RecurrentModule<LSTMImpl>(detail::lstm_definition(), given) {}
};
TORCH_MODULE(LSTM);

/// torch::nn::GRU (Cho et al. 2014). State h.
class MEZZO_API GRUImpl : public RecurrentModule<GRUImpl> {
 public:
  /// Options that cannot be: ConfigError.
  explicit GRUImpl(const Options& given)
      : RecurrentModule<GRUImpl>(detail::gru_definition(given), given) {}
};
TORCH_MODULE(GRU);

/// torch::nn::RNN with torch::kReLU. State h.
class MEZZO_API ReLUImpl : public RecurrentModule<ReLUImpl> {
 public:
  /// Options that cannot be: ConfigError.
  explicit ReLUImpl(const Options& given)
      : RecurrentModule<ReLUImpl>(detail::relu_definition(), given) {}
};
TORCH_MODULE(ReLU);

/// torch::nn::RNN with torch::kTanh. State h.
class MEZZO_API TanhImpl : public RecurrentModule<TanhImpl> {
 public:
  /// Options that cannot be: ConfigError.
  explicit TanhImpl(const Options& given)
      : RecurrentModule<TanhImpl>(detail::tanh_definition(), given) {}
};
TORCH_MODULE(Tanh);

/// The multiplicative LSTM (Krause et al. 2016): m = (weight_mih x) * (weight_mhh h) takes the
/// place of h in the gates of an LSTM. States h and c.
class MEZZO_API mLSTMImpl : public RecurrentModule<mLSTMImpl> {
 public:
  /// Options that cannot be: ConfigError.
  explicit mLSTMImpl(const Options& given)
      : RecurrentModule<mLSTMImpl>(detail::mlstm_definition(), given) {}
};
TORCH_MODULE(mLSTM);

/// Layers of a cell of one's own.
class MEZZO_API RecurrentImpl : public RecurrentModule<RecurrentImpl> {
 public:
  /// Options that cannot be, or a cell without a step: ConfigError.
  RecurrentImpl(const Options& given, Cell cell)
      : RecurrentModule<RecurrentImpl>(detail::own_definition(std::move(cell)), given) {}
};
TORCH_MODULE(Recurrent);

}  // namespace mezzo::rnn
