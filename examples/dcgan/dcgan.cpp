// Trains a generator of images against a discriminator: two models, two optimizers and three
// losses, each with a loss scale of its own, so that an overflow in one loss skips the step of its
// optimizer alone.
//
//   dcgan --niter 5 --outf samples                          on Fashion-MNIST
//   dcgan --dataset folder --dataroot DIR --image-size 64   on the PNG and JPEG files of a folder
#include <mezzo/mezzo.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <iostream>

#include "dcgan/image_files.h"
#include "dcgan/networks.h"
#include "dcgan/spectral_norm.h"
#include "support/command_line.h"
#include "support/images.h"
#include "support/process.h"
#include "support/recorder.h"

namespace amp = mezzo::amp;

namespace {

struct Settings {
  std::string dataset = "fashion-mnist", dataroot = "/usr/share/datasets/fashion-mnist", outf = ".";
  std::string opt_level = "O1", loss_scale = "None", net_g, net_d, device = "cpu";
  int batch_size = 64, image_size = 32, nz = 100, ngf = 32, ndf = 32, niter = 5, manual_seed = 2809,
      steps = 0;
  double lr = 0.0002, beta1 = 0.5;
  bool spectral_norm = false;
};

/// All images as [N, channels, side, side] unsigned bytes.
at::Tensor load_pixels(const Settings& settings) {
  const int side = settings.image_size;
  if (settings.dataset == "fashion-mnist") {
    const at::Tensor pixels = examples::load_images(settings.dataroot, "train", at::kCPU).pixels;
    if (side == 32) return torch::constant_pad_nd(pixels, {2, 2, 2, 2});
    const auto options = torch::nn::functional::InterpolateFuncOptions()
                             .size(std::vector<std::int64_t>{side, side})
                             .mode(torch::kNearest);
    return torch::nn::functional::interpolate(pixels, options);
  }
  if (settings.dataset == "fake")
    return torch::randint(0, 256, {std::int64_t{4} * settings.batch_size, 3, side, side},
                          at::kByte);
  if (settings.dataset != "folder") {
    throw mezzo::ConfigError("--dataset: unknown '" + settings.dataset +
                             "'; expected fashion-mnist, folder or fake");
  }
  std::vector<at::Tensor> all;
  for (const auto& file : examples::list_images(settings.dataroot)) {
    examples::Image image = examples::centre_square(examples::read_image(file), side);
    all.push_back(
        torch::from_blob(image.rgb.data(), {side, side, 3}, at::kByte).permute({2, 0, 1}).clone());
  }
  if (all.empty())
    throw mezzo::Error("folder '" + settings.dataroot + "' holds no .png or .jpg files");
  return torch::stack(all);
}

/// Up to 64 images of values between -1 and 1, eight in a row.
void write_grid(const std::filesystem::path& file, const at::Tensor& images) {
  constexpr std::int64_t kRow = 8, kMost = 64, kGap = 2;
  const std::int64_t count = std::min(images.size(0), kMost), side = images.size(2);
  const std::int64_t rows = (count + kRow - 1) / kRow;
  at::Tensor grid =
      torch::zeros({3, rows * (side + kGap) + kGap, kRow * (side + kGap) + kGap}, at::kByte);
  const at::Tensor bytes = images.detach()
                               .to(at::kCPU, at::kFloat)
                               .add(1)
                               .mul(127.5)
                               .round()
                               .clamp(0, 255)
                               .to(at::kByte);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t top = kGap + i / kRow * (side + kGap),
                       left = kGap + i % kRow * (side + kGap);
    grid.slice(1, top, top + side).slice(2, left, left + side).copy_(bytes[i]);
  }
  const at::Tensor rgb = grid.permute({1, 2, 0}).contiguous();
  const auto* data = rgb.data_ptr<std::uint8_t>();
  examples::write_png(
      file,
      {static_cast<int>(rgb.size(1)), static_cast<int>(rgb.size(0)), {data, data + rgb.numel()}});
}

torch::optim::AdamOptions adam_options(const Settings& settings) {
  return torch::optim::AdamOptions(settings.lr).betas({settings.beta1, 0.999});
}

// With first weights of its own, or with those of a file.
void prepare(torch::nn::Sequential& net, const std::string& file, at::Device device) {
  examples::initialize_weights(*net);
  if (!file.empty()) torch::load(net, file);
  net->to(device);
}

at::Tensor loss_of(const at::Tensor& logits, double target) {
  return torch::nn::functional::binary_cross_entropy_with_logits(logits,
                                                                 torch::full_like(logits, target));
}

// Generated images, and both networks to go on with.
template <class Net>
void save_epoch(const std::filesystem::path& folder, int epoch, Net& discriminator, Net& generator,
                const at::Tensor& noise) {
  const torch::NoGradGuard no_grad;
  generator.eval();
  write_grid(folder / ("fake_samples_epoch_" + std::to_string(epoch) + ".png"), generator(noise));
  generator.train();
  torch::save(discriminator, (folder / "netD.pt").string());
  torch::save(generator, (folder / "netG.pt").string());
}

void train(const Settings& settings) {
  const at::Device device = examples::device_of(settings.device);
  torch::manual_seed(static_cast<std::uint64_t>(settings.manual_seed));
  const at::Tensor pixels = load_pixels(settings).to(device);
  const examples::DcganSizes sizes{settings.image_size, settings.nz, settings.ngf, settings.ndf,
                                   pixels.size(1)};
  const std::filesystem::path folder = settings.outf;
  std::filesystem::create_directories(folder);

  torch::nn::Sequential net_d = examples::make_discriminator(sizes),
                        net_g = examples::make_generator(sizes);
  if (settings.spectral_norm) mezzo::apply_reparameterization<examples::SpectralNorm>(*net_d);
  prepare(net_d, settings.net_d, device);
  prepare(net_g, settings.net_g, device);
  torch::optim::Adam adam_d(net_d->parameters(), adam_options(settings));
  torch::optim::Adam adam_g(net_g->parameters(), adam_options(settings));

  auto options = amp::Options::from_flags(
      {{"opt_level", settings.opt_level}, {"loss_scale", settings.loss_scale}});
  options.num_losses = 3;  // 0: discriminator on real images, 1: on generated ones, 2: generator
  auto [models, optimizers] =
      amp::initialize(std::tie(net_d, net_g), std::tie(adam_d, adam_g), options);
  auto& [discriminator, generator] = models;
  auto& [optimizer_d, optimizer_g] = optimizers;

  const auto noise = [&](std::int64_t count) {
    return torch::randn({count, sizes.noise, 1, 1}, device);
  };
  const at::Tensor fixed_noise = noise(64);
  std::int64_t steps = std::max<std::int64_t>(pixels.size(0) / settings.batch_size, 1);
  if (settings.steps > 0) steps = std::min<std::int64_t>(steps, settings.steps);

  for (int epoch = 0; epoch < settings.niter; ++epoch) {
    const auto batches = torch::randperm(pixels.size(0), device).split(settings.batch_size);
    for (std::int64_t i = 0; i < steps; ++i) {
      const at::Tensor real = pixels.index_select(0, batches[i]).to(at::kFloat).div_(127.5).sub_(1);
      optimizer_d.zero_grad();
      const at::Tensor real_loss = loss_of(discriminator(real), 1);
      amp::scale_loss(real_loss, optimizer_d, {.loss_id = 0}).backward();
      const at::Tensor fake = generator(noise(real.size(0)));
      const at::Tensor fake_loss = loss_of(discriminator(fake.detach()), 0);
      amp::scale_loss(fake_loss, optimizer_d, {.loss_id = 1}).backward();
      optimizer_d.step();

      optimizer_g.zero_grad();
      const at::Tensor generator_loss = loss_of(discriminator(fake), 1);
      amp::scale_loss(generator_loss, optimizer_g, {.loss_id = 2}).backward();
      optimizer_g.step();

      if (i % 50 != 0 && i + 1 != steps) continue;
      std::cout << "epoch " << epoch + 1 << '/' << settings.niter << "  step " << i + 1 << '/'
                << steps << "  loss D " << (real_loss + fake_loss).item<float>() << "  loss G "
                << generator_loss.item<float>() << "  scales " << optimizer_d.loss_scale(0) << ' '
                << optimizer_d.loss_scale(1) << ' ' << optimizer_g.loss_scale(2) << "  skipped D "
                << optimizer_d.skipped_steps() << " G " << optimizer_g.skipped_steps() << std::endl;
      if (i == 0 && epoch == 0) write_grid(folder / "real_samples.png", real);
    }
    save_epoch(folder, epoch + 1, discriminator, generator, fixed_noise);
  }
}

int run(int argc, char** argv) {
  Settings s;
  examples::CommandLine line(
      "dcgan", "Trains a generator of images against a discriminator, in mixed precision.");
  line.option("dataset", s.dataset, "fashion-mnist, folder (PNG and JPEG files) or fake (noise)")
      .option("dataroot", s.dataroot, "folder of the images")
      .option("batch-size", s.batch_size, "images per step")
      .option("image-size", s.image_size, "side of an image, a power of two")
      .option("nz", s.nz, "length of the noise that an image is made from")
      .option("ngf", s.ngf, "features of the generator's last block")
      .option("ndf", s.ndf, "features of the discriminator's first block")
      .option("spectral-norm", s.spectral_norm, "divide the discriminator's weights by their norm")
      .option("niter", s.niter, "epochs")
      .option("lr", s.lr, "learning rate of both Adams")
      .option("beta1", s.beta1, "their first beta")
      .option("net-g", s.net_g, "generator to go on with")
      .option("net-d", s.net_d, "discriminator to go on with")
      .option("outf", s.outf, "folder for samples and networks")
      .option("manual-seed", s.manual_seed, "of weights, noise and order")
      .option("opt-level", s.opt_level, "O0 to O5")
      .option("loss-scale", s.loss_scale, "dynamic, or a number; None: the level's")
      .option("device", s.device, "cpu, cuda, cuda:1")
      .option("steps", s.steps, "end each epoch after so many steps; 0: after all images");
  if (!line.parse(argc, argv)) return 0;
  line.require("batch-size", s.batch_size, 2, 65536);
  line.require("image-size", s.image_size, 8, 1024);
  for (const auto& [name, value] :
       {std::pair{"nz", s.nz}, {"ngf", s.ngf}, {"ndf", s.ndf}, {"niter", s.niter}}) {
    line.require(name, value, 1, 65536);
  }
  line.require("steps", s.steps, 0, 1 << 30);
  if (!std::has_single_bit(static_cast<unsigned>(s.image_size))) {
    throw mezzo::ConfigError("--image-size: " + std::to_string(s.image_size) +
                             " is no power of two");
  }
  train(s);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program("dcgan", run, argc, argv);
}
