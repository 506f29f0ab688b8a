#include "convert/engine/samples.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "convert/engine/letters.h"
#include "convert/onnx/concat.h"
#include "convert/onnx/tensor.h"
#include "convert/onnx/texts.h"
#include "core/raise.h"
#include "platform/files.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;

std::uint64_t number_at(std::string_view bytes, std::size_t at, std::size_t size,
                        const std::string& name) {
  if (at > bytes.size() || size > bytes.size() - at) raise("npz", "'", name, "' ends too early");
  std::uint64_t value = 0;
  for (std::size_t i = size; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

Element element_of(std::string_view descr, const std::string& name) {
  constexpr std::array<std::pair<std::string_view, Element>, 13> kTypes{
      {{"f4", Element::kFloat},
       {"f2", Element::kFloat16},
       {"f8", Element::kDouble},
       {"i1", Element::kInt8},
       {"i2", Element::kInt16},
       {"i4", Element::kInt32},
       {"i8", Element::kInt64},
       {"u1", Element::kUint8},
       {"u2", Element::kUint16},
       {"u4", Element::kUint32},
       {"u8", Element::kUint64},
       {"b1", Element::kBool},
       // MXNet 2.x's own
       {"b2", Element::kBFloat16}}};
  if (!descr.empty() && (descr[0] == '<' || descr[0] == '|' || descr[0] == '='))
    descr.remove_prefix(1);
  for (const auto& [text, element] : kTypes) {
    if (text == descr) return element;
  }
  raise<ConfigError>("npy", "'", name, "' has the type '", descr, "', which is not supported");
}

// The text of 'key': in the header's dictionary, up to the next comma outside parentheses.
std::string_view header_value(std::string_view header, std::string_view key,
                              const std::string& name) {
  const std::size_t at = header.find(concat({"'", key, "':"}));
  if (at == std::string_view::npos) raise("npy", "'", name, "' has no ", key);
  std::string_view value = header.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value.substr(
      0, value.empty() || value[0] != '(' ? value.find_first_of(",}") : value.find(')'));
}

std::string inflated(std::string_view packed, std::uint64_t size, const std::string& name) {
  if (size > std::numeric_limits<uInt>::max() || packed.size() > std::numeric_limits<uInt>::max()) {
    raise<UnsupportedError>("npz", "'", name, "' has a compressed member beyond 4 GB");
  }
  // Deflate packs at most about a thousand to one; a larger claim is damage.
  if (size / 1100 > packed.size() + 1) raise("npz", "'", name, "' is damaged");
  std::string out(size, '\0');
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(size);
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) raise("npz", "zlib cannot start");
  const int status = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (status != Z_STREAM_END || stream.total_out != size) raise("npz", "'", name, "' is damaged");
  return out;
}

std::uint64_t checksum_of(std::string_view bytes) {
  return crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

// From columns first, as Fortran counts, to rows first.
void reorder(Array& array) {
  const std::size_t size = stored_size_of(array.element);
  const std::size_t rank = array.dims.size();
  std::vector<std::size_t> strides(rank, size);  // of the file
  for (std::size_t d = 1; d < rank; ++d)
    strides[d] = strides[d - 1] * static_cast<std::size_t>(array.dims[d - 1]);
  std::vector<std::int64_t> at(rank, 0);
  std::string rows(array.bytes.size(), '\0');
  for (std::size_t to = 0; to < rows.size(); to += size) {
    std::size_t from = 0;
    for (std::size_t d = 0; d < rank; ++d) from += static_cast<std::size_t>(at[d]) * strides[d];
    std::memcpy(rows.data() + to, array.bytes.data() + from, size);
    for (std::size_t d = rank; d-- > 0;) {
      if (++at[d] < array.dims[d]) break;
      at[d] = 0;
    }
  }
  array.bytes = std::move(rows);
}

/// Reads NumPy's types "<U12" (characters of four bytes) and "|S12" (of one), filled up with zeros.
/// False: another type.
bool read_strings(std::string_view descr, std::string_view data, Array& array,
                  const std::string& name) {
  if (descr.size() < 2 || (descr[1] != 'U' && descr[1] != 'S') || descr[0] == '>') return false;
  const std::size_t width = descr[1] == 'U' ? 4 : 1;
  std::size_t length = 0;
  const char* const end = descr.data() + descr.size();
  if (std::from_chars(descr.data() + 2, end, length).ptr != end || length == 0)
    raise("npy", "'", name, "' has no length of its strings");
  if (length > data.size() / width || array.count() > data.size() / (length * width))
    raise("npy", "'", name, "' ends too early");
  std::vector<std::string> texts(array.count());
  for (std::string& text : texts) {
    const std::string_view own = data.substr(0, length * width);
    data.remove_prefix(own.size());
    for (std::size_t at = 0; at < own.size(); at += width) {
      const std::uint64_t character = number_at(own, at, width, name);
      if (width == 1) {
        text += static_cast<char>(character);
      } else {
        append_utf8(text, static_cast<char32_t>(character));
      }
    }
    text.resize(text.find_last_not_of('\0') + 1);
  }
  array = array_of(texts, array.dims);
  return true;
}

std::string input_name(const fs::path& file, const std::string& own,
                       const std::vector<std::string>& inputs) {
  for (const std::string& name : {own, file.stem().string()}) {
    if (std::ranges::find(inputs, name) != inputs.end()) return name;
  }
  if (inputs.size() == 1) return inputs[0];
  raise<ConfigError>("samples", "'", file.string(), "' is named like no input of the model");
}

void check_sample(const Sample& sample, const std::string& file,
                  const std::vector<std::string>& inputs) {
  for (const auto& [name, array] : sample) {
    if (std::ranges::find(inputs, name) == inputs.end()) {
      raise<ConfigError>("samples", "'", file, "' has '", name,
                         "', which is no input of the model");
    }
  }
  for (const std::string& name : inputs) {
    if (!sample.contains(name))
      raise<ConfigError>("samples", "'", file, "' lacks the input '", name, "'");
  }
}

}  // namespace

// A zip archive's central directory: stored and deflated members, zip64 sizes included.
Sample read_npz(std::string_view bytes, const std::string& file) {
  const std::size_t end = bytes.rfind(std::string_view("PK\x05\x06", 4));
  if (end == std::string_view::npos) raise("npz", "'", file, "' is no zip archive");
  std::uint64_t count = number_at(bytes, end + 10, 2, file);
  std::uint64_t at = number_at(bytes, end + 16, 4, file);
  if (at == 0xFFFFFFFF || count == 0xFFFF) {
    const std::size_t locator = bytes.rfind(std::string_view("PK\x06\x07", 4));
    if (locator == std::string_view::npos) raise("npz", "'", file, "' is damaged");
    const std::uint64_t end64 = number_at(bytes, locator + 8, 8, file);
    count = number_at(bytes, end64 + 32, 8, file);
    at = number_at(bytes, end64 + 48, 8, file);
  }
  Sample sample;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (number_at(bytes, at, 4, file) != 0x02014B50) raise("npz", "'", file, "' is damaged");
    const std::uint64_t method = number_at(bytes, at + 10, 2, file);
    const std::uint64_t checksum = number_at(bytes, at + 16, 4, file);
    std::uint64_t packed = number_at(bytes, at + 20, 4, file);
    std::uint64_t size = number_at(bytes, at + 24, 4, file);
    const std::uint64_t name_size = number_at(bytes, at + 28, 2, file);
    const std::uint64_t extra_size = number_at(bytes, at + 30, 2, file);
    const std::uint64_t comment_size = number_at(bytes, at + 32, 2, file);
    std::uint64_t local = number_at(bytes, at + 42, 4, file);
    std::string name(bytes.substr(std::min<std::uint64_t>(at + 46, bytes.size()), name_size));
    std::uint64_t extra = at + 46 + name_size;
    for (const std::uint64_t stop = extra + extra_size; extra + 4 <= stop;) {
      const std::uint64_t id = number_at(bytes, extra, 2, file);
      const std::uint64_t length = number_at(bytes, extra + 2, 2, file);
      std::uint64_t field = extra + 4;
      if (id == 1) {
        for (std::uint64_t* wide : {&size, &packed, &local}) {
          if (*wide != 0xFFFFFFFF) continue;
          *wide = number_at(bytes, field, 8, file);
          field += 8;
        }
      }
      extra += 4 + length;
    }
    at += 46 + name_size + extra_size + comment_size;
    const std::uint64_t data =
        local + 30 + number_at(bytes, local + 26, 2, file) + number_at(bytes, local + 28, 2, file);
    if (data > bytes.size() || packed > bytes.size() - data)
      raise("npz", "'", file, "' is damaged");
    if (name.size() < 4 || name.substr(name.size() - 4) != ".npy") continue;
    name.resize(name.size() - 4);
    if (method != 0 && method != 8)
      raise<UnsupportedError>("npz", "'", file, "' uses compression ", method);
    if (method == 0 && packed != size) raise("npz", "'", file, "' is damaged near '", name, "'");
    const std::string_view body = bytes.substr(data, packed);
    const std::string unpacked = method == 0 ? std::string() : inflated(body, size, file);
    const std::string_view array = method == 0 ? body : std::string_view(unpacked);
    if (checksum_of(array) != checksum) {
      raise("npz", "'", file, "' is damaged: '", name,
            "' does not have its checksum; expected the file as it was written");
    }
    if (!sample.emplace(name, read_npy(array, concat({file, "': '", name}))).second)
      raise("npz", "'", file, "' has two arrays '", name, "'");
  }
  return sample;
}

Array read_npy(std::string_view bytes, const std::string& name) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (bytes.substr(0, 6) != kMagic || bytes.size() < 10)
    raise("npy", "'", name, "' is no NumPy file");
  const bool is_short = bytes[6] == 1;
  const std::uint64_t header_size = number_at(bytes, 8, is_short ? 2 : 4, name);
  const std::size_t start = is_short ? 10 : 12;
  if (header_size > bytes.size() - start) raise("npy", "'", name, "' ends too early");
  const std::string_view header = bytes.substr(start, header_size);
  std::string_view descr = header_value(header, "descr", name);
  if (descr.size() < 3) raise("npy", "'", name, "' has no type");
  descr = descr.substr(1, descr.size() - 2);
  Array array;
  std::string_view shape = header_value(header, "shape", name);
  while (!shape.empty()) {
    std::int64_t dim = 0;
    const auto [rest, error] = std::from_chars(shape.data(), shape.data() + shape.size(), dim);
    if (error == std::errc()) {
      if (dim < 0 || dim > (std::int64_t{1} << 40))
        raise("npy", "'", name, "' has an impossible shape");
      array.dims.push_back(dim);
      shape.remove_prefix(static_cast<std::size_t>(rest - shape.data()));
    } else {
      shape.remove_prefix(1);
    }
  }
  const std::string_view data = bytes.substr(start + header_size);
  if (!read_strings(descr, data, array, name)) {
    array.element = element_of(descr, name);
    const std::uint64_t needed = array.count() * size_of(array.element);
    if (data.size() < needed) raise("npy", "'", name, "' ends too early");
    array.bytes = data.substr(0, needed);
  }
  if (header_value(header, "fortran_order", name).substr(0, 4) == "True") reorder(array);
  return array;
}

std::vector<Sample> read_samples(const std::vector<fs::path>& files,
                                 const std::vector<std::string>& inputs) {
  std::vector<Sample> samples;
  Sample open;
  std::string last;
  const auto close = [&] {
    if (open.empty()) return;
    check_sample(open, last, inputs);
    samples.push_back(std::exchange(open, {}));
  };
  for (const fs::path& file : files) {
    const platform::MappedFile mapped(file);
    if (file.extension() == ".npz") {
      close();
      samples.push_back(read_npz(mapped.bytes(), file.string()));
      check_sample(samples.back(), file.string(), inputs);
      continue;
    }
    std::string own;
    Array array;
    if (file.extension() == ".npy") {
      array = read_npy(mapped.bytes(), file.string());
    } else {
      Document document{
          std::string("\x3A\x00", 2)};  // an empty model: tensor files have no external data
      const Message tensor = Message::parse(mapped.bytes());
      array = array_of(document, tensor);
      own = tensor.text(8);
    }
    const std::string name = input_name(file, own, inputs);
    if (open.contains(name)) close();
    open[name] = std::move(array);
    last = file.string();
  }
  close();
  return samples;
}

}  // namespace mezzo::convert
