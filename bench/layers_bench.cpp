#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>

#include "mezzo/nn.h"
#include "mezzo/rnn.h"
#include "suites.h"

namespace mezzo::bench {
namespace {

struct NormCase {
  at::ScalarType type;
  const char* name;
  double target;
};
constexpr NormCase kTypes[] = {
    {at::kFloat, "float", 1.3}, {at::kHalf, "half", 2}, {at::kBFloat16, "bfloat16", 2}};

constexpr std::int64_t kLayerRows = 4096;
constexpr std::int64_t kLayerColumns = 768;

struct NormInputs {
  at::Tensor x, residual, weight, bias, dy;
  explicit NormInputs(at::ScalarType type)
      : x(torch::randn({kLayerRows, kLayerColumns}).to(type).requires_grad_()),
        residual(torch::randn({kLayerRows, kLayerColumns}).to(type).requires_grad_()),
        weight(torch::randn({kLayerColumns}).to(type).requires_grad_()),
        bias(torch::randn({kLayerColumns}).to(type).requires_grad_()),
        dy(torch::randn({kLayerRows, kLayerColumns}).to(type)) {}
};

using Norm = std::function<at::Tensor(const NormInputs&)>;

// A copy that only moves the bytes that a pass must read and write.
double seconds_of_moving(const NormInputs& in, bool backward, int repeats) {
  const at::NoGradGuard no_grad;
  at::Tensor out = at::empty_like(in.x);
  const std::function<void()> move = [&] {
    backward ? void(at::add_out(out, in.x, in.dy)) : void(out.copy_(in.x));
  };
  return interleave(move, move, repeats).ours;
}

// Every call allocates its results: with the allocator told to keep memory, the same memory.
void compare(Report& report, const Settings& settings, const std::string& what,
             std::optional<double> target, const NormInputs& in, const Norm& ours,
             const Norm& theirs, const std::string& peer_name) {
  if (!settings.wants(what)) return;
  const bool with_residual = what.starts_with("add");
  const double size = static_cast<double>(in.x.nbytes());
  const auto line = [&](const char* pass, double bytes, const Pair& pair,
                        std::optional<double> share) {
    Result result{.name = what + ", " + pass,
                  .ours = pair.ours,
                  .peer = pair.peer,
                  .peer_name = peer_name,
                  .spread = pair.spread};
    result.bytes = bytes;
    result.share_of_bandwidth = share;
    return result;
  };
  const auto share_of = [&](const Pair& pair, bool is_backward) -> std::optional<double> {
    if (with_residual) return {};
    return seconds_of_moving(in, is_backward, settings.repeats) / pair.ours;
  };
  const Pair forward = [&] {
    const at::NoGradGuard no_grad;
    return interleave([&] { ours(in); }, [&] { theirs(in); }, settings.repeats);
  }();
  const double forward_bytes = (with_residual ? 4 : 2) * size;
  report.add(line("forward", forward_bytes, forward, share_of(forward, false)));
  const at::Tensor our_y = ours(in);
  const at::Tensor their_y = theirs(in);
  std::vector<at::Tensor> leaves{in.x, in.weight};
  if (what.find("layer") != std::string::npos) leaves.push_back(in.bias);
  const auto pass = [&](const at::Tensor& y) {
    torch::autograd::grad({y}, leaves, {in.dy}, /*retain_graph=*/true);
  };
  const Pair backward = interleave([&] { pass(our_y); }, [&] { pass(their_y); }, settings.repeats);
  report.add(line("backward", 3 * size, backward, share_of(backward, true)));
  const Pair both{forward.ours + backward.ours, forward.peer + backward.peer,
                  std::max(forward.spread, backward.spread)};
  Result result = line("both", forward_bytes + 3 * size, both, {});
  result.target = target;
  report.add(result);
}

/// The same network, ours and torch::nn's, with both passes: as fast, but for what a call checks.
template <typename Ours, typename Theirs>
void compare_recurrent(Report& report, const Settings& settings, const std::string& what, Ours ours,
                       Theirs theirs) {
  if (!settings.wants(what)) return;
  const at::Tensor x = torch::randn({32, 16, 256});
  const auto train = [&x](auto& net) { std::get<0>(net->forward(x)).sum().backward(); };
  const Pair pair = interleave([&] { train(ours); }, [&] { train(theirs); }, settings.repeats);
  report.add({.name = what + ", both passes",
              .ours = pair.ours,
              .peer = pair.peer,
              .peer_name = "torch::nn",
              .spread = pair.spread,
              .target = 1 / 1.1});
}

void compare_recurrents(Report& report, const Settings& settings) {
  const rnn::Options options{
      .input_size = 256, .hidden_size = 256, .num_layers = 2, .bidirectional = true};
  const auto torchs = [](auto given) { return given.num_layers(2).bidirectional(true); };
  compare_recurrent(report, settings, "LSTM 32x16x256, 2 layers, bidirectional", rnn::LSTM(options),
                    torch::nn::LSTM(torchs(torch::nn::LSTMOptions(256, 256))));
  compare_recurrent(report, settings, "GRU 32x16x256, 2 layers, bidirectional", rnn::GRU(options),
                    torch::nn::GRU(torchs(torch::nn::GRUOptions(256, 256))));
}

}  // namespace

void run_layers(Report& report, const Settings& settings) {
  at::set_num_threads(1);
  torch::manual_seed(0);
#if defined(__GLIBC__)
  // Else each call of either side would spend most of its time on page faults.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  for (const NormCase& c : kTypes) {
    const NormInputs in(c.type);
    const std::string of = std::string(" 4096x768, ") + c.name;
    compare(
        report, settings, "layer norm" + of, c.target, in,
        [](const NormInputs& i) {
          return nn::fused_layer_norm(i.x, {kLayerColumns}, i.weight, i.bias);
        },
        [](const NormInputs& i) { return at::layer_norm(i.x, {kLayerColumns}, i.weight, i.bias); },
        "at::layer_norm");
    compare(
        report, settings, "RMS norm" + of, {}, in,
        [](const NormInputs& i) { return nn::fused_rms_norm(i.x, {kLayerColumns}, i.weight); },
        [](const NormInputs& i) { return at::rms_norm(i.x, {kLayerColumns}, i.weight, 1e-5); },
        "at::rms_norm");
    compare(
        report, settings, "add and layer norm" + of, {}, in,
        [](const NormInputs& i) {
          return nn::fused_add_layer_norm(i.x, i.residual, {kLayerColumns}, i.weight, i.bias)
              .second;
        },
        [](const NormInputs& i) {
          return at::layer_norm(i.x + i.residual, {kLayerColumns}, i.weight, i.bias);
        },
        "add, at::layer_norm");
  }
  compare_recurrents(report, settings);
}

}  // namespace mezzo::bench
