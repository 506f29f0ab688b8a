// Calibration samples: .npz and .npy files of NumPy, and ONNX tensor files.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convert/onnx/array.h"

namespace mezzo::convert {

/// One set of inputs by name.
using Sample = std::map<std::string, Array>;

/// Reads samples for these inputs. A .npz file is one sample, its members named like the inputs. A
/// .npy file or a tensor file is one input: named by the file ("images.npy"), by the tensor's own
/// name, or, where the model has one input only, that one; files that follow each other fill one
/// sample until an input comes again. Throws ConfigError for names that no input has and for
/// samples that lack one.
std::vector<Sample> read_samples(const std::vector<std::filesystem::path>& files,
                                 const std::vector<std::string>& inputs);

/// One array from the bytes of a .npy file; `name` is for messages.
Array read_npy(std::string_view bytes, const std::string& name);

/// The arrays of a .npz file: a zip archive of .npy files, stored or deflated. `file` is for
/// messages.
Sample read_npz(std::string_view bytes, const std::string& file);

}  // namespace mezzo::convert
