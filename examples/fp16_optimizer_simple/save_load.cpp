// A training that is saved, goes on, and is resumed from the file: network and optimizer are two
// entries of one archive, and may be read in any order.
#include <mezzo/fp16_utils.h>
#include <torch/torch.h>

#include <iostream>

namespace fp16 = mezzo::fp16_utils;

namespace {

struct Training {
  fp16::HalfNetwork<torch::nn::Linear> model = fp16::network_to_half(torch::nn::Linear(1024, 16));
  torch::optim::Adam adam{model.parameters(), torch::optim::AdamOptions(1e-3)};
  fp16::FP16_Optimizer optimizer{
      adam, {.dynamic_loss_args = fp16::DynamicLossArgs{65536, 2, 2000}, .verbose = false}};

  /// The loss after so many steps.
  float run(int steps, const at::Tensor& input, const at::Tensor& target) {
    at::Tensor loss;
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      loss = torch::mse_loss(model(input).to(at::kFloat), target);
      optimizer.backward(loss);
      optimizer.step();
    }
    return loss.item<float>();
  }

  void save(const std::string& file) const {
    torch::serialize::OutputArchive archive;
    torch::serialize::OutputArchive of_model(archive.compilation_unit());
    torch::serialize::OutputArchive of_optimizer(archive.compilation_unit());
    of_model << model;
    of_optimizer << optimizer;
    archive.write("model", of_model);
    archive.write("optimizer", of_optimizer);
    archive.save_to(file);
  }

  void load(const std::string& file) {
    torch::serialize::InputArchive archive, of_model, of_optimizer;
    archive.load_from(file);
    archive.read("optimizer", of_optimizer);
    of_optimizer >> optimizer;
    archive.read("model", of_model);
    of_model >> model;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string file = argc > 1 ? argv[1] : "fp16_optimizer.pt";
  torch::manual_seed(0);
  const at::Tensor input = torch::randn({64, 1024});
  const at::Tensor target = torch::randn({64, 16});

  Training training;
  std::cout << "step 50  loss " << training.run(50, input, target) << "  saved\n";
  training.save(file);
  const float without_stop = training.run(50, input, target);
  std::cout << "step 100  loss " << without_stop << "  without a stop\n";

  Training resumed;
  resumed.load(file);
  const float after_stop = resumed.run(50, input, target);
  std::cout << "step 100  loss " << after_stop << "  resumed\n";
  std::cout << (after_stop == without_stop ? "the same to the last bit\n" : "not the same\n");
  return after_stop == without_stop ? 0 : 1;
}
