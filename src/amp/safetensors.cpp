#include "amp/safetensors.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "amp/safetensors_header.h"
#include "core/raise.h"
#include "platform/files.h"

namespace mezzo {
namespace {

constexpr std::string_view kInSafetensors = "safetensors";
constexpr std::uint64_t kLongestHeader = 100'000'000;  // as the format's own library has it

struct Row {
  std::string_view name;
  at::ScalarType type;
};

constexpr std::array kTypes{
    Row{"F32", at::kFloat},
    Row{"F16", at::kHalf},
    Row{"BF16", at::kBFloat16},
    Row{"F64", at::kDouble},
    Row{"I64", at::kLong},
    Row{"I32", at::kInt},
    Row{"I16", at::kShort},
    Row{"I8", at::kChar},
    Row{"U8", at::kByte},
    Row{"BOOL", at::kBool},
    Row{"U16", at::kUInt16},
    Row{"U32", at::kUInt32},
    Row{"U64", at::kUInt64},
    Row{"F8_E4M3", at::kFloat8_e4m3fn},
    Row{"F8_E5M2", at::kFloat8_e5m2},
    Row{"F8_E8M0", at::kFloat8_e8m0fnu},
    Row{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    Row{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    Row{"C64", at::kComplexFloat},
};

void write_length(std::ostream& out, std::uint64_t length) {
  std::array<char, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  out.write(bytes.data(), bytes.size());
}

std::uint64_t read_length(const std::array<char, 8>& bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return length;
}

at::Tensor read_tensor(std::istream& in, const amp::detail::TensorPlace& place,
                       const std::string& path) {
  for (const Row& row : kTypes) {
    if (row.name != place.dtype) continue;
    std::uint64_t bytes = c10::elementSize(row.type);
    for (const std::int64_t size : place.shape) {
      if (size < 0 ||
          (size > 0 && bytes > (std::uint64_t{1} << 62) / static_cast<std::uint64_t>(size))) {
        raise(kInSafetensors, "'", path, "': '", place.name, "' has an impossible shape");
      }
      bytes *= static_cast<std::uint64_t>(size);
    }
    if (bytes != place.end - place.begin) {
      raise(kInSafetensors, "'", path, "': '", place.name, "' needs ", bytes, " bytes and has ",
            place.end - place.begin);
    }
    at::Tensor tensor = at::empty(place.shape, at::TensorOptions(at::kCPU).dtype(row.type));
    in.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(bytes));
    if (!in) raise(kInSafetensors, "'", path, "': '", place.name, "' cannot be read");
    return tensor;
  }
  raise(kInSafetensors, "'", path, "': '", place.name, "' is of type ", place.dtype,
        ", which LibTorch does not have");
}

}  // namespace

void save_safetensors(const std::string& path,
                      const torch::OrderedDict<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  amp::detail::SafetensorsHeader header{metadata, {}};
  std::uint64_t end = 0;
  for (const auto& item : tensors) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined()) raise(kInSafetensors, "'", path, "': '", item.key(), "' is undefined");
    std::string_view dtype;
    for (const Row& row : kTypes) {
      if (row.type == tensor.scalar_type()) dtype = row.name;
    }
    if (dtype.empty() || tensor.layout() != at::kStrided) {
      raise(kInSafetensors, "'", path, "': '", item.key(), "' is ", tensor.layout(), " of type ",
            tensor.scalar_type(), ", which the format does not have");
    }
    const std::uint64_t begin = end;
    end += static_cast<std::uint64_t>(tensor.numel()) * tensor.element_size();
    header.tensors.push_back({item.key(), std::string(dtype), tensor.sizes().vec(), begin, end});
  }
  const std::string text = amp::detail::write_header(header);
  platform::write_atomically(platform::behind_links(path), [&](std::ostream& out) {
    write_length(out, text.size());
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const auto& item : tensors) {
      const at::Tensor bytes =
          item.value().detach().cpu().resolve_conj().resolve_neg().contiguous();
      out.write(static_cast<const char*>(bytes.const_data_ptr()),
                static_cast<std::streamsize>(bytes.nbytes()));
    }
  });
}

torch::OrderedDict<std::string, at::Tensor> load_safetensors(const std::string& path) {
  return amp::detail::load_safetensors_file(path).tensors;
}

namespace amp::detail {

SafetensorsFile load_safetensors_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code failure;
  const std::uint64_t size = in ? std::filesystem::file_size(path, failure) : 0;
  if (!in || failure) raise(kInSafetensors, "cannot read '", path, "'");
  std::array<char, 8> prefix{};
  in.read(prefix.data(), prefix.size());
  const std::uint64_t length = in ? read_length(prefix) : 0;
  if (!in || length < 2 || length > kLongestHeader || length > size - prefix.size()) {
    raise(kInSafetensors, "'", path, "' is not a safetensors file, or is truncated");
  }
  std::string text(length, '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  const SafetensorsHeader header = read_header(text, size - prefix.size() - length, path);
  SafetensorsFile file;
  file.metadata = header.metadata;
  for (const TensorPlace& place : header.tensors) {
    in.seekg(static_cast<std::streamoff>(prefix.size() + length + place.begin));
    file.tensors.insert(place.name, read_tensor(in, place, path));
  }
  return file;
}

}  // namespace amp::detail
}  // namespace mezzo
