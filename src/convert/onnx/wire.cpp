#include "convert/onnx/wire.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "core/raise.h"

namespace mezzo::convert {
namespace {

constexpr std::uint64_t kMaximumFieldNumber = (1U << 29) - 1;

[[noreturn]] void damaged(std::string_view what) {
  raise("onnx", "damaged file: ", what);
}

std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

void write_varint(Sink& sink, std::uint64_t value) {
  std::array<char, 10> buffer{};
  std::size_t size = 0;
  for (; value >= 0x80; value >>= 7) buffer[size++] = static_cast<char>(value | 0x80);
  buffer[size++] = static_cast<char>(value);
  sink.write({buffer.data(), size});
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

void write_little_endian(Sink& sink, std::uint64_t value, std::size_t size) {
  std::array<char, 8> buffer{};
  for (std::size_t i = 0; i < size; ++i) buffer[i] = static_cast<char>(value >> (8 * i));
  sink.write({buffer.data(), size});
}

// Groups are long deprecated; what stands in one is carried along unread.
void skip_group(VarintReader& reader, std::uint32_t number) {
  std::vector<std::uint32_t> open{number};
  while (!open.empty()) {
    if (reader.done()) damaged("a group does not end");
    const std::uint64_t tag = reader.next();
    switch (tag & 7) {
      case 0:
        reader.next();
        break;
      case 1:
        reader.take(8);
        break;
      case 2:
        reader.take(reader.next());
        break;
      case 3:
        open.push_back(static_cast<std::uint32_t>(tag >> 3));
        break;
      case 4:
        if (open.back() != tag >> 3) damaged("a group ends under another number");
        open.pop_back();
        break;
      case 5:
        reader.take(4);
        break;
      default:
        damaged("unknown wire type");
    }
  }
}

std::uint64_t payload_size(const Field& field) {
  if (field.message) return field.message->size();
  if (field.content) return field.content->size();
  return field.bytes.size();
}

bool is_as_read(const Field& field) {
  return !field.raw.empty() && (!field.message || field.message->is_clean());
}

std::uint64_t field_size(const Field& field) {
  if (is_as_read(field)) return field.raw.size();
  const std::uint64_t tag = varint_size(std::uint64_t{field.number} << 3);
  switch (field.wire) {
    case Wire::kVarint:
      return tag + varint_size(field.value);
    case Wire::kFixed32:
      return tag + 4;
    case Wire::kFixed64:
      return tag + 8;
    case Wire::kGroup:
    case Wire::kRun:
      return field.bytes.size();
    case Wire::kBytes:
      break;
  }
  const std::uint64_t size = payload_size(field);
  return tag + varint_size(size) + size;
}

void write_field(Sink& sink, const Field& field) {
  if (is_as_read(field)) return sink.write(field.raw);
  if (field.wire == Wire::kGroup || field.wire == Wire::kRun) return sink.write(field.bytes);
  write_varint(sink, std::uint64_t{field.number} << 3 | static_cast<unsigned>(field.wire));
  switch (field.wire) {
    case Wire::kVarint:
      return write_varint(sink, field.value);
    case Wire::kFixed32:
      return write_little_endian(sink, field.value, 4);
    case Wire::kFixed64:
      return write_little_endian(sink, field.value, 8);
    default:
      break;
  }
  write_varint(sink, payload_size(field));
  if (field.message) return field.message->write(sink);
  if (field.content) return field.content->write(sink);
  sink.write(field.bytes);
}

Field read_field(std::string_view all, VarintReader& reader) {
  const char* begin = all.data();
  const std::uint64_t tag = reader.next();
  Field field;
  if (tag >> 3 == 0 || tag >> 3 > kMaximumFieldNumber) damaged("impossible field number");
  field.number = static_cast<std::uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      field.value = reader.next();
      break;
    case 1:
      field.wire = Wire::kFixed64;
      field.value = little_endian(reader.take(8));
      break;
    case 2:
      field.wire = Wire::kBytes;
      field.bytes = reader.take(reader.next());
      break;
    case 3:
      field.wire = Wire::kGroup;
      skip_group(reader, field.number);
      break;
    case 5:
      field.wire = Wire::kFixed32;
      field.value = little_endian(reader.take(4));
      break;
    default:
      damaged("unknown wire type");
  }
  const char* end = reader.take(0).data();
  field.raw = {begin, static_cast<std::size_t>(end - begin)};
  if (field.wire == Wire::kGroup) field.bytes = field.raw;
  return field;
}

// Nested messages are never joined: no message of ONNX has them in the field where attributes have
// their texts, but for properties, which are not opened.
bool may_be_joined(const Field& field) {
  constexpr std::uint32_t kTextsOfAttributes = 9;
  if (field.wire == Wire::kBytes) return field.number == kTextsOfAttributes;
  return field.wire == Wire::kVarint || field.wire == Wire::kFixed32 ||
         field.wire == Wire::kFixed64;
}

// Makes one field of the last `count` ones.
void join_last(std::vector<Field>& fields, std::size_t count) {
  Field& first = fields[fields.size() - count];
  const char* end = fields.back().raw.data() + fields.back().raw.size();
  first.raw = {first.raw.data(), static_cast<std::size_t>(end - first.raw.data())};
  first.bytes = first.raw;
  first.wire = Wire::kRun;
  first.value = 0;
  fields.resize(fields.size() - count + 1);
}

}  // namespace

Sink::~Sink() = default;
Content::~Content() = default;

std::uint64_t VarintReader::next() {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    if (i >= rest_.size()) damaged("it ends inside a number");
    const auto byte = static_cast<unsigned char>(rest_[i]);
    value |= std::uint64_t{byte & 0x7FU} << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return value;
    }
  }
  damaged("a number is longer than ten bytes");
}

std::string_view VarintReader::take(std::uint64_t size) {
  if (size > rest_.size()) damaged("a field is longer than what is left of the file");
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

Message& Field::open() {
  if (!message) {
    if (wire != Wire::kBytes) damaged("a number stands where a message belongs");
    message = std::make_unique<Message>(Message::parse(bytes));
  }
  return *message;
}

void Field::set_bytes(std::string_view text) {
  wire = Wire::kBytes;
  bytes = text;
  raw = {};
  message.reset();
  content.reset();
}

void Field::set_value(std::uint64_t new_value) {
  wire = Wire::kVarint;
  value = new_value;
  raw = {};
}

Message Message::parse(std::string_view bytes) {
  constexpr std::size_t kLeastRun = 64;
  Message message;
  std::vector<Field>& fields = message.fields_;
  VarintReader reader(bytes);
  std::string_view rest = bytes;
  std::size_t alike = 0;  // the last so many fields are of one number and one kind
  while (!reader.done()) {
    Field field = read_field(rest, reader);
    rest.remove_prefix(field.raw.size());
    const bool continues = alike != 0 && fields.back().number == field.number;
    if (continues && fields.back().wire == Wire::kRun && may_be_joined(field)) {
      Field& run = fields.back();
      run.raw = run.bytes = {run.raw.data(), run.raw.size() + field.raw.size()};
      continue;
    }
    alike = !may_be_joined(field)                           ? 0
            : continues && fields.back().wire == field.wire ? alike + 1
                                                            : 1;
    fields.push_back(std::move(field));
    if (alike == kLeastRun) join_last(fields, kLeastRun);
  }
  return message;
}

void for_each_field(const Message& message, std::uint32_t number,
                    const std::function<void(const Field&)>& visit) {
  for (const Field& field : message.fields()) {
    if (field.number != number) continue;
    if (field.wire != Wire::kRun) {
      visit(field);
      continue;
    }
    VarintReader reader(field.bytes);
    std::string_view rest = field.bytes;
    while (!reader.done()) {
      const Field one = read_field(rest, reader);
      rest.remove_prefix(one.raw.size());
      visit(one);
    }
  }
}

const Field* Message::find(std::uint32_t number) const {
  const auto found = std::find_if(fields_.rbegin(), fields_.rend(),
                                  [&](const Field& field) { return field.number == number; });
  return found == fields_.rend() ? nullptr : &*found;
}

Field* Message::find(std::uint32_t number) {
  return const_cast<Field*>(std::as_const(*this).find(number));
}

std::string_view Message::text(std::uint32_t number) const {
  const Field* field = find(number);
  return field != nullptr && field->wire == Wire::kBytes ? field->bytes : std::string_view();
}

std::uint64_t Message::number(std::uint32_t number, std::uint64_t otherwise) const {
  const Field* field = find(number);
  return field != nullptr && field->wire != Wire::kBytes ? field->value : otherwise;
}

Field& Message::add(std::uint32_t number, std::uint64_t value) {
  Field field;
  field.number = number;
  field.value = value;
  changed_ = true;
  return fields_.emplace_back(std::move(field));
}

Field& Message::add(std::uint32_t number, std::string_view text) {
  Field& field = add(number, std::uint64_t{0});
  field.wire = Wire::kBytes;
  field.bytes = text;
  return field;
}

Field& Message::add(std::uint32_t number, std::unique_ptr<Message> message) {
  Field& field = add(number, std::string_view());
  field.message = std::move(message);
  return field;
}

Field& Message::add(std::uint32_t number, std::shared_ptr<const Content> content) {
  Field& field = add(number, std::string_view());
  field.content = std::move(content);
  return field;
}

void Message::set(std::uint32_t number, std::uint64_t value) {
  if (Field* field = find(number)) return field->set_value(value);
  add(number, value);
}

void Message::set(std::uint32_t number, std::string_view text) {
  if (Field* field = find(number)) return field->set_bytes(text);
  add(number, text);
}

void Message::remove(std::uint32_t number) {
  const auto removed =
      std::erase_if(fields_, [&](const Field& field) { return field.number == number; });
  changed_ = changed_ || removed != 0;
}

void Message::replace(std::vector<Field> fields) {
  fields_ = std::move(fields);
  changed_ = true;
}

bool Message::is_clean() const {
  return !changed_ && std::ranges::all_of(fields_, is_as_read);
}

std::uint64_t Message::size() const {
  std::uint64_t size = 0;
  for (const Field& field : fields_) size += field_size(field);
  return size;
}

void Message::write(Sink& sink) const {
  for (const Field& field : fields_) write_field(sink, field);
}

Message Message::clone() const {
  Message copy;
  copy.changed_ = changed_;
  copy.fields_.reserve(fields_.size());
  for (const Field& field : fields_) {
    Field& twin = copy.fields_.emplace_back();
    twin.number = field.number;
    twin.wire = field.wire;
    twin.value = field.value;
    twin.bytes = field.bytes;
    twin.raw = field.raw;
    twin.content = field.content;
    if (field.message) twin.message = std::make_unique<Message>(field.message->clone());
  }
  return copy;
}

std::vector<std::int64_t> repeated_integers(const Message& message, std::uint32_t number) {
  std::vector<std::int64_t> values;
  for_each_field(message, number, [&](const Field& field) {
    if (field.wire == Wire::kVarint) values.push_back(static_cast<std::int64_t>(field.value));
    if (field.wire != Wire::kBytes) return;
    VarintReader reader(field.bytes);
    while (!reader.done()) values.push_back(static_cast<std::int64_t>(reader.next()));
  });
  return values;
}

std::vector<float> repeated_floats(const Message& message, std::uint32_t number) {
  std::vector<float> values;
  for_each_field(message, number, [&](const Field& field) {
    if (field.wire == Wire::kFixed32)
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(field.value)));
    if (field.wire != Wire::kBytes) return;
    const std::size_t before = values.size();
    const std::size_t count = field.bytes.size() / sizeof(float);
    values.resize(before + count);
    if (count != 0) std::memcpy(values.data() + before, field.bytes.data(), count * sizeof(float));
  });
  return values;
}

}  // namespace mezzo::convert
