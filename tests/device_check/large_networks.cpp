#include "device_check/large_networks.h"

#include "imagenet/models/network.h"
#include "ssd512/anchors.h"
#include "ssd512/multibox_loss.h"
#include "ssd512/network.h"

namespace mezzo::device_check {
namespace {

constexpr std::int64_t kImages = 256, kSmallImages = 2;
constexpr GptSizes kGpt2;
constexpr GptSizes kSmallGpt{
    .words = 500, .width = 128, .heads = 4, .blocks = 2, .length = 64, .batch = 2};
constexpr std::int64_t kDetections = 32, kSmallDetections = 1;

class Classifier : public CheckedNetwork {
 public:
  explicit Classifier(bool small)
      : small_(small),
        net_(register_module(
            "net", examples::imagenet::make_network(small ? "resnet18" : "resnet50", 1000))) {}
  at::Tensor forward(at::Tensor x) override { return net_->forward(x); }
  Batch batch(std::uint64_t step) const override {
    at::manual_seed(step);
    const std::int64_t images = small_ ? kSmallImages : kImages;
    const std::int64_t side = small_ ? 64 : 224;
    return {at::randn({images, 3, side, side}), at::randint(1000, {images}, at::kLong)};
  }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target) const override {
    return torch::cross_entropy_loss(output, target);
  }
  at::MemoryFormat layout() const override { return at::MemoryFormat::ChannelsLast; }

 private:
  bool small_;
  std::shared_ptr<examples::imagenet::Network> net_;
};

// Class logits and box offsets travel as one tensor, targets too.
class Detector : public CheckedNetwork {
 public:
  explicit Detector(bool small) : small_(small), net_(register_module("net", examples::Ssd(80))) {
    const torch::NoGradGuard no_grad;
    examples::initialize_weights(*net_);
  }
  at::Tensor forward(at::Tensor x) override {
    const auto [kinds, boxes, anchors] = net_->forward(x);
    return torch::cat({kinds.to(at::kFloat), boxes.to(at::kFloat)}, 2);
  }
  Batch batch(std::uint64_t step) const override {
    at::manual_seed(step);
    const std::int64_t images = small_ ? kSmallDetections : kDetections;
    const std::int64_t side = small_ ? 192 : 512;
    const std::int64_t anchors = examples::make_anchors(examples::map_sizes_for(side)).size(1);
    // One anchor in a hundred is an object.
    const at::Tensor found = at::rand({images, anchors, 1}) < 0.01;
    const at::Tensor kinds = at::randint(1, 81, {images, anchors, 1}) * found;
    return {at::randn({images, 3, side, side}),
            torch::cat({kinds, at::randn({images, anchors, 4})}, 2)};
  }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target) const override {
    const auto losses = examples::SsdMultiBoxLoss()({output.slice(2, 0, 81)}, {output.slice(2, 81)},
                                                    {target.select(2, 0)}, {target.slice(2, 1)});
    return losses.sum[0].sum();
  }
  at::MemoryFormat layout() const override { return at::MemoryFormat::ChannelsLast; }

 private:
  bool small_;
  examples::Ssd net_;
};

template <typename Net>
std::shared_ptr<CheckedNetwork> made_large(bool small) {
  return std::make_shared<Net>(small);
}

}  // namespace

const std::array<LargeNetworkRow, 3> kLargeNetworks{{
    {"ResNet-50", "images", kImages, kSmallImages, made_large<Classifier>},
    {"GPT-2 124M", "tokens", kGpt2.batch* kGpt2.length, kSmallGpt.batch* kSmallGpt.length,
     [](bool small) { return make_gpt(small ? kSmallGpt : kGpt2); }},
    {"SSD-512", "images", kDetections, kSmallDetections, made_large<Detector>},
}};

}  // namespace mezzo::device_check
