#include "support/images.h"

#include <mezzo/error.h>
#include <torch/types.h>

#include "support/idx.h"

namespace examples {

namespace {

constexpr double kMean = 72.94, kDeviation = 90.02;  // of Fashion-MNIST's training pixels
constexpr std::int64_t kSide = 28, kKinds = 10;

std::filesystem::path find_file(const std::filesystem::path& folder, const std::string& name) {
  for (const char* ending : {".gz", ""}) {
    std::filesystem::path file = folder / (name + ending);
    if (std::filesystem::exists(file)) return file;
  }
  throw mezzo::Error(
      "no data: '" + (folder / name).string() +
      ".gz' does not exist; install the Debian package dataset-fashion-mnist, or name "
      "the folder with --data DIR");
}

at::Tensor tensor_of(IdxFile&& file) {
  return at::from_blob(file.values.data(), file.shape, at::kByte).clone();
}

}  // namespace

at::Tensor normalized(const at::Tensor& pixels) {
  return pixels.to(at::kFloat).sub_(kMean).div_(kDeviation);
}

std::pair<at::Tensor, at::Tensor> Images::batch(const at::Tensor& indices) const {
  return {normalized(pixels.index_select(0, indices)), labels.index_select(0, indices)};
}

Images load_images(const std::filesystem::path& folder, const std::string& part,
                   at::Device device) {
  const auto pixel_file = find_file(folder, part + "-images-idx3-ubyte");
  const auto label_file = find_file(folder, part + "-labels-idx1-ubyte");
  IdxFile pixels = read_idx(pixel_file);
  IdxFile labels = read_idx(label_file);
  if (pixels.shape.size() != 3 || pixels.shape[0] == 0 || pixels.shape[1] != kSide ||
      pixels.shape[2] != kSide) {
    throw mezzo::Error("data file '" + pixel_file.string() +
                       "' does not hold images of 28x28 pixels");
  }
  if (labels.shape != std::vector<std::int64_t>{pixels.shape[0]}) {
    throw mezzo::Error("data files '" + pixel_file.string() + "' and '" + label_file.string() +
                       "' do not hold the same number of images and labels");
  }
  for (const std::uint8_t label : labels.values) {
    if (label >= kKinds) {
      throw mezzo::Error("data file '" + label_file.string() + "' is damaged: label " +
                         std::to_string(label) + " is not below 10");
    }
  }
  return {tensor_of(std::move(pixels)).unsqueeze(1).to(device),
          tensor_of(std::move(labels)).to(at::kLong).to(device)};
}

}  // namespace examples
