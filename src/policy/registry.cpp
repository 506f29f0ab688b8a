#include "policy/registry.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "operators/operators.h"

namespace mezzo {
namespace {

struct Registry {
  std::mutex mutex;
  std::deque<std::string> names;  // a deque, so that names stay where they are
  std::vector<Registration> registrations;
  std::atomic<std::uint64_t> version = 0;
};

Registry& registry() {
  static Registry* const instance = new Registry;  // never destroyed: threads may outlive main
  return *instance;
}

std::optional<std::size_t> find_locked(const Registry& all, std::string_view name) {
  const auto found = std::ranges::find(all.names, name);
  if (found == all.names.end()) return std::nullopt;
  return operators().size() + static_cast<std::size_t>(found - all.names.begin());
}

std::size_t row_locked(Registry& all, std::string_view name) {
  if (const auto row = find_locked(all, name)) return *row;
  all.names.emplace_back(name);
  return operators().size() + all.names.size() - 1;
}

void set_locked(Registry& all, std::size_t row, CastClass cast_class) {
  const auto found = std::ranges::find(all.registrations, row, &Registration::row);
  if (found == all.registrations.end()) {
    all.registrations.push_back({row, cast_class});
  } else {
    found->cast_class = cast_class;
  }
}

}  // namespace

std::vector<std::size_t> register_operator(std::string_view name, CastClass cast_class) {
  std::vector<std::size_t> rows = resolve(name);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (rows.empty()) rows.push_back(row_locked(all, name));
  for (const std::size_t row : rows) set_locked(all, row, cast_class);
  ++all.version;
  return rows;
}

std::size_t row_for(std::string_view name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return row_locked(all, name);
}

std::optional<std::size_t> registered_row(std::string_view name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return find_locked(all, name);
}

std::string_view row_name(std::size_t row) {
  if (row < operators().size()) return operators()[row].name;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.names.at(row - operators().size());
}

std::size_t row_count() noexcept {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return operators().size() + all.names.size();
}

std::uint64_t registration_version() noexcept {
  return registry().version;
}

std::vector<Registration> registrations() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.registrations;
}

}  // namespace mezzo
