// Fashion-MNIST (or MNIST) in memory: 28x28 grey images of ten kinds.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <utility>

namespace examples {

struct Images {
  at::Tensor pixels;  ///< [N, 1, 28, 28], unsigned bytes
  at::Tensor labels;  ///< [N], int64, 0 to 9

  std::int64_t size() const { return labels.size(0); }

  /// The images and labels at these places, the images as floats of mean 0 and deviation 1.
  std::pair<at::Tensor, at::Tensor> batch(const at::Tensor& indices) const;
};

/// Reads PART-images-idx3-ubyte.gz and PART-labels-idx1-ubyte.gz (or the same without .gz) of a
/// folder; `part` is "train" or "t10k". Throws mezzo::Error that names the file and, where the
/// folder has none, the Debian package that brings them.
Images load_images(const std::filesystem::path& folder, const std::string& part, at::Device device);

/// Pixels as the network takes them: floats of mean 0 and deviation 1 over the training set.
at::Tensor normalized(const at::Tensor& pixels);

}  // namespace examples
